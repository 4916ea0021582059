"""However a run ends, run.json says why."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedlingua.common.errors import RunError
from fedlingua.runs.folder import RunFolder
from strategies import server_app


def least(updates: list[float]) -> float:
    """A rule of the user's own that cannot do what it wants."""
    return updates[len(updates)]


def stopped() -> None:
    raise KeyboardInterrupt


def refused() -> None:
    raise RunError("too few good replies")


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (
            lambda: least([1.0]),
            r"IndexError at server_app\.py:\d+ main > .* > test_server_app\.py:\d+ least: list index out of range",
        ),
        (refused, "too few good replies"),
        (stopped, "KeyboardInterrupt: "),
    ],
    ids=["own-code", "ours", "stopped"],
)
def test_an_error_is_told_with_its_place_unless_it_is_ours(
    run_config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Any, reason: str
) -> None:
    monkeypatch.setattr(server_app, "run_federation", lambda *given: run())
    context: Any = SimpleNamespace(run_config={**run_config, "run-dir": str(tmp_path / "run")}, run_id=1)
    grid: Any = None
    with pytest.raises((IndexError, RunError, KeyboardInterrupt)):
        server_app.main(grid, context)
    told = RunFolder(tmp_path / "run").read("run.json") or {}
    assert told["status"] == "failed"
    assert re.fullmatch(reason, told["reason"])
