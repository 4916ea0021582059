"""Follow the progress.jsonl that a run's server writes: a bar on a terminal, a line in a notebook, else a line for each event.

The bar is rich's `Progress`; the view of `fedlingua watch` uses its `Live` and `Table`. This module adds what no library knows:
the totals of events, how often to ask Flower, and the lines for logs and pipes.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from fedlingua.common.terminal import one_line
from fedlingua.desk import units
from fedlingua.desk.cli.engine import RunStatus
from fedlingua.desk.json_values import json_object
from fedlingua.desk.pace import EVERY_S

PROGRESS_FILE = "progress.jsonl"

_POLL_S = 3.0
_POLL_AFTER_EVENT_S = 12.0
_POLL_SLOWEST_S = 30.0
_POLL_GROWTH = 1.5
_POLL_AT_END_S = 1.0

Event = dict[str, Any]


def read_events(file: Path, start: int = 0) -> tuple[list[Event], int]:
    """Return the events in complete lines of a run's progress from byte `start` on, and the byte where the next line begins."""
    try:
        with file.open("rb") as stream:
            stream.seek(start)
            whole, newline, _ = stream.read().rpartition(b"\n")
    except OSError:  # the server has not begun to write
        return [], start
    events = [event for line in whole.split(b"\n") if (event := json_object(line)) is not None]
    return events, start + len(whole) + len(newline)


# --- What the events add up to ---


@dataclass
class SiteStatus:
    """What one site has sent so far. seen: last message, in seconds since the epoch, 0 for never; uplink_bytes: in all rounds so far.

    step: what it does in the last phase, in words; done: the share of that phase behind it, 0-1.
    """

    round: int = 0
    phase: str = ""
    seen: float = 0.0
    uplink_bytes: int = 0
    failures: int = 0
    trouble: str = ""
    step: str = ""
    done: float = 0.0

    @property
    def doing(self) -> str:
        """The phase of its last message, or its step of the last phase."""
        return self.step or self.phase


@dataclass
class Tally:
    """Totals of the events so far.

    waiting: which sites the start waits for, in words. asked, answered: sites in this phase. sent: bytes of all replies. working: a site's
    latest report of its work after the rounds. last_phase_s: about how long that work takes. began: when the phase began, seconds since
    the epoch.
    """

    rounds: int = 0
    round: int = 0
    phase: str = ""
    waiting: str = ""
    asked: int = 0
    answered: int = 0
    sent: int = 0
    loss: float | None = None
    dev_loss: float | None = None
    seconds: list[float] = field(default_factory=list)
    sites: dict[str, SiteStatus] = field(default_factory=dict)
    working: str = ""
    last_phase_s: float = 0.0
    began: float = 0.0

    def add(self, event: Event) -> bool:
        """Add an event; return False if its kind is unknown or it is malformed, as from another version's server."""
        with suppress(KeyError, TypeError, ValueError):
            match event.get("event"):
                case "phase":
                    self.phase, self.asked, self.answered = str(event["phase"]), int(event["sites"]), 0
                    self.rounds, self.waiting = int(event.get("rounds") or self.rounds), ""
                    self.began = float(event["time"])
                    for site in self.sites.values():
                        if self.phase == "finish" != site.phase:
                            site.step, site.done = "finish: asked", 0.0
                case "waiting":
                    here = f"({int(event['here'])} of {int(event['sites'])} here)"
                    self.waiting = one_line(f"waiting for {event['missing']} {here}") if event["missing"] else ""
                case "reply":
                    number, phase, sent = int(event["round"]), str(event["phase"]), int(event.get("uplink_bytes") or 0)
                    site = self.sites.setdefault(str(event["site"]), SiteStatus())
                    site.round, site.phase, site.seen, site.trouble = number, phase, float(event["time"]), ""
                    site.step, site.done = "", float(phase == "finish")
                    site.uplink_bytes += sent
                    self.answered, self.sent = self.answered + 1, self.sent + sent
                    if event.get("loss") is not None:
                        self.loss = float(event["loss"])
                case "failure":
                    number, phase, kind = int(event["round"]), str(event["phase"]), event.get("kind", "")
                    trouble, site = f"{kind}: {event['reason']}", self.sites.setdefault(str(event["site"]), SiteStatus())
                    site.round, site.phase, site.trouble, site.step = number, phase, trouble, ""
                    site.failures, self.answered = site.failures + 1, self.answered + 1
                case "round":
                    dev_loss, seconds, _ = event.get("dev_loss"), float(event["seconds"]), int(event["uplink_bytes"])
                    self.round, self.rounds = int(event["round"]), int(event["rounds"])
                    self.dev_loss = self.dev_loss if dev_loss is None else float(dev_loss)
                    self.seconds.append(seconds)
                    self.last_phase_s = float(event.get("last_phase_s") or 0.0)
                case "measured":  # of an earlier round, measured during the current one
                    self.dev_loss = float(event["dev_loss"])
                    return isinstance(event["round"], int)
                case "site":
                    self.working = f"{event['site']}: {event['text']}"
                    site = self.sites.setdefault(str(event["site"]), SiteStatus())
                    site.step, site.seen, site.done = (
                        str(event["text"]),
                        float(event["time"]),
                        float(event.get("done") or site.done),
                    )
                case "note":
                    return isinstance(event.get("text"), str)
                case other:
                    return other == "end"
            return True
        return False

    @property
    def left_s(self) -> float | None:
        """Estimated seconds for the remaining rounds, from the latest ones without the first, which includes all start-up, and for the
        last phase; within that by what the sites have behind them, the more so the more it is."""
        latest = self.seconds[-5:] if len(self.seconds) == 1 else self.seconds[1:][-5:]
        if self.phase != "finish":
            return sum(latest) / len(latest) * (self.rounds - self.round) + self.last_phase_s if latest else None
        passed, done = time.time() - self.began, sum(site.done for site in self.sites.values()) / max(1, len(self.sites))
        if not self.working or not done:  # deployed sites report nothing before they reply
            return max(0.0, self.last_phase_s - passed)
        trust = min(1.0, 4 * done)
        return max(0.0, (1 - trust) * self.last_phase_s + trust * passed / done - passed)


