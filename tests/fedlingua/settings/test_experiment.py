"""Defaults, an experiment file over them, --set over both."""

from pathlib import Path
from typing import Any

import pytest

from fedlingua.common.errors import ConfigError
from fedlingua.desk.experiment import given_settings, parse_override, read_experiment
from fedlingua.settings.checks import settings_from
from fedlingua.settings.experiment import config_of_run, default_run_config


def test_overrides_go_before_the_experiment_file_and_that_before_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text("rounds = 3\nseed = 7\n")
    settings = read_experiment(path, {"rounds": 4})
    assert (settings.rounds, settings.seed, settings.beam) == (4, 7, default_run_config()["beam"])


def test_a_mistake_in_an_experiment_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text("sed = 7\n")
    with pytest.raises(ConfigError, match=r"sed = 7: .*did you mean 'seed'\?"):
        read_experiment(path, {})


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("rounds=5", "rounds", 5),
        (" rounds = 5 ", "rounds", 5),
        ("learning-rate=1e-3", "learning-rate", 1e-3),
        ("whole-steps=false", "whole-steps", False),
        ("method=model-fed", "method", "model-fed"),
        ('backbone="demo"', "backbone", "demo"),
        ("strategy=my_file:MyStrategy", "strategy", "my_file:MyStrategy"),
        ("data-dir=/a/b=c", "data-dir", "/a/b=c"),
        ("run-dir=", "run-dir", ""),
    ],
)
def test_an_override_is_a_toml_scalar_or_else_a_string(text: str, key: str, value: Any) -> None:
    read = parse_override(text)
    assert read == (key, value)
    assert type(read[1]) is type(value)


@pytest.mark.parametrize(
    ("key", "value"),
    [("send.fixed-threshold", "0.3"), ("keep.rates", "1"), ("backbone-revision", "1234567"), ("run-dir", "true")],
)
def test_a_text_that_reads_as_a_number_stays_as_it_is_written(key: str, value: str) -> None:
    assert given_settings([f"{key} = {value} "]) == given_settings([f'{key}="{value}"']) == {key: value}


def test_an_override_without_an_equals_sign_or_a_key_is_refused() -> None:
    with pytest.raises(ConfigError, match="--set 'rounds': wanted key=value, for example --set rounds=5"):
        parse_override("rounds")
    with pytest.raises(ConfigError, match=r"--option ' =5': wanted key=value, for example --option columns=\[1,0\]"):
        parse_override(" =5", "--option", "columns=[1,0]")


@pytest.mark.parametrize("text", ["rounds=[1]", "seed=2024-01-01", "rounds={a=1}"])
def test_an_override_that_is_no_scalar_is_refused_as_a_wrong_type(run_config: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match="is of type"):
        settings_from({**run_config, **dict([parse_override(text)])})


def test_a_run_of_before_a_key_has_its_default() -> None:
    before = {"cluster.least": 1, "send.code": "none", "robust.max-share": 1.0}
    before |= {"keep.choose": False, "keep.ensemble": False, "group-by-length": False}
    assert config_of_run({"rounds": 3}) == {**default_run_config(), **before, "rounds": 3}
    assert config_of_run({"keep.ensemble": True, **before})["keep.choose"] is False
