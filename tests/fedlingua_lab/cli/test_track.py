"""`fedlingua track`, and runs that are tracked while an engine has them."""

import io
import json
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from rich.console import Console

from fedlingua.common.errors import ConfigError, RunError
from fedlingua.corpora.sites import read_federation
from fedlingua.desk.cli.attempt import Attempt
from fedlingua.desk.cli.progress import PlainView
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Scalar
from fedlingua_lab.cli.track import track
from tests.recorded import RecordingEngine, record_completed


def said_of(run_dir: Path, to: str = "") -> tuple[dict[str, object], str]:
    out = io.StringIO()
    with redirect_stdout(out):
        return track(run_dir, to), out.getvalue()


def test_a_finished_run_is_told_afterwards_and_once(run_config: dict[str, Scalar], tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="extra tensorboard is missing")
    record_completed(settings_from({**run_config, "run-dir": str(tmp_path / "demo")}))
    expected = {"tensorboard": {"run": "demo", "told": 2, "ended": "completed"}}
    assert said_of(tmp_path / "demo", "tensorboard") == (expected, "tensorboard: demo up to round 2, completed\n")
    files = {file: file.read_bytes() for file in (tmp_path / "demo" / "tensorboard").rglob("events.*")}
    assert said_of(tmp_path / "demo", "tensorboard")[0] == expected
    assert {file: file.read_bytes() for file in (tmp_path / "demo" / "tensorboard").rglob("events.*")} == files


def test_what_cannot_be_told_is_refused(run_config: dict[str, Scalar], tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a run folder"):
        said_of(tmp_path)
    record_completed(settings_from({**run_config, "run-dir": str(tmp_path / "demo")}))
    with pytest.raises(ConfigError, match="the run names no tracker; give --to"):
        said_of(tmp_path / "demo")
    with pytest.raises(ConfigError, match="no tracker 'wandb'"):
        said_of(tmp_path / "demo", "wandb")


def test_a_run_that_never_began_has_nothing_to_tell(tmp_path: Path) -> None:
    RunFolder(tmp_path).write("run.json", {"name": "demo", "status": "failed", "reason": "no such corpus"})
    with pytest.raises(RunError, match="has no id, so the run ended before it began; there is nothing to send"):
        said_of(tmp_path, "tensorboard")


def test_a_run_without_a_round_is_told_as_one(run_config: dict[str, Scalar], tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="extra tensorboard is missing")
    folder = RunFolder(tmp_path / "demo")
    folder.open(settings_from({**run_config, "run-dir": str(folder.directory)}), 1)
    folder.close("failed", "no site came")
    assert said_of(folder.directory, "tensorboard")[1] == "tensorboard: demo up to no round, failed\n"


def test_an_attempt_is_tracked_to_its_end_and_its_other_files_are_as_without(
    run_config: dict[str, Scalar], tmp_path: Path
) -> None:
    pytest.importorskip("tensorboard", reason="extra tensorboard is missing")
    left: dict[str, dict[str, str]] = {}
    for name in ("", "tensorboard"):
        settings = settings_from({**run_config, "track": name})
        federation = read_federation(settings.federation_path, Path())
        folder, out = RunFolder(tmp_path / (name or "none") / "demo"), io.StringIO()
        attempt = Attempt(RecordingEngine(), settings, federation, folder, None, PlainView(Console(file=out)))
        attempt.end(attempt._engine.status("1"))
        attempt.close()
        assert out.getvalue() == ""
        left[name] = {file.name: file.read_text() for file in folder.directory.iterdir() if file.is_file()}
    told = json.loads((tmp_path / "tensorboard" / "demo" / "tracking" / "tensorboard.json").read_text())
    assert (told["told"], told["ended"]) == (2, "completed")
    assert not (tmp_path / "none" / "demo" / "tracking").exists()
    assert left[""]["rounds.jsonl"] == left["tensorboard"]["rounds.jsonl"]
    assert left[""]["scores.json"] == left["tensorboard"]["scores.json"]
    assert set(left[""]) == set(left["tensorboard"])
    hashes = {json.loads(files["run.json"])["config_hash"] for files in left.values()}
    assert len(hashes) == 1
