"""Follow the progress.jsonl that a run's server writes: a bar on a terminal, a line in a notebook, else a line for each event.

The bar is rich's `Progress`; the view of `fedlingua watch` uses its `Live` and `Table`. This module adds what no library knows: how often
to ask Flower. What events add up to, and their lines, is in fedlingua.runs.events, which the ServerApp's log has too.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
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
from fedlingua.runs.events import PROGRESS_FILE, Event, SiteStatus, Tally, event_line, left_words, loss_words

_POLL_S = 3.0
_POLL_AFTER_EVENT_S = 12.0
_POLL_SLOWEST_S = 30.0
_POLL_GROWTH = 1.5
_POLL_AT_END_S = 1.0


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


def _now(total: Tally) -> tuple[str, str]:
    if total.waiting:
        return total.waiting, ""
    phase = f"{total.phase} {total.answered}/{total.asked}" if total.phase else "starting"
    size = f"{units.data(total.sent)} sent" if total.sent else ""
    state = [loss_words("loss", total.loss), loss_words("dev loss", total.dev_loss), size, left_words(total)]
    last = [one_line(total.working), left_words(total)]
    return phase, ", ".join(filter(None, last if total.phase == "finish" else state))
