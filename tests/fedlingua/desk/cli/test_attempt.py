"""How many nodes a simulation is given, and why a run failed."""

import dataclasses
import io
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.console import Console

from fedlingua.corpora.sites import read_federation
from fedlingua.desk.cli import progress
from fedlingua.desk.cli.attempt import NODES_APART, RAY_IS_LATE, Attempt
from fedlingua.desk.cli.engine import RunStatus
from fedlingua.desk.cli.progress import PlainView
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Scalar
from tests.recorded import RecordingEngine


class CountingEngine(RecordingEngine):
    nodes = 0

    def submit(self, run_config: Mapping[str, Scalar], num_nodes: int) -> str:
        self.nodes = num_nodes
        return super().submit(run_config, num_nodes)


@pytest.mark.parametrize(
    ("sites", "asked", "method", "cores", "nodes"),
    [
        (2, None, "adapter-fed", 12, 2),
        (NODES_APART, None, "adapter-fed", 12, NODES_APART),
        (NODES_APART + 1, None, "adapter-fed", 12, 24),
        (NODES_APART + 1, None, "adapter-fed", 2, 8),
        (NODES_APART + 1, None, "adapter-fed", 128, NODES_APART),
        (NODES_APART + 1, 70, "adapter-fed", 12, 70),
        (2, None, "centralized-adapter", 12, 1),
    ],
)
def test_each_site_has_a_node_until_they_are_too_many(
    run_config: dict[str, Scalar],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sites: int,
    asked: int | None,
    method: str,
    cores: int,
    nodes: int,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    settings = settings_from({**run_config, "method": method})
    federation = read_federation(settings.federation_path, Path())
    federation = dataclasses.replace(federation, sites=tuple([*federation.sites] * sites)[:sites])
    engine = CountingEngine()
    Attempt(engine, settings, federation, RunFolder(tmp_path / "demo"), asked, PlainView(Console(file=io.StringIO())))  # type: ignore[arg-type]
    assert engine.nodes == nodes


class Late(RecordingEngine):
    """Has Ray fail to start in the first so many tries."""

    def __init__(self, tries: int) -> None:
        super().__init__()
        self.late = tries

    def submit(self, run_config: Mapping[str, Scalar], num_nodes: int) -> str:
        if len(self.taken) >= self.late:
            return super().submit(run_config, num_nodes)
        settings = settings_from(run_config)
        self.taken.append(settings)
        RunFolder(Path(settings.run_dir)).open(settings, len(self.taken))  # as the server does, which then ends with Ray
        return str(len(self.taken))

    def status(self, run_id: str) -> RunStatus:
        late = int(run_id) <= self.late
        return RunStatus("finished", "failed", "An error was encountered.") if late else super().status(run_id)

    def log_tail(self, run_id: str) -> str:
        return f"    raise Exception(\nException: {RAY_IS_LATE}. This could happen because\n" + "RuntimeError\n" * 40


@pytest.mark.parametrize("late", [1, 2])
def test_a_ray_that_did_not_start_is_started_again_and_then_is_the_cause_in_one_line(
    run_config: dict[str, Scalar], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: int
) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    monkeypatch.setattr(progress, "_POLL_S", 0.0)
    monkeypatch.setattr(progress, "_POLL_AFTER_EVENT_S", 0.0)
    settings, out = settings_from(run_config), io.StringIO()
    federation, folder = read_federation(settings.federation_path, Path()), RunFolder(tmp_path / "demo")
    attempt = Attempt(Late(late), settings, federation, folder, None, PlainView(Console(file=out)))  # type: ignore[arg-type]
    reason = attempt.end(progress.follow(attempt.watch, 0.01))
    assert out.getvalue().count("it is started again") == 1
    assert not attempt.log
    cause = (
        "Ray, which simulates the sites, did not start in 2 tries: this machine is too busy; end what else runs on it, and start"
    )
    assert reason == ("" if late == 1 else f"{cause} the run again")
    assert (folder.read("run.json") or {})["status"] == ("completed" if late == 1 else "failed")
