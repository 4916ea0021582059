"""Where a simulation runs."""

from pathlib import Path

import pytest

from fedlingua.common.errors import ConfigError
from fedlingua.common.files import APP_DIR
from fedlingua.desk.cli import place
from fedlingua.desk.cli.place import ready_profile
from fedlingua.desk.cluster.check import Machine


def test_without_a_cluster_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "check_cluster", lambda *asked: pytest.fail("asked"))
    assert ready_profile("simulation", "", ["", "/data"], jobs=4).ray_address == ""


def test_every_machine_has_to_see_the_app_the_working_directory_and_the_data(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def check(address: str, cpus: int, gpus: float, folders: list[Path]) -> list[Machine]:
        asked.append((address, cpus, gpus, folders))
        return [Machine("one", 2, {}, ()), Machine("two", 4, {}, ())]

    monkeypatch.setattr(place, "check_cluster", check)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    found = ready_profile("simulation-gpu", "10.0.0.5:6379", [tmp_path / "data", tmp_path / "not there", ""])
    ((address, cpus, gpus, folders),) = asked
    assert (found.ray_address, address, cpus, gpus) == ("10.0.0.5:6379", "10.0.0.5:6379", 1, 1.0)
    assert {APP_DIR, tmp_path, tmp_path / "data"} <= set(folders)
    assert tmp_path / "not there" not in folders
    assert "2 machines, 6 clients at once" in capsys.readouterr().out


def test_runs_side_by_side_are_refused_on_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "check_cluster", lambda *asked: pytest.fail("asked"))
    with pytest.raises(ConfigError, match=r"--jobs 2: a run takes all of the Ray cluster a:1; leave --jobs out"):
        ready_profile("simulation", "a:1", [], jobs=2)
