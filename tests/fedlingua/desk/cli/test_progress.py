"""What `watch` shows of a progress.jsonl, plain and on a terminal, and how often it asks for the status."""

import io
import json
import sys
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fedlingua.desk.cli import progress
from fedlingua.desk.cli.engine import RunStatus
from fedlingua.desk.cli.progress import PlainView, Watch, follow, tally, view_on
from fedlingua.runs.events import Tally, event_line


def watch(run_dir: Path, poll: Callable[[], RunStatus], console: Console, interval_s: float) -> RunStatus:
    return follow(Watch(run_dir, poll, view_on(console)), interval_s)


RUNNING = RunStatus("running", "")
COMPLETED = RunStatus("finished", "completed")


def write(run_dir: Path, *events: dict[str, Any], rest: str = "") -> None:
    text = "".join(json.dumps({"time": 1.0, **event}) + "\n" for event in events)
    with (run_dir / "progress.jsonl").open("a", encoding="utf-8") as stream:
        stream.write(text + rest)


def round_end(number: int, dev_loss: float | None, seconds: float) -> dict[str, Any]:
    sizes = {"seconds": seconds, "uplink_bytes": 98760, "downlink_bytes": 1234567}
    return {"event": "round", "round": number, "rounds": 4, "dev_loss": dev_loss, **sizes}


EVENTS: list[dict[str, Any]] = [
    {"event": "note", "text": "8 sites in [3] clusters"},
    {"event": "phase", "phase": "train", "round": 1, "rounds": 4, "sites": 2},
    {"event": "reply", "phase": "train", "round": 1, "site": "hospital", "loss": 1.234, "uplink_bytes": 49380, "seconds": 1.2},
    {"event": "failure", "phase": "train", "round": 1, "site": "court", "reason": "out of\n\x1bmemory"},
    round_end(1, 2.5, 20.0),
    round_end(2, None, 50.0),
    {"event": "measured", "round": 2, "dev_loss": 2.25},
    {"event": "site", "site": "court", "text": "trains alone, at most 8 passes", "step": True},
    {"event": "site", "site": "court", "text": "alone, pass 1 of at most 8", "step": False},
    {"event": "end", "status": "completed", "reason": None},
]

LINES = [
    "8 sites in [3] clusters",
    "train of round 1: site court failed: out of  memory",
    "round 1/4, dev loss 2.5000, 98.76 kB up, 1.23 MB down, 20.0 s, 1 min 00 s left",
    "round 2/4, dev loss 2.5000 after round 1, 98.76 kB up, 1.23 MB down, 50.0 s, 1 min 40 s left",
    "court: trains alone, at most 8 passes, 1 min 40 s left",
]


def plain(run_dir: Path, status: RunStatus = COMPLETED) -> list[str]:
    out = io.StringIO()
    assert watch(run_dir, lambda: status, Console(file=out), interval_s=0.01) == status
    return out.getvalue().splitlines()


def test_plain_lines(tmp_path: Path) -> None:
    write(tmp_path, *EVENTS)
    assert plain(tmp_path) == LINES


def test_a_long_line_is_not_broken(tmp_path: Path) -> None:
    write(tmp_path, {"event": "note", "text": "x" * 300}, EVENTS[-1])
    assert plain(tmp_path) == ["x" * 300]


def test_a_half_written_last_line_is_ignored(tmp_path: Path) -> None:
    write(tmp_path, *EVENTS, rest='{"event": "note", "te')
    assert plain(tmp_path) == LINES


def test_unknown_and_broken_events_are_ignored(tmp_path: Path) -> None:
    unknown: list[dict[str, Any]] = [
        {"event": "weather", "text": "rain"},
        {"event": "round"},
        {"event": "phase", "sites": None},
        {},
    ]
    write(tmp_path, *unknown, rest="[1]\nnot json\n\n")
    write(tmp_path, *EVENTS)
    assert plain(tmp_path) == LINES


def test_a_failed_end_says_why(tmp_path: Path) -> None:
    write(tmp_path, {"event": "end", "status": "failed", "reason": "3 of 8 sites answered"})
    assert plain(tmp_path, RunStatus("finished", "failed")) == ["run failed: 3 of 8 sites answered"]


def test_lines_that_come_in_parts_and_late(tmp_path: Path) -> None:
    def server() -> None:
        time.sleep(0.2)  # the file does not exist yet
        write(tmp_path, EVENTS[0], rest='{"event": "note", ')
        time.sleep(0.2)
        write(tmp_path, rest='"text": "später"}\n')
        write(tmp_path, EVENTS[-1])

    thread = threading.Thread(target=server)
    thread.start()
    assert plain(tmp_path) == [LINES[0], "später"]
    thread.join()


def test_without_events_the_status_is_asked_for_after_ten_seconds_and_then_ends_it(tmp_path: Path) -> None:
    asked: list[float] = []
    start = time.monotonic()

    def poll() -> RunStatus:
        asked.append(time.monotonic() - start)
        return RunStatus("finished", "failed", "no server")

    assert watch(tmp_path, poll, Console(file=io.StringIO()), interval_s=0.05).details == "no server"
    assert len(asked) == 1
    assert asked[0] >= 10.0


def test_a_run_that_tells_of_itself_is_not_asked_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    asked: list[float] = []

    def poll() -> RunStatus:
        asked.append(now)
        return RUNNING

    watched = Watch(tmp_path, poll, PlainView(Console(file=io.StringIO())))
    for now in range(61):
        if now % 5 == 0 and now <= 40:
            write(tmp_path, EVENTS[0])
        watched.look()
    assert asked == [52, 55, 60]


