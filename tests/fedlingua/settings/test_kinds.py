"""Kinds of TOML files, told apart by their keys."""

from pathlib import Path

import pytest

from fedlingua.common.errors import ConfigError
from fedlingua.common.files import APP_DIR, read_toml
from fedlingua.settings.kinds import EXPERIMENT, FEDERATION, RECIPE, SERVER, SITE, SUITE, kind_of, refuse_other_kind


def test_the_files_of_this_project_are_what_they_are() -> None:
    folder = APP_DIR / "experiments"
    assert {kind_of(read_toml(file)) for file in (folder / "federations").glob("*.toml")} == {FEDERATION}
    assert {kind_of(read_toml(file)) for file in (folder / "backbones").glob("*.toml")} == {RECIPE}
    assert {kind_of(read_toml(file)) for file in (folder / "fed_mnmt").glob("table*.toml")} == {SUITE}
    assert {kind_of(read_toml(folder / name)) for name in ("demo.toml", "deployment/demo.toml")} == {EXPERIMENT}
    assert kind_of({"site": [{}], "server": {}}) == SITE
    assert kind_of({"fleet": "x:1"}) == SERVER


def test_what_tells_nothing_is_no_kind() -> None:
    for content in ({}, {"task": "masked-language"}, {"name": "x"}, {"rounds": 2, "round": 3}):
        assert kind_of(content) is None


def test_a_file_of_another_kind_is_called_by_its_name_and_one_of_none_is_let_be() -> None:
    with pytest.raises(ConfigError, match=r"x.toml is a suite; wanted a recipe; run it with `fedlingua suite x.toml`"):
        refuse_other_kind(Path("x.toml"), {"row": []}, RECIPE)
    refuse_other_kind(Path("x.toml"), {"row": []}, SUITE)
    refuse_other_kind(Path("x.toml"), {"surprise": 1}, RECIPE)