def tally(events: Iterable[Event], sites: Iterable[str]) -> tuple[Tally, list[Event]]:
    """Return the tally of events, and those of them that are known. sites: listed first, with or without events."""
    total = Tally(sites={name: SiteStatus() for name in sites})
    return total, [event for event in events if total.add(event)]


# --- Following a run ---


class PlainView:
    """A view of one line for each round, failure and note, after `prefix`: for logs and pipes, without control characters."""

    live: Progress | None = None
    """Context that must be entered while events are shown, if any."""

    def __init__(self, console: Console, prefix: str = "") -> None:
        self._console, self._prefix = console, prefix
        self._tally = Tally()

    def show(self, event: Event) -> None:
        if self._tally.add(event):
            self._show(event, event_line(event, self._tally))

    def _show(self, event: Event, line: str) -> None:
        if line:
            self._console.print(self._prefix + line, markup=False, highlight=False, soft_wrap=True)

    def note(self, text: str) -> None:
        """Show a line that does not come from the server."""
        self.show({"event": "note", "text": text})


class LiveView(PlainView):
    """A bar over the rounds, with the current phase; failures and notes stay above it."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.live = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[state]}", markup=False),
            TimeElapsedColumn(),
            console=console,
            refresh_per_second=4,
        )
        self._task = self.live.add_task("starting", total=1, state="")

    def _show(self, event: Event, line: str) -> None:
        assert self.live
        if line and event["event"] not in ("round", "measured"):
            self.live.console.print(line, markup=False, highlight=False)
        (phase, state), rounds = _now(self._tally), max(self._tally.rounds, 1)
        self.live.update(self._task, description=phase, total=rounds, completed=self._tally.round, state=state)


class NotebookView(PlainView):
    """One line that Jupyter updates, also with the sites' work after the rounds; failures and notes come below it."""

    _line: Any = None

    def _show(self, event: Event, line: str) -> None:
        if event["event"] not in ("round", "measured", "site"):
            super()._show(event, line)
        words = (f"{self._prefix}round {self._tally.round}/{self._tally.rounds}", *_now(self._tally))
        shown = {"text/plain": ", ".join(filter(None, words))}
        self._line = self._line or import_module("IPython.display").display(shown, raw=True, display_id=True)
        self._line.update(shown, raw=True)


