"""The start of a run: which sites it waits for is said, in the run, in `fedlingua watch` and in `fedlingua status`."""

import io
import json
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fedlingua.desk.cli.progress import LiveView, PlainView, read_events
from fedlingua.desk.cli.status import status
from fedlingua.desk.cli.watch import frame, look
from fedlingua.runs.folder import RunFolder
from strategies.rounds import registration
from tests.federations import FOUR_SITES
from tests.in_process import InProcessGrid, run_on


class Late(InProcessGrid):
    """A node joins each time once the run has said that it waits."""

    def __init__(self, config: dict[str, Any], folder: Path) -> None:
        super().__init__(config, 4)
        self.folder, self.said = RunFolder(folder), list[tuple[str, str, dict[str, Any]]]()

    def get_node_ids(self) -> Iterable[int]:
        waits = [event for event in read_events(self.folder.directory / "progress.jsonl")[0] if event["event"] == "waiting"]
        if len(waits) > len(self.said):
            out, screen = io.StringIO(), Console(file=io.StringIO(), width=100)
            with redirect_stdout(out):
                answer = status(self.folder.directory)
            snapshot = look(self.folder.directory)
            screen.print(frame(snapshot, screen, 0.0, 60.0))
            self.said.append((out.getvalue(), screen.file.getvalue(), {**answer, "watch": snapshot.answer()}))  # type: ignore[attr-defined]
        return [100, 102, 103, 101][: 2 + len(waits)]


@pytest.fixture
def late(least_run_config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Late:
    monkeypatch.setattr(registration, "PATIENCE_S", 0.0)
    (tmp_path / "four.toml").write_text(FOUR_SITES)
    config = {**least_run_config, "method": "base", "federation": str(tmp_path / "four.toml"), "run-dir": str(tmp_path / "run")}
    grid = Late(config, tmp_path / "run")
    run_on(grid, config)
    return grid


def test_who_is_missing_is_said_until_all_are_here(late: Late) -> None:
    events, _ = read_events(late.folder.directory / "progress.jsonl")
    waits = [(event["missing"], event["here"], event["sites"]) for event in events if event["event"] == "waiting"]
    assert waits == [("court, bank", 2, 4), ("court", 3, 4), ("", 4, 4)]
    lines = ["waiting for court, bank (2 of 4 here)", "waiting for court (3 of 4 here)"]
    for (told, watched, answer), line in zip(late.said, lines, strict=False):
        assert line in told.splitlines()
        assert line in watched.splitlines()
        assert answer["waiting"] == answer["watch"]["waiting"] == line
    out = io.StringIO()
    view = PlainView(Console(file=out, width=100))
    bar = LiveView(Console(file=io.StringIO(), width=100))
    assert bar.live
    for event in events:
        view.show(event)
        bar.show(event)
        if event["event"] == "waiting" and event["missing"]:
            assert bar.live.tasks[0].description == f"waiting for {event['missing']} ({event['here']} of 4 here)"
    said = [line for line in out.getvalue().splitlines() if line.endswith((" here)", " are here"))]
    assert said == [*lines, "all 4 sites are here"]
    assert bar.live.tasks[0].description.startswith("finish")
    assert look(late.folder.directory).answer()["waiting"] == ""


def test_of_many_sites_few_are_named(tmp_path: Path) -> None:
    names = [f"site-{number}" for number in range(1000)]

    class Expected:
        expected, sites = names, names[:1]

    state = registration._name_missing(Expected(), [], ("", 0), RunFolder(tmp_path))  # type: ignore[arg-type]
    assert state == ("site-1, site-2, site-3, site-4, site-5 and 994 more", 1)
    assert registration._name_missing(Expected(), [], state, RunFolder(tmp_path)) == state  # type: ignore[arg-type]
    assert len((tmp_path / "progress.jsonl").read_text().splitlines()) == 1
    assert json.loads((tmp_path / "progress.jsonl").read_text())["here"] == 1
