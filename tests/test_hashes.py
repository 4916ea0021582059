"""The files under hashes/, from which the image and CI install: of the pinned versions, complete, and from any index."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINNED = {
    canonicalize_name(line.partition("==")[0]): line.partition("==")[2] for line in (ROOT / "constraints.txt").read_text().split()
}


def hashed(name: str) -> dict[str, tuple[str, list[str]]]:
    """Package -> version and hashes, of hashes/NAME.txt."""
    entries = re.split(r"\n(?=\S)", (ROOT / "hashes" / f"{name}.txt").read_text().strip())
    split = [
        (entry.partition("==")[0], entry.split()[0].partition("==")[2], re.findall(r"sha256:(\w+)", entry)) for entry in entries
    ]
    return {canonicalize_name(package): (version, hashes) for package, version, hashes in split}


@pytest.mark.parametrize("name", ["torch", "run", "dev", "cuda"])
def test_each_file_has_hashes_alone_of_the_versions_that_are_pinned(name: str) -> None:
    for package, (version, hashes) in hashed(name).items():
        assert version == PINNED.get(package, version), f"{package}: run `make hashes`"
        assert hashes
        assert all(re.fullmatch("[0-9a-f]{64}", each) for each in hashes)
    assert not re.search(r"://|--index|--find", (ROOT / "hashes" / f"{name}.txt").read_text())


def test_what_the_project_and_its_tests_need_is_there() -> None:
    run = hashed("run").keys() | hashed("torch").keys()
    extras = PROJECT["optional-dependencies"]
    asked = [
        *extras["dev"],
        *extras["docs"],
        *(each for name in ("tensorboard", "ctranslate2", "notebooks", "bitsandbytes") for each in extras[name]),
    ]
    assert {canonicalize_name(Requirement(each).name) for each in PROJECT["dependencies"]} <= run
    assert {canonicalize_name(Requirement(each).name) for each in asked} - {"fedlingua"} <= run | hashed("dev").keys()
    assert {"hatchling", "editables"} <= run  # what installs the checkout itself, without fetching anything
