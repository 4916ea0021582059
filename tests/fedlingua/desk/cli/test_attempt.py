"""How many nodes a simulation is given."""

import dataclasses
import io
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.console import Console

from fedlingua.corpora.sites import read_federation
from fedlingua.desk.cli.attempt import NODES_APART, Attempt
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
