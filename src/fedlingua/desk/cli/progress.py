"""Follows the progress.jsonl that a run's server writes: a live bar on a terminal, one plain line for each event elsewhere."""

import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from fedlingua.common import units
from fedlingua.common.terminal import one_line
from fedlingua.desk.cli.engine import RunStatus

PROGRESS_FILE = "progress.jsonl"

_POLL_S = 3.0
_POLL_AFTER_EVENT_S = 12.0
_POLL_SLOWEST_S = 12.0
_POLL_GROWTH = 1.3
_POLL_AT_END_S = 1.0

Event = dict[str, Any]


def watch(run_dir: Path, poll: Callable[[], RunStatus], console: Console, interval_s: float = 0.5, skip: int = 0) -> RunStatus:
    """Show the run in `run_dir` until `poll` says that it has finished, and return that. skip: bytes of an earlier attempt's events."""
    return follow(Watch(run_dir, poll, view_on(console), skip), interval_s)


def follow(watched: "Watch", interval_s: float = 0.5) -> RunStatus:
    """Look at one run until it has finished."""
    with watched.view.shown() or nullcontext():
        while (status := watched.look()) is None:
            time.sleep(interval_s)
    return status


class Watch:
    """Looks at a run in `run_dir`: shows what its server has written since, and asks `poll`, sparingly, whether it has finished.

    skip: bytes of an earlier attempt's events.
    """

    def __init__(self, run_dir: Path, poll: Callable[[], RunStatus], view: "View", skip: int = 0) -> None:
        self.view = view
        self._lines, self._asking = _Lines(run_dir / PROGRESS_FILE, skip), _Asking(poll)

    def look(self) -> RunStatus | None:
        """The status of a run that has finished, else None."""
        self._show()
        status = self._asking.ask_when_due()
        if status is None or not status.finished:
            return None
        self._show()  # what was written between the last look and the end
        return status

    def _show(self) -> None:
        for event in self._lines.read():
            try:
                self.view.show(event)
            except (KeyError, TypeError, ValueError):
                continue  # an event of another version's server: what it means is not known here
            self._asking.heard(event)


class _Lines:
    """The whole lines that have been added since the last look."""

    def __init__(self, file: Path, skip: int = 0) -> None:
        self.file = file
        self._offset = skip

    def read(self) -> list[Event]:
        try:
            with self.file.open("rb") as stream:
                stream.seek(self._offset)
                whole, newline, _ = stream.read().rpartition(b"\n")
        except OSError:  # the server has not begun to write
            return []
        self._offset += len(whole) + len(newline)
        events = []
        for line in whole.split(b"\n"):
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                events.append(event)
        return events


class _Asking:
    """Asks Flower how the run fares. That takes a second or two of a core that trains, so a quiet run is asked after less and less, and
    one that has just shown a sign of life not at all.
    """

    def __init__(self, poll: Callable[[], RunStatus]) -> None:
        self._poll = poll
        self._pause = _POLL_S
        self._due = time.monotonic() + _POLL_S

    def heard(self, event: Event) -> None:
        """An event is a sign of life that makes the question needless for a while; "end" makes it urgent."""
        ended = event.get("event") == "end"
        self._pause = _POLL_AT_END_S if ended else _POLL_S
        self._due = time.monotonic() + (0.0 if ended else _POLL_AFTER_EVENT_S)

    def ask_when_due(self) -> RunStatus | None:
        if time.monotonic() < self._due:
            return None
        status = self._poll()
        self._due = time.monotonic() + self._pause
        self._pause = min(self._pause * _POLL_GROWTH, _POLL_SLOWEST_S)
        return status


