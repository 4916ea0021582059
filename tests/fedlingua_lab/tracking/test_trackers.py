"""The trackers themselves, in their own stores, told of a run by the process that `fedlingua run` starts; no network.

TensorBoard is of the development environment; MLflow and trackio are told of where their extras are installed.
"""

import json
import os
import signal
import time
from pathlib import Path

import pytest
import yaml

from fedlingua.runs.folder import RunFolder
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Scalar
from fedlingua_lab.tracking.feed import Tracking, state_file
from fedlingua_lab.tracking.values import accepted
from tests.recorded import record_round, scores

CANARY = "Kanarienvogel"
Steps = dict[str, list[tuple[int, float]]]


@pytest.fixture
def folder(run_config: dict[str, Scalar], tmp_path: Path) -> RunFolder:
    """A run that has begun, whose words, but for names and settings, hold the canary."""
    made = RunFolder(tmp_path / "demo")
    made.open(settings_from({**run_config, "run-dir": str(made.directory)}), 1)
    record_round(made, 0, 1.0)
    return made


def go_on(folder: RunFolder, number: int) -> None:
    failure = {"site": "court", "phase": "train", "kind": "error", "reason": f"ValueError: {CANARY}"}
    sites = {"court": {"seconds": {"train": 1.0}, "uplink_bytes": 100, "downlink_bytes": 90, "dev_loss": 2.0, "said": CANARY}}
    folder.add_round({"round": number, "seconds": 9.0, "dev_loss": 3.0 - number, "sites": sites, "failures": [failure]})
    folder.event("note", text=CANARY)


def complete(folder: RunFolder) -> None:
    content = scores({"hospital": 20.0, "court": 30.0}, {"hospital": 1, "court": 1})
    content["sites"]["court"]["hypothesis"] = CANARY
    folder.write("scores.json", content)
    folder.close("completed", CANARY)
    (folder.directory / "sites" / "court").mkdir(parents=True)
    (folder.directory / "sites" / "court" / "translations.jsonl").write_text(json.dumps({"hypothesis": CANARY}))


def waited(folder: RunFolder, name: str, told: int) -> None:
    """Until the tracker has been told that round."""
    ends = time.monotonic() + 120
    while (
        not state_file(folder.directory, name).is_file()
        or json.loads(state_file(folder.directory, name).read_text()).get("told") != told
    ):
        assert time.monotonic() < ends, f"{name} was not told of round {told}"
        time.sleep(0.1)


def run_in_two_attempts(folder: RunFolder, name: str) -> None:
    """A run whose first process for the tracker is killed after round 1, and which is resumed after round 0."""
    said: list[str] = []
    go_on(folder, 1)
    first = Tracking(folder.directory, [name], said.append)
    waited(folder, name, 1)
    os.kill(first._feeds[name].pid, signal.SIGKILL)
    assert not first.close()
    assert "ended with -9" in said.pop()
    folder.cut_rounds(0)
    second = Tracking(folder.directory, [name], said.append)
    go_on(folder, 1)
    go_on(folder, 2)
    complete(folder)
    assert second.close(), said
    assert said == []


def check(steps: Steps) -> None:
    """What every tracker has to hold of that run."""
    assert steps["dev_loss"] == [(0, 3.0), (1, 2.0), (2, 1.0)]
    assert steps["failures"] == [(0, 0.0), (1, 1.0), (2, 1.0)]
    assert steps["dev_loss/court"] == [(1, 2.0), (2, 2.0)]
    assert steps["uplink_bytes/court"][-1] == (2, 100.0)
    assert steps["bytes/up"] == [(0, 0.0), (1, 100.0), (2, 100.0)]
    assert steps["scores/macro_bleu"] == [(2, 25.0)]


def holds_no_words(*places: Path) -> None:
    files = [file for place in places for file in ([place] if place.is_file() else place.rglob("*")) if file.is_file()]
    assert files
    for file in files:
        assert CANARY.encode() not in file.read_bytes(), file


def test_tensorboard(folder: RunFolder) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="extra tensorboard is missing"
    )
    run_in_two_attempts(folder, "tensorboard")
    place = folder.directory / "tensorboard"
    assert len(list(place.glob("events.*"))) == 2
    (settings_file,) = place.glob("*/hparams.yml")
    events = accumulator.EventAccumulator(str(place), size_guidance={"scalars": 0}, purge_orphaned_data=True)
    events.Reload()
    check({tag: [(one.step, one.value) for one in events.Scalars(tag)] for tag in events.Tags()["scalars"]})
    settings = yaml.safe_load(settings_file.read_text())
    assert (settings["method"], settings["learning-rate"]) == ("adapter-families", 0.01)
    assert "run-dir" not in settings
    holds_no_words(place, folder.directory / "tracking")


def test_mlflow(folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow", reason="extra mlflow is missing")
    from mlflow.tracking import MlflowClient

    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    run_in_two_attempts(folder, "mlflow")
    client = MlflowClient(store)
    experiment = client.get_experiment_by_name("fedlingua")
    (run,) = client.search_runs([experiment.experiment_id])
    names = run.data.metrics
    check({name: [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, name)] for name in names})
    assert (run.info.run_name, run.info.status) == ("demo", "FINISHED")
    assert (run.data.params["method"], run.data.params["learning-rate"]) == ("adapter-families", "0.01")
    holds_no_words(tmp_path / "mlflow.db", folder.directory / "tracking")


def test_trackio(folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trackio", reason="extra trackio is missing")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    run_in_two_attempts(folder, "trackio")
    import subprocess
    import sys

    code = """
import json, sys
from trackio.sqlite_storage import SQLiteStorage
(run,) = SQLiteStorage.get_runs("fedlingua")
print(json.dumps([run, SQLiteStorage.get_logs("fedlingua", run), SQLiteStorage.get_run_config("fedlingua", run)]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    name, logs, config = json.loads(done.stdout)
    steps: Steps = {}
    for log in logs:
        for key, value in log.items():
            if key not in ("step", "timestamp"):
                steps.setdefault(key, []).append((log["step"], value))
    check(steps)
    assert name.startswith("demo-")
    assert steps["completed"] == [(2, 1.0)]
    assert config["method"] == "adapter-families"
    holds_no_words(tmp_path / "trackio", folder.directory / "tracking")


def test_mlflows_names() -> None:
    assert accepted("scores chrf++/court:de-fr") == "scores chrfpp/court:de-fr"
    assert accepted("a(b)é") == "a_b__"
