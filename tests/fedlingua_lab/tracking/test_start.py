"""The processes that tell trackers: what they say is heard, and none of them is left, however it fares."""

import sys
import time
from pathlib import Path

import psutil
import pytest

from fedlingua.runs.folder import RunFolder
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Scalar
from fedlingua_lab.tracking.feed import Tracking
from tests.recorded import record_completed

HANGS = "import time\nprint('about to hang')\ntime.sleep(600)\n"
BREAKS = "raise RuntimeError('no such server')\n"
DIES = "import os\nos._exit(7)\n"


@pytest.fixture
def folder(run_config: dict[str, Scalar], tmp_path: Path) -> RunFolder:
    """A completed run."""
    record_completed(settings_from({**run_config, "run-dir": str(tmp_path / "demo")}))
    return RunFolder(tmp_path / "demo")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder before all others on the path, where a package called mlflow can be put."""
    monkeypatch.setattr(sys, "path", [str(tmp_path / "packages"), *sys.path])
    (tmp_path / "packages").mkdir()
    return tmp_path / "packages" / "mlflow.py"


def closed(folder: RunFolder, names: list[str]) -> tuple[bool, list[str]]:
    """Whether all could be told, and what was said; no process is left."""
    said: list[str] = []
    tracking = Tracking(folder.directory, names, said.append)
    done = tracking.close()
    assert not any(psutil.pid_exists(feed.pid) for feed in tracking._feeds.values())
    return done, said


def test_a_tracker_that_breaks_is_told_of_and_the_others_are_told(folder: RunFolder, package: Path) -> None:
    pytest.importorskip("tensorboard", reason="extra tensorboard is missing")
    package.write_text(BREAKS)
    done, said = closed(folder, ["mlflow", "tensorboard"])
    assert not done
    assert said == [
        f"track: mlflow did not receive all of the run (RuntimeError: no such server); `fedlingua track {folder.directory} --to mlflow` "
        "sends the rest"
    ]
    assert (folder.directory / "tracking" / "tensorboard.json").is_file()


def test_a_tracker_that_hangs_is_not_waited_for(folder: RunFolder, package: Path) -> None:
    package.write_text(HANGS)
    """Also where it does not see the run's end any more; where it does, as in the next test, it ends itself."""
    said: list[str] = []
    tracking = Tracking(folder.directory, ["mlflow"], said.append, 1)
    ends = time.monotonic() + 120
    while "about to hang" not in (folder.directory / "tracking" / "mlflow.log").read_text():
        assert time.monotonic() < ends
        time.sleep(0.05)
    assert not tracking.close()
    assert not any(psutil.pid_exists(feed.pid) for feed in tracking._feeds.values())
    assert "track: the process that feeds mlflow ended with -" in said[0]


def test_a_tracker_that_was_complained_of_before_and_then_hangs_is_told_of_again(folder: RunFolder, package: Path) -> None:
    mark = package.with_name("failed")
    package.write_text(
        f"import pathlib, time\nmark = pathlib.Path({str(mark)!r})\n"
        "if not mark.exists():\n    mark.touch()\n    raise RuntimeError('no such server')\ntime.sleep(600)\n"
    )
    said: list[str] = []
    tracking = Tracking(folder.directory, ["mlflow"], said.append, 1)
    ends = time.monotonic() + 60
    while not said:
        assert time.monotonic() < ends
        time.sleep(0.05)
    assert not tracking.close()
    assert "mlflow cannot be reached (RuntimeError: no such server)" in said[0]
    assert "track: the process that feeds mlflow ended with -14" in said[1]


def test_a_tracker_that_takes_its_process_with_it_is_told_of(folder: RunFolder, package: Path) -> None:
    package.write_text(DIES)
    done, said = closed(folder, ["mlflow"])
    assert not done
    assert "track: the process that feeds mlflow ended with 7" in said[0]


def test_nothing_is_started_where_nothing_is_tracked(tmp_path: Path) -> None:
    assert closed(RunFolder(tmp_path), []) == (True, [])
    assert not list(tmp_path.iterdir())
