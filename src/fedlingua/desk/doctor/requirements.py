"""Compare installed packages with the ranges of pyproject.toml and the versions in constraints.txt.

packaging reads and compares requirements, importlib.metadata finds versions. `pip check` does less: it compares packages with the
requirements of those that were installed, and knows neither the checkout's files, nor its pins, nor the purpose of an extra.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Self

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from fedlingua.common.errors import ConfigError
from fedlingua.common.files import CHECKOUT, read_toml
from fedlingua.desk.check_result import Remark

SHOWN = ("flwr", "ray", "torch", "transformers", "peft", "datasets", "sacrebleu", "sentencepiece", "numpy")
"""Packages that decide most of what a run does; others are named only if something is wrong with them."""
NEEDED_FOR = {
    "ja": "BLEU of translations into Japanese",
    "tensorboard": "track = 'tensorboard'",
    "mlflow": "track = 'mlflow'",
    "trackio": "track = 'trackio'",
    "ctranslate2": "models in CTranslate2's format",
    "bitsandbytes": "frozen-bits",
    "notebooks": "the notebooks of docs/notebooks",
    "dev": "tests and lint",
    "docs": "the documentation as a site",
}
INSTALL = f"pip install -c {CHECKOUT / 'constraints.txt'} 'fedlingua{{extra}}'"
"""For an installed wheel and for an editable checkout alike, whatever the current folder; the index need not have fedlingua."""


@dataclass(frozen=True)
class Wanted:
    """The project's requirements. pins: name -> exact version, if there is a constraints.txt."""

    python: SpecifierSet
    packages: tuple[Requirement, ...]
    extras: Mapping[str, tuple[Requirement, ...]]
    pins: Mapping[str, str]

    @classmethod
    def of_checkout(cls, app: Path) -> Self:
        """Read a checkout's files or, if the project was installed without them, its package's metadata."""
        file, pinned = app / "pyproject.toml", app / "constraints.txt"
        if not file.is_file():
            try:
                about = metadata.metadata("fedlingua")
            except metadata.PackageNotFoundError as error:
                raise ConfigError(
                    "fedlingua is neither installed nor run from its checkout; pip install -e . in the checkout"
                ) from error
            required = [Requirement(text) for text in metadata.requires("fedlingua") or []]
            extras = {extra: tuple(_of_extra(required, extra)) for extra in about.get_all("Provides-Extra") or []}
            packages = tuple(each for each in required if each.marker is None or each.marker.evaluate({"extra": ""}))
            return cls(SpecifierSet(about["Requires-Python"]), packages, extras, {})
        project: dict[str, Any] = read_toml(file)["project"]
        extras = {name: tuple(map(Requirement, each)) for name, each in project.get("optional-dependencies", {}).items()}
        lines = pinned.read_text(encoding="utf-8").split() if pinned.is_file() else []
        pins = {str(canonicalize_name(name)): pin for name, _, pin in (line.partition("==") for line in lines) if pin}
        return cls(SpecifierSet(project["requires-python"]), tuple(map(Requirement, project["dependencies"])), extras, pins)


def check_python(wanted: Wanted) -> str:
    """Check that the project supports the running Python; raise ConfigError if it does not."""
    version = ".".join(map(str, sys.version_info[:3]))
    if not wanted.python.contains(version, prereleases=True):
        raise ConfigError(f"{version}; wanted {wanted.python}: recreate .venv with another, as in `make PYTHON=python3.11`")
    return f"{version}, {sys.executable}"


def check_packages(wanted: Wanted) -> str:
    """Check the packages that the project needs; raise ConfigError, which names each that is missing or out of its range."""
    wrong = [problem for each in wanted.packages for problem in unmet(each)]
    if wrong:
        raise ConfigError(f"{'; '.join(wrong)}; {INSTALL.format(extra='')}")
    shown = ", ".join(f"{name} {metadata.version(name)}" for name in SHOWN if _installed(name))
    return f"all {len(wanted.packages)} in their ranges: {shown}"


def check_pins(wanted: Wanted) -> str:
    """Check whether the project was tested with these versions; others in the ranges may change the last bits of a result."""
    if not wanted.pins:
        return Remark("there is no constraints.txt here, so it is unknown whether these versions were tested together")
    names = {canonicalize_name(each.name) for each in wanted.packages} | {canonicalize_name(name) for name in SHOWN}
    other = [
        f"{name} {version} (tested: {wanted.pins[name]})"
        for name in sorted(names & set(wanted.pins))
        if (version := _installed(name)) and Version(version).public != wanted.pins[name]
    ]
    if other:
        return Remark(f"{', '.join(other)}: other versions than those of constraints.txt; results may differ in their last bits")
    return "those of constraints.txt"


def check_held_back(app: Path) -> str:
    """Check for packages older than a known advisory requires, by pyproject.toml's table, and say what holds them back."""
    file = app / "pyproject.toml"
    held = read_toml(file)["tool"]["fedlingua"]["held-back"] if file.is_file() else {}
    known = [(name, _installed(name), about["wanted"], about["why"]) for name, about in held.items()]
    old = [f"{name} {has} is below {new}: {why}" for name, has, new, why in known if has and Version(has) < Version(new)]
    return Remark("; ".join(old)) if old else "no package is older than a known advisory asks"


def check_extra(wanted: Wanted, extra: str) -> str:
    """Check whether an extra is installed; if not, a remark says what it is for."""
    asked = [each for each in wanted.extras[extra] if each.name != "fedlingua"]
    missing = [problem for each in asked for problem in unmet(each)]
    if missing:
        use = f"; for {NEEDED_FOR[extra]}" if extra in NEEDED_FOR else ""
        return Remark(f"{', '.join(missing)}{use}: {INSTALL.format(extra=f'[{extra}]')}")
    return ", ".join(f"{each.name} {_installed(each.name)}" for each in asked)


def unmet(wanted: Requirement) -> Iterator[str]:
    """Yield the parts of a requirement, its own extras included, that are missing or out of range."""
    if wanted.marker and not wanted.marker.evaluate({"extra": ""}):
        return
    version = _installed(wanted.name)
    if version is None:
        yield f"{wanted.name} is not installed"
        return
    if not wanted.specifier.contains(version, prereleases=True):
        yield f"{wanted.name} {version} is installed, wanted {wanted.specifier}"
    for extra in wanted.extras:
        for each in _of_extra(map(Requirement, metadata.requires(wanted.name) or []), extra):
            yield from unmet(each)


def _of_extra(required: Iterable[Requirement], extra: str) -> Iterator[Requirement]:
    """Yield the requirements that only an extra adds, without their markers."""
    for each in required:
        if each.marker and each.marker.evaluate({"extra": extra}) and not each.marker.evaluate({"extra": ""}):
            yield Requirement(f"{each.name}{each.specifier}")


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
