"""docs/files.md shows every key of every file, as these are read."""

import dataclasses
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fedlingua.consent.site_file import read_site_file
from fedlingua.corpora.clean import CleaningRules
from fedlingua.corpora.formats import PAIR_FORMATS, TEXT_FORMATS, options_of
from fedlingua.corpora.recipe import BaseShare
from fedlingua.corpora.sites import read_federation
from fedlingua.corpora.split import SplitRules
from fedlingua.desk.deployment.server_file import read_server_file
from fedlingua.desk.pretraining.recipe import read_recipe
from fedlingua.desk.pretraining.settings import ModelSize, PretrainSettings, Watching
from fedlingua_lab.suites.read import TABLES

PAGE = (Path(__file__).parents[1] / "docs/files.md").read_text(encoding="utf-8")
FEDERATION, _, RECIPE, SUITE, SERVER, SITE = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(
    ("text", "name", "kind"),
    [
        (FEDERATION, "split", SplitRules),
        (FEDERATION, "cleaning", CleaningRules),
        (RECIPE, "base", BaseShare),
        (RECIPE, "model", ModelSize),
        (RECIPE, "training", PretrainSettings),
        (RECIPE, "watching", Watching),
    ],
)
def test_a_table_has_every_key_at_its_default(text: str, name: str, kind: Any) -> None:
    defaults = {field.name.replace("_", "-"): field.default for field in dataclasses.fields(kind)}
    shown = tomllib.loads(text)[name]
    assert {key: value for key, value in shown.items() if key != "max-train"} == defaults  # which is of TextRules


def test_the_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "federation.toml").write_text(FEDERATION, encoding="utf-8")
    assert read_federation(tmp_path / "federation.toml", tmp_path).site_names == ["zh-en"]
    (tmp_path / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    assert read_recipe(tmp_path / "recipe.toml", tmp_path).both_ways
    (tmp_path / "server.toml").write_text(SERVER, encoding="utf-8")
    assert read_server_file(tmp_path / "server.toml").hosts == ("server.example.org",)
    (tmp_path / "site.toml").write_text(SITE, encoding="utf-8")
    assert read_site_file(tmp_path / "site.toml").device == ""
    assert set(tomllib.loads(SUITE)) - {"variant"} == TABLES


def test_every_form_of_text_and_every_option_of_one_is_shown() -> None:
    missing = [
        name
        for formats in (PAIR_FORMATS, TEXT_FORMATS)
        for name in (*formats, *options_of(formats))
        if not re.search(rf"\b{name}\b", PAGE)
    ]
    assert missing == []