@dataclass
class Tally:
    """What the events so far add up to."""

    rounds: int = 0
    round: int = 0
    phase: str = ""
    sites: int = 0
    heard: int = 0
    sent: int = 0
    loss: float | None = None
    dev_loss: float | None = None
    seconds: list[float] = field(default_factory=list)

    def add(self, event: Event) -> bool:
        """Take an event in; False where it is of an unknown kind."""
        match event.get("event"):
            case "phase":
                self.phase, self.sites, self.heard = str(event["phase"]), int(event["sites"]), 0
                self.rounds = int(event.get("rounds") or self.rounds)
            case "reply":
                self.heard += 1
                self.sent += int(event.get("uplink_bytes") or 0)
                if event.get("loss") is not None:
                    self.loss = float(event["loss"])
            case "failure":
                self.heard += 1
            case "round":
                self.round, self.rounds = int(event["round"]), int(event["rounds"])
                self.dev_loss = None if event.get("dev_loss") is None else float(event["dev_loss"])
                self.seconds.append(float(event["seconds"]))
            case "note" | "end":
                pass
            case _:
                return False
        return True

    @property
    def left_s(self) -> float | None:
        """Time left for the rounds, from the latest ones: the first holds the start of everything."""
        latest = self.seconds[-5:] if len(self.seconds) == 1 else self.seconds[1:][-5:]
        return sum(latest) / len(latest) * (self.rounds - self.round) if latest else None


class View(Protocol):
    """Where a run's events are shown."""

    def shown(self) -> Progress | None:
        """What has to be entered while events are shown, if anything."""

    def show(self, event: Event) -> None:
        """Take one event in."""


def view_on(console: Console) -> View:
    """A bar on a terminal, plain lines elsewhere."""
    return _LiveView(console) if console.is_terminal else PlainView(console)


class PlainView:
    """One line for each round, failure and note, after `prefix`: for logs and pipes, without control characters."""

    def __init__(self, console: Console, prefix: str = "") -> None:
        self._console, self._prefix = console, prefix
        self._tally = Tally()

    def shown(self) -> Progress | None:
        return None

    def show(self, event: Event) -> None:
        if self._tally.add(event) and (line := event_line(event, self._tally)):
            self._console.print(self._prefix + line, markup=False, highlight=False, soft_wrap=True)  # no terminal, no width


class _LiveView:
    """A bar over the rounds, with the phase at work; failures and notes stay above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tally = Tally()
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[state]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            refresh_per_second=4,
        )
        self._task: TaskID = self._progress.add_task("starting", total=1, state="")

    def shown(self) -> Progress | None:
        return self._progress

    def show(self, event: Event) -> None:
        tally = self._tally
        if not tally.add(event):
            return
        if event["event"] in ("failure", "note", "end") and (line := event_line(event, tally)):
            self._progress.console.print(line, markup=False, highlight=False)
        self._progress.update(
            self._task,
            description=f"{tally.phase} {tally.heard}/{tally.sites}" if tally.phase else "starting",
            total=max(tally.rounds, 1),
            completed=tally.round,
            state=_state(tally),
        )


def event_line(event: Event, tally: Tally) -> str:
    """The line for an event, or "" where it gets none."""
    match event["event"]:
        case "round":
            parts = [f"round {tally.round}/{tally.rounds}", _loss("dev loss", tally.dev_loss)]
            parts += [f"{units.data(int(event['uplink_bytes']))} sent", f"{float(event['seconds']):.1f} s", _left(tally)]
            return ", ".join(filter(None, parts))
        case "failure":
            return one_line(f"{event['phase']} of round {event['round']}: site {event['site']} failed: {event['reason']}")
        case "note":
            return one_line(event["text"])
        case "end" if event.get("status") != "completed":
            return one_line(f"run {event.get('status')}: {event.get('reason') or 'no reason given'}")
    return ""


def _state(tally: Tally) -> str:
    size = f"{units.data(tally.sent)} sent" if tally.sent else ""
    losses = [_loss("loss", tally.loss), _loss("dev loss", tally.dev_loss)]
    return ", ".join(filter(None, [*losses, size, _left(tally)]))


def _loss(name: str, value: float | None) -> str:
    return "" if value is None else f"{name} {value:.4f}"


def _left(tally: Tally) -> str:
    seconds = tally.left_s
    return "" if not seconds else f"{duration(seconds)} left"


def duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
