"""What is installed against what is asked for."""

import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from fedlingua.common.errors import ConfigError
from fedlingua.common.files import APP_DIR, read_toml
from fedlingua.desk.check_result import Remark
from fedlingua.desk.doctor import requirements
from fedlingua.desk.doctor.requirements import (
    Wanted,
    check_extra,
    check_held_back,
    check_packages,
    check_pins,
    check_python,
    unmet,
)


def wanting(*packages: str, python: str = ">=3", pins: dict[str, str] | None = None, **extras: list[str]) -> Wanted:
    named = {name: tuple(map(Requirement, each)) for name, each in extras.items()}
    return Wanted(SpecifierSet(python), tuple(map(Requirement, packages)), named, pins or {})


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Name -> version of what is installed, instead of what is."""
    packages = {"torch": "2.13.0+cpu", "flwr": "1.39.0", "ray": "2.55.1"}

    def version(name: str) -> str:
        if name not in packages:
            raise requirements.metadata.PackageNotFoundError(name)
        return packages[name]

    monkeypatch.setattr(requirements.metadata, "version", version)
    monkeypatch.setattr(requirements.metadata, "requires", lambda name: ['ray==2.55.1; extra == "simulation"', "grpcio"])
    return packages


def test_this_environment_is_what_this_checkout_asks_for() -> None:
    wanted = Wanted.of_checkout(APP_DIR)
    assert ">=3.11" in str(wanted.python)
    assert {"flwr", "torch"} <= {each.name for each in wanted.packages}
    assert {"ja", "tensorboard", "mlflow", "trackio"} <= set(wanted.extras)
    assert wanted.pins["flwr"] == "1.39.0"
    assert wanted.pins["huggingface-hub"]
    assert check_python(wanted).endswith(sys.executable)
    assert f"all {len(wanted.packages)} in their ranges: flwr " in check_packages(wanted)


def test_an_installed_package_without_its_checkout_says_what_it_wants(tmp_path: Path) -> None:
    here, there = Wanted.of_checkout(APP_DIR), Wanted.of_checkout(tmp_path)
    # An editable install says what it wanted when it was made.
    assert {"flwr", "torch"} <= {each.name for each in there.packages} <= {each.name for each in here.packages}
    assert {"ja", "dev"} <= set(there.extras)
    assert not there.pins
    assert isinstance(check_pins(there), Remark)


def test_another_python_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"3\.\d+\.\d+; wanted <3: recreate \.venv"):
        check_python(wanting(python="<3"))


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ("torch>=2.13", []),
        ("torch>=2.14", ["torch 2.13.0+cpu is installed, wanted >=2.14"]),
        ("peft", ["peft is not installed"]),
        ("flwr[simulation]>=1.39,<1.43", []),
        ("torch<2; python_version < '3'", []),
    ],
)
def test_what_is_unmet(installed: dict[str, str], wanted: str, told: list[str]) -> None:
    assert list(unmet(Requirement(wanted))) == told


def test_an_extra_of_a_requirement_is_part_of_it(installed: dict[str, str]) -> None:
    installed["ray"] = "2.0"
    assert list(unmet(Requirement("flwr[simulation]"))) == ["ray 2.0 is installed, wanted ==2.55.1"]
    with pytest.raises(ConfigError, match=r"ray 2\.0 is installed.*pip install -c \S+/constraints\.txt 'fedlingua'"):
        check_packages(wanting("flwr[simulation]"))


def test_versions_in_range_that_nobody_tested_are_a_note(installed: dict[str, str]) -> None:
    assert not isinstance(check_pins(wanting("torch", pins={"torch": "2.13.0", "peft": "1"})), Remark)
    told = check_pins(wanting("torch", pins={"torch": "2.14.0"}))
    assert isinstance(told, Remark)
    assert "torch 2.13.0+cpu (tested: 2.14.0)" in told


def test_an_extra_that_is_missing_is_a_note_with_what_it_is_for(installed: dict[str, str]) -> None:
    told = check_extra(wanting(mlflow=["mlflow-skinny>=3", "torch"]), "mlflow")
    assert isinstance(told, Remark)
    assert told.startswith("mlflow-skinny is not installed; for track = 'mlflow': pip install -c ")
    assert told.endswith("/constraints.txt 'fedlingua[mlflow]'")
    assert check_extra(wanting(mlflow=["torch", "ray"]), "mlflow") == "torch 2.13.0+cpu, ray 2.55.1"


def test_every_extra_says_what_it_is_for() -> None:
    assert set(Wanted.of_checkout(APP_DIR).extras) <= set(requirements.NEEDED_FOR)


def test_what_is_held_below_an_advisory_is_told_with_what_holds_it(installed: dict[str, str], tmp_path: Path) -> None:
    table = '[tool.fedlingua.held-back]\nray = { wanted = "2.56.0", why = "GHSA-x; flwr holds it" }\n'
    table += 'flwr = { wanted = "1.39.0", why = "-" }\nabsent = { wanted = "9", why = "-" }\n'
    (tmp_path / "pyproject.toml").write_text(table)
    told = check_held_back(tmp_path)
    assert isinstance(told, Remark)
    assert told == "ray 2.55.1 is below 2.56.0: GHSA-x; flwr holds it"
    installed["ray"] = "2.56.0"
    assert check_held_back(tmp_path) == "no package is older than a known advisory asks"
    assert not isinstance(check_held_back(tmp_path / "no checkout"), Remark)


def test_the_table_of_what_is_held_back_agrees_with_the_constraints() -> None:
    """What is no longer below its version there has to leave the table."""
    held = read_toml(APP_DIR / "pyproject.toml")["tool"]["fedlingua"]["held-back"]
    lines = (APP_DIR / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.partition("=")[0].rstrip("<>").lower(): line.rpartition("=")[2] for line in lines}
    assert "cryptography" in held
    assert Version(pinned["certifi"]) >= Version("2026.10.19")  # without the authority that was compromised
    for name, one in held.items():
        assert set(one) == {"wanted", "why"}
        assert Version(pinned[name]) < Version(one["wanted"]), name
    asked = [Requirement(each) for each in metadata.requires("flwr") or []]
    if metadata.version("flwr") == pinned["flwr"]:
        bounds = next(each.specifier for each in asked if each.name == "cryptography")
        assert bounds.contains(pinned["cryptography"])
        assert not bounds.contains(held["cryptography"]["wanted"]), "it can be had"