def test_a_run_that_has_not_begun_says_so_until_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    out = io.StringIO()
    watched = Watch(tmp_path, lambda: RunStatus("pending", ""), PlainView(Console(file=out, width=200)))
    for now in range(61):
        if now == 30:
            write(tmp_path, EVENTS[0])
        watched.look()
    told = [line for line in out.getvalue().splitlines() if "still starting" in line]
    assert told[0].endswith("still starting, for 10.0 s (Flower: pending)")
    assert len(told) == 4


def test_after_the_end_event_it_waits_for_flower(tmp_path: Path) -> None:
    write(tmp_path, *EVENTS)
    answers = [RUNNING, COMPLETED]
    start = time.monotonic()
    assert watch(tmp_path, lambda: answers.pop(0), Console(file=io.StringIO()), interval_s=0.05) == COMPLETED
    assert not answers
    assert 0.9 < time.monotonic() - start < 10.0  # and not the 12 s of a run that has not ended


def test_a_terminal_shows_the_round_and_keeps_failures(tmp_path: Path) -> None:
    write(tmp_path, *EVENTS)
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=200, color_system=None)
    assert watch(tmp_path, lambda: COMPLETED, console, interval_s=0.01) == COMPLETED
    shown = out.getvalue()
    assert "8 sites in [3] clusters" in shown
    assert "site court failed" in shown
    assert "train 2/2" in shown
    assert "2/4" in shown
    assert "1 min 40 s left" in shown


def test_an_interrupt_passes_through(tmp_path: Path) -> None:
    write(tmp_path, EVENTS[-1])

    def poll() -> RunStatus:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watch(tmp_path, poll, Console(file=io.StringIO(), force_terminal=True), interval_s=0.01)


def test_a_notebook_shows_one_line_that_is_updated_and_failures_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    displayed: list[str] = []
    updates: list[str] = []

    class Handle:
        def update(self, shown: dict[str, str], raw: bool) -> None:
            assert raw
            updates.append(shown["text/plain"])

    def display(shown: dict[str, str], raw: bool, display_id: bool) -> Handle:
        assert raw
        assert display_id
        displayed.append(shown["text/plain"])
        return Handle()

    module = types.ModuleType("IPython.display")
    module.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    printed: list[str] = []
    console = Console(file=io.StringIO(), force_jupyter=True)
    monkeypatch.setattr(console, "print", lambda line, **style: printed.append(line))
    write(tmp_path, *EVENTS)
    assert watch(tmp_path, lambda: COMPLETED, console, interval_s=0.01) == COMPLETED
    assert displayed == ["round 0/0, starting"]
    assert updates[2] == "round 0/4, train 1/2, loss 1.2340, 49.38 kB sent"
    assert updates[4] == "round 1/4, train 2/2, loss 1.2340, dev loss 2.5000, 49.38 kB sent, 1 min 00 s left"
    assert printed == LINES[:2]
    view = view_on(console, "base, seed 1: ")
    view.show(EVENTS[4])
    assert displayed[-1].startswith("base, seed 1: round 1/4, ")


def last_phase(monkeypatch: pytest.MonkeyPatch, at: float, *events: dict[str, Any]) -> Tally:
    """The totals at a time, of a run of two rounds of 20 s after the first, whose last phase began at 100 s and should take 60 s."""
    monkeypatch.setattr(progress.time, "time", lambda: at)
    rounds = [{**round_end(number, 2.0, 20.0), "rounds": 3, "last_phase_s": 60.0} for number in (1, 2)]
    begun = {"event": "phase", "phase": "finish", "round": 3, "rounds": 3, "sites": 2, "time": 100.0}
    return tally([*rounds, *([begun, *events] if at else [])], ["court", "hospital"])[0]


def step(site: str, text: str, done: float, at: float) -> dict[str, Any]:
    return {"event": "site", "site": site, "text": text, "step": False, "done": done, "time": at}


def test_the_time_left_contains_the_last_phase_from_the_first_round_on(monkeypatch: pytest.MonkeyPatch) -> None:
    total = last_phase(monkeypatch, 0.0)
    assert total.left_s == 20 + 60
    line = event_line({**round_end(2, 2.0, 20.0), "event": "round"}, total)
    assert line.endswith("1 min 20 s left")
    # Deployed sites report nothing on their way: what was estimated less what has passed.
    assert last_phase(monkeypatch, 145.0).left_s == 15
    assert last_phase(monkeypatch, 999.0).left_s == 0
    # What the sites have behind them says more than the estimate, the more so the more it is.
    steps = [step("court", "alone, pass 3", 0.75, 120.0), step("hospital", "trains alone", 0.25, 121.0)]
    assert last_phase(monkeypatch, 200.0, *steps).left_s == 100
    assert last_phase(monkeypatch, 110.0, step("court", "alone, pass 1", 0.25, 110.0)).left_s == pytest.approx(
        0.5 * 60 + 0.5 * 80 - 10
    )


def test_each_sites_step_of_the_last_phase_shows_until_it_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    reply = {"event": "reply", "phase": "finish", "round": 3, "site": "hospital", "uplink_bytes": 9, "time": 130.0}
    total = last_phase(monkeypatch, 140.0, step("court", "alone, pass 3", 0.5, 120.0), reply)
    assert {name: site.doing for name, site in total.sites.items()} == {"court": "alone, pass 3", "hospital": "finish"}
    assert {site.done for site in total.sites.values()} == {0.5, 1.0}
    assert last_phase(monkeypatch, 101.0).sites["court"].doing == "finish: asked"
    trained = {
        "event": "site",
        "site": "court",
        "text": "trains alone, at most 8 passes",
        "step": True,
        "done": 0.5,
        "time": 120.0,
    }
    assert (
        event_line(trained, last_phase(monkeypatch, 140.0, trained)) == "court: trains alone, at most 8 passes, 2 min 00 s left"
    )
