"""The table of options: what is made of it, and that its choices are what is implemented."""

import dataclasses
import tomllib
from typing import Any

import pytest
from flwr.common.config import flatten_dict, fuse_dicts, parse_config_args, validate_config

from docs.make.options import PAGE, PROJECT, meanings, page, with_defaults
from fedlingua.backbones.pruning import THIRDS
from fedlingua.exchange.tensor_sets import TENSOR_SETS
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Settings
from fedlingua.settings.experiment import default_run_config
from fedlingua.settings.table import KEYS, MAY_CHANGE, OPTIONS, SECTIONS
from strategies.aggregation.mean import WEIGHTS
from strategies.methods.server_optimizer import OPTIMIZERS, SCHEDULES


def test_pyproject_and_the_reference_page_are_made_of_the_table() -> None:
    """`make options` writes both."""
    project = PROJECT.read_text(encoding="utf-8")
    assert with_defaults(project) == project
    assert PAGE.read_text(encoding="utf-8") == page()


def test_flower_reads_the_same_defaults_and_one_group_beside_another() -> None:
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))
    assert validate_config(project)[0]
    defaults = flatten_dict(project["tool"]["flwr"]["app"]["config"])
    assert defaults == default_run_config()
    given = parse_config_args(["adapter.dim=64 send.rule='apf' best-by=\"last\""])
    settings = settings_from(fuse_dicts(defaults, given))
    assert (settings.adapter_dim, settings.best_by, settings.selection) == (64, "last", "apf")


def test_every_option_says_what_it_means_and_fits_its_own_type_choices_and_bounds() -> None:
    assert all(meaning.endswith(".") for meaning in meanings().values())
    for option in OPTIONS.values():
        assert type(option.default) is option.value_type, option.key
    settings_from(default_run_config())


def test_an_attribute_stands_once_and_is_a_setting() -> None:
    assert len(KEYS) == len(OPTIONS) == sum(len(dataclasses.fields(section)) for section in SECTIONS)
    assert set(KEYS) == {field.name for field in dataclasses.fields(Settings)}


def test_an_option_that_a_resumed_run_may_change_is_no_part_of_the_hash() -> None:
    settings = settings_from(default_run_config())
    assert not [key for key in MAY_CHANGE if OPTIONS[key].has_effect(settings)]


@pytest.mark.parametrize(
    ("key", "implemented"),
    [
        ("tensor-set", TENSOR_SETS),
        ("adapter.layers", ("all", *THIRDS)),
        ("aggregation", {*WEIGHTS, "norm-clip"}),
        ("server.optimizer", {"none", *OPTIMIZERS}),
        ("server.schedule", SCHEDULES),
    ],
)
def test_choices_are_what_is_implemented(key: str, implemented: Any) -> None:
    assert {*OPTIONS[key].choices} - {""} == set(implemented)
