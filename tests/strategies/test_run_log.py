"""The ServerApp's log has a line for each round, the warnings, and at the end the scores and the report's path."""

import logging
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedlingua.desk.cli import engine
from fedlingua.desk.deployment import service
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.checks import settings_from
from strategies import run_log, server_app
from tests.recorded import record_completed


class Shown(logging.Handler):
    """What reaches Flower's own logger, whose lines `flwr log` shows."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def log() -> Iterator[Shown]:
    shown = Shown()
    logging.getLogger("flwr").addHandler(shown)
    yield shown
    logging.getLogger("flwr").removeHandler(shown)


def run_two_rounds(grid: Any, settings: Any, folder: RunFolder) -> None:
    cost = {"rounds": 2, "uplink_bytes": 1000, "downlink_bytes": 2000, "seconds": 10.0}
    folder.warn(["site court is alone"])
    folder.event("round", round=0, dev_loss=None, **{**cost, "seconds": 0.01})  # which measures nothing
    folder.event("round", round=1, dev_loss=None, **cost)
    folder.event("measured", round=1, dev_loss=2.5)
    folder.event("round", round=2, dev_loss=2.25, **cost, last_phase_s=60.0)
    folder.event("phase", phase="finish", round=2, sites=9)


def test_every_round_and_warning_is_a_line_of_flowers_log(
    log: Shown, run_config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_app, "run_federation", run_two_rounds)
    reported: list[Path] = []
    monkeypatch.setattr(server_app, "log_report", reported.append)
    grid: Any = None
    context: Any = SimpleNamespace(run_config={**run_config, "run-dir": str(tmp_path / "run")}, run_id=1)
    server_app.main(grid, context)
    assert [(record.levelname, record.getMessage()) for record in log.records] == [
        ("INFO", f"run folder: {tmp_path / 'run'}"),
        ("WARNING", "site court is alone"),
        ("INFO", "round 0/2, 1.00 kB up, 2.00 kB down, 0.0 s"),
        ("INFO", "round 1/2, 1.00 kB up, 2.00 kB down, 10.0 s, 10 s left"),
        ("INFO", "round 2/2, dev loss 2.2500, 1.00 kB up, 2.00 kB down, 10.0 s, 1 min 00 s left"),
        ("INFO", "last phase, at 9 sites, 1 min 00 s left"),
    ]
    assert reported == [tmp_path / "run"]


def test_a_completed_run_ends_with_its_scores_and_the_path_of_its_report(
    log: Shown, run_config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Flower has put the bundle, which has no desk, before everything else."""
    (tmp_path / "bundle" / "fedlingua").mkdir(parents=True)
    (tmp_path / "bundle" / "fedlingua" / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "bundle"))
    for name in run_log.SHOWN_ELSEWHERE:
        monkeypatch.delenv(name, raising=False)
    run = tmp_path / "run"
    record_completed(replace(settings_from(run_config), run_dir=str(run)))
    run_log.log_report(run)
    lines = [record.getMessage() for record in log.records]
    assert any(line.split()[:2] == ["court", "de-fr"] and "30.00" in line for line in lines), lines
    assert lines[-1] == f"report: {run / 'report.html'}"
    assert (run / "report.html").stat().st_size > 10_000
    monkeypatch.setattr(shutil, "which", lambda name, path: None)
    run_log.log_report(run)
    assert f"`fedlingua report {run}`" in log.records[-1].getMessage()


def test_what_fedlingua_run_shows_is_not_made_twice(log: Shown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {engine.MARK, service.MARK} == set(run_log.SHOWN_ELSEWHERE)
    monkeypatch.setenv(engine.MARK, "x")
    run_log.log_report(tmp_path)
    assert not log.records
