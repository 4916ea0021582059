"""`fedlingua status`: what a run folder says of its run and of each site."""

import io
import json
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from fedlingua.common.errors import RunError
from fedlingua.desk.cli.progress import read_events, tally
from fedlingua.desk.cli.status import status
from fedlingua.runs.events import SiteStatus
from fedlingua.runs.folder import RunFolder


def reply(site: str, number: int, phase: str, at: float = 50.0, uplink: int = 0) -> dict[str, Any]:
    return {"event": "reply", "site": site, "round": number, "phase": phase, "uplink_bytes": uplink, "time": at}


def failure(site: str, number: int, phase: str, at: float = 60.0) -> dict[str, Any]:
    return {"event": "failure", "site": site, "round": number, "phase": phase, "kind": "late", "reason": "no reply", "time": at}


EVENTS = [
    {"event": "note", "text": "two sites"},
    reply("court", 1, "train", 10.0, 1000),
    reply("court", 1, "evaluate", 20.0, 1000),  # as the round's record has it: the same bytes again
    failure("bank", 1, "train"),
    reply("court", 2, "train", 30.0, 500),
    failure("court", 2, "evaluate", 40.0),
    {"event": "round", "round": 2},
]


def written(folder: Path, events: list[dict[str, Any]], **run: Any) -> RunFolder:
    content = {"name": "demo", "status": "running", "rounds": 2, "attempt": 1, "config": {"rounds": 8}, **run}
    made = RunFolder(folder / "run")
    made.write("run.json", content)
    made.write("sites.json", {"court": {}, "school": {}})
    (folder / "run" / "progress.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return made


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that no line of a table is broken on."""
    monkeypatch.setenv("COLUMNS", "200")


def shown(folder: Path) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        status(folder)
    return out.getvalue()


def line_of(site: str, text: str) -> str:
    (line,) = [line for line in text.splitlines() if site in line]
    return " ".join(line.split())


def test_a_sites_status_is_what_was_last_heard_of_it() -> None:
    sites = tally(EVENTS, ["school", "court"])[0].sites
    assert list(sites) == ["school", "court", "bank"]
    assert sites["school"] == SiteStatus()
    assert sites["court"] == SiteStatus(2, "evaluate", 30.0, 2500, 1, "late: no reply")
    assert sites["bank"] == SiteStatus(1, "train", 0.0, 0, 1, "late: no reply")


def test_a_good_reply_ends_a_trouble_but_not_its_count() -> None:
    site = tally([failure("court", 1, "train"), reply("court", 1, "train", 70.0)], [])[0].sites["court"]
    assert (site.trouble, site.failures, site.seen) == ("", 1, 70.0)


def test_a_line_that_was_broken_off_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "progress.jsonl"
    assert read_events(file) == ([], 0)
    file.write_text('{"event": "a"}\n{"event": "b", "te\n{"event": "c \u2028"}\n{"event"')
    assert [event["event"] for event in read_events(file)[0]] == ["a", "c \u2028"]


def test_a_line_that_was_broken_off_inside_a_letter_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "progress.jsonl"
    file.write_bytes(b'{"event": "a"}\n' + '{"event": "ü'.encode()[:-1])
    assert [event["event"] for event in read_events(file)[0]] == ["a"]


def test_a_run_whose_server_is_gone_is_broken_off(tmp_path: Path) -> None:
    folder = written(tmp_path, EVENTS)
    assert "demo: interrupted (its server is gone; resume it with --resume), round 2 of 8, attempt 1" in shown(folder.directory)


def test_a_run_whose_server_is_at_work_is_running_and_is_not_disturbed(tmp_path: Path) -> None:
    folder = written(tmp_path, EVENTS)
    with folder.held():
        for _ in range(2):
            assert "demo: running, round 2 of 8" in shown(folder.directory)
    assert "its server is gone" in shown(folder.directory)


@pytest.mark.parametrize(
    ("run", "told"),
    [
        ({"status": "completed", "best_round": 2}, "demo: completed, round 2 of 8, attempt 1, best round 2"),
        ({"status": "failed", "reason": "[3] of 8", "attempt": 2}, "demo: failed, round 2 of 8, attempt 2: [3] of 8"),
        ({"status": "completed", "best_round": 0}, "best round 0"),
        ({"status": "interrupted", "config": None}, "demo: interrupted, round 2 of ?"),
    ],
)
def test_an_ended_run_says_how_it_ended(tmp_path: Path, run: dict[str, Any], told: str) -> None:
    assert told in shown(written(tmp_path, EVENTS, **run).directory)


def test_each_site_has_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    events = [reply("court", 2, "train", now - 125, 1_500_000), failure("bank", 1, "train")]
    text = shown(written(tmp_path, events).directory)
    assert "2 train 2 min 05 s ago 1.50 MB 0".replace(" ", "") in line_of("court", text).replace("│", "").replace(" ", "")
    assert "never" in line_of("bank", text)
    assert "late: no reply" in line_of("bank", text)
    assert "never" in line_of("school", text)


def test_a_folder_without_a_run_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"is not a run folder: it has no run\.json"):
        shown(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_sites_step_of_the_last_phase_and_the_time_left_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = {"event": "round", "round": 8, "rounds": 8, "dev_loss": 2.0, "seconds": 9.0, "uplink_bytes": 9, "last_phase_s": 90.0}
    finish = {"event": "phase", "phase": "finish", "round": 8, "rounds": 8, "sites": 2, "time": time.time()}
    at_work = {
        "event": "site",
        "site": "court",
        "text": "alone, pass 3 of at most 16",
        "step": False,
        "done": 0.0,
        "time": time.time(),
    }
    folder = written(tmp_path, [*EVENTS, ended, finish, at_work])
    with folder.held():
        text = shown(folder.directory)
    assert "alone, pass 3 of at most 16" in line_of("court", text)
    assert "finish: asked" in line_of("school", text)
    assert "about 1 min" in text
