"""Which trackers a run asks for, and what is said where one is not there."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fedlingua.common.errors import ConfigError
from fedlingua.desk import check_settings
from fedlingua.desk.check_settings import check_trackers
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Scalar
from fedlingua.settings.trackers import tracker_names


def test_a_list_with_commas() -> None:
    assert tracker_names("") == []
    assert tracker_names(" mlflow, tensorboard,mlflow,") == ["mlflow", "tensorboard"]


def test_an_unknown_tracker_is_refused_with_the_settings(run_config: dict[str, Scalar]) -> None:
    with pytest.raises(ConfigError, match=r"no tracker 'tensorbord'.*tensorboard"):
        settings_from({**run_config, "track": "mlflow,tensorbord"})


def test_a_missing_package_is_told_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ConfigError, match=r"track = 'mlflow' needs the package mlflow.*pip install .*\[mlflow\]"):
        check_trackers(["mlflow"])


def test_without_the_lab_a_run_that_is_tracked_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_settings, "plugged", lambda name: None)
    check_trackers([])
    with pytest.raises(ConfigError, match="track needs fedlingua_lab, which is not installed here"):
        check_trackers(["mlflow"])


def test_a_tracker_is_not_imported_where_it_is_only_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mlflow.py").write_text("raise RuntimeError('it would report to its makers')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mlflow", raising=False)
    check_trackers(["mlflow"])
    assert "mlflow" not in sys.modules


def test_what_is_tracked_changes_no_runs_hash(run_config: dict[str, Scalar]) -> None:
    settings = settings_from(run_config)
    assert replace(settings, track="tensorboard").hash() == settings.hash()