def view_on(console: Console, prefix: str | None = None) -> PlainView:
    """Return the view: a line in a notebook, a bar on a terminal, else plain lines. prefix: of one of several runs, no bar."""
    lines = NotebookView if console.is_jupyter else PlainView
    return LiveView(console) if prefix is None and console.is_terminal else lines(console, prefix or "")


class Watch:
    """Follows the run in `run_dir`: shows new events of its server, and asks `poll` whether it has finished.

    Asking Flower takes a second or two of a core that trains. A quiet run is therefore polled less and less often, and a run that
    is starting or has just written an event is not polled for a while.

    Args:
        skip: Bytes of an earlier attempt's events, which are not shown.
    """

    def __init__(self, run_dir: Path, poll: Callable[[], RunStatus], view: PlainView, skip: int = 0) -> None:
        self.view = view
        self._file, self._read, self._poll = run_dir / PROGRESS_FILE, skip, poll
        self._pause, self._due = _POLL_S, time.monotonic() + EVERY_S
        self._began, self._started = time.monotonic(), False

    def look(self) -> RunStatus | None:
        """Show new events; return the status if the run has finished, else None."""
        self._show()
        if time.monotonic() < self._due:
            return None
        status = self._poll()
        self._due = time.monotonic() + self._pause
        self._pause = min(self._pause * _POLL_GROWTH, _POLL_SLOWEST_S)
        if not status.finished:
            if not self._started and (waited := time.monotonic() - self._began) >= EVERY_S:
                self.view.note(f"the server is still starting, for {units.duration(waited)} (Flower: {status.state})")
            return None
        self._show()  # what was written between the last look and the end
        return status

    def _show(self) -> None:
        events, self._read = read_events(self._file, self._read)
        for event in events:
            self._started = True
            self.view.show(event)
            ended = event.get("event") == "end"
            self._pause = _POLL_AT_END_S if ended else _POLL_S
            self._due = time.monotonic() + (0.0 if ended else _POLL_AFTER_EVENT_S)


def follow(watched: Watch, interval_s: float = 0.5) -> RunStatus:
    """Watch one run until it has finished, and return its status."""
    with watched.view.live or nullcontext():
        while (status := watched.look()) is None:
            time.sleep(interval_s)
    return status


def event_line(event: Event, total: Tally) -> str:
    """Return the line for an event, or "" if it gets none."""
    match event["event"]:
        case "round":
            dev_loss = "" if event.get("dev_loss") is None else _loss("dev loss", total.dev_loss)
            cost = f"{units.data(int(event['uplink_bytes']))} sent", f"{float(event['seconds']):.1f} s"
            return ", ".join(filter(None, [f"round {total.round}/{total.rounds}", dev_loss, *cost, _left(total)]))
        case "measured":
            return f"round {event['round']}/{total.rounds}, {_loss('dev loss', total.dev_loss)}"
        case "failure":
            return one_line(f"{event['phase']} of round {event['round']}: site {event['site']} failed: {event['reason']}")
        case "note":
            return one_line(event["text"])
        case "waiting":
            return total.waiting or f"all {event['sites']} sites are here"
        case "site" if event.get("step"):
            return ", ".join(filter(None, [one_line(total.working), _left(total)]))
        case "end" if event.get("status") != "completed":
            return one_line(f"run {event.get('status')}: {event.get('reason') or 'no reason given'}")
    return ""


def _now(total: Tally) -> tuple[str, str]:
    if total.waiting:
        return total.waiting, ""
    phase = f"{total.phase} {total.answered}/{total.asked}" if total.phase else "starting"
    size = f"{units.data(total.sent)} sent" if total.sent else ""
    state = [_loss("loss", total.loss), _loss("dev loss", total.dev_loss), size, _left(total)]
    last = [one_line(total.working), _left(total)]
    return phase, ", ".join(filter(None, last if total.phase == "finish" else state))


def _loss(name: str, value: float | None) -> str:
    return "" if value is None else f"{name} {value:.4f}"


def _left(total: Tally) -> str:
    return f"{units.duration(round(total.left_s))} left" if total.left_s else ""
