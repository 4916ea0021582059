"""The run config: what is accepted, and what each mistake is answered with."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedlingua.config import (
    APP_DIR,
    MAY_CHANGE,
    METHODS,
    Settings,
    default_run_config,
    known_keys,
    parse_override,
    read_experiment,
    read_toml,
    resolve,
    settings_from,
)
from fedlingua.errors import ConfigError


@pytest.fixture
def federation(tmp_path: Path) -> Path:
    """A federation file that is there; nothing here reads it."""
    path = tmp_path / "federation.toml"
    path.write_text("")
    return path


@pytest.fixture
def run_config(federation: Path) -> dict[str, Any]:
    return {**default_run_config(), "federation": str(federation)}


def refusal(run_config: dict[str, Any], **changes: Any) -> str:
    """The message that answers these values; keys are written with underscores here."""
    with pytest.raises(ConfigError) as caught:
        settings_from({**run_config, **{key.replace("_", "-"): value for key, value in changes.items()}})
    return str(caught.value)


def test_every_key_becomes_an_attribute_and_is_written_back(run_config: dict[str, Any]) -> None:
    settings = settings_from(run_config)
    assert settings.flat() == run_config
    assert settings.batch_size == run_config["batch-size"]
    assert known_keys() == list(settings.flat())


def test_an_unknown_key_is_named_with_its_value_the_nearest_and_all_keys(run_config: dict[str, Any]) -> None:
    message = refusal(run_config, round=5)
    assert "round = 5" in message
    assert "did you mean 'rounds'?" in message
    assert all(key in message for key in known_keys())


def test_a_key_with_an_underscore_is_unknown(run_config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"batch_size = 4: there is no such key; did you mean 'batch-size'\?"):
        settings_from({**run_config, "batch_size": 4})


def test_missing_keys_are_named(run_config: dict[str, Any]) -> None:
    del run_config["seed"], run_config["batch-size"]
    with pytest.raises(ConfigError, match="lacks seed, batch-size;"):
        settings_from(run_config)


@pytest.mark.parametrize(
    ("key", "value", "got", "wanted"),
    [
        ("rounds", "5", "str", "int"),
        ("rounds", 5.0, "float", "int"),
        ("rounds", True, "bool", "int"),
        ("seed", False, "bool", "int"),
        ("keep_translations", True, "bool", "int"),
        ("keep_translations", 2.0, "float", "int"),
        ("learning_rate", True, "bool", "float"),
        ("learning_rate", "1e-3", "str", "float"),
        ("whole_steps", 1, "int", "bool"),
        ("whole_steps", "true", "str", "bool"),
        ("method", 3, "int", "str"),
        ("run_dir", 2024, "int", "str"),
        ("data_dir", ["a"], "list", "str"),
    ],
)
def test_a_wrong_type_is_refused(run_config: dict[str, Any], key: str, value: Any, got: str, wanted: str) -> None:
    name = key.replace("_", "-")
    assert f"{name} = {value!r} is of type {got}; wanted {wanted}" in refusal(run_config, **{key: value})


@pytest.mark.parametrize("key", ["learning-rate", "adapter-init-std", "quorum", "deadline-s"])
def test_a_whole_number_is_taken_for_a_float(run_config: dict[str, Any], key: str) -> None:
    value = settings_from({**run_config, key: 1}).flat()[key]
    assert (value, type(value)) == (1.0, float)


@pytest.mark.parametrize(
    ("key", "value", "near", "choices"),
    [
        ("method", "adapter-family", "adapter-families", ", ".join(METHODS)),
        ("aggregation", "fedavg", "fed-avg", "fed-mean, fed-avg"),
        ("cluster_by", "groups", "group", "group, family, given"),
        ("cluster_parts", "encode", "encoder", "both, encoder, decoder"),
        ("tensor_set", "adapter", "adapters", ", adapters, full, controllers, lora"),
        ("adapter_layers", "input", "input-end", "all, input-end, middle, output-end"),
        ("signature_form", "privat", "private", "raw, private"),
        ("best_by", "token", "tokens", "examples, tokens"),
        ("adapter_init", "zeros", "zero", "paper, zero"),
        ("score_split", "tests", "test", "test, dev"),
        ("precision", "fp16", "fp32|bf16", "fp32, bf16"),
        ("device", "CUDA", "", "cpu, cuda"),
    ],
)
def test_a_bad_choice_is_answered_with_the_nearest_and_all_choices(
    run_config: dict[str, Any], key: str, value: str, near: str, choices: str
) -> None:
    message = refusal(run_config, **{key: value})
    assert f"{key.replace('_', '-')} = {value!r} is not known" in message
    assert f"choose one of {choices}" in message
    assert any(f"did you mean {name!r}?" in message for name in near.split("|")) or not near


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_a_choice(run_config: dict[str, Any], method: str) -> None:
    assert settings_from({**run_config, "method": method}).how is METHODS[method]


@pytest.mark.parametrize(
    ("key", "below", "least"),
    [
        ("rounds", 0, 1),
        ("patience", -1, 0),
        ("batch-size", 0, 1),
        ("accumulation", 0, 1),
        ("local-epochs", 0, 1),
        ("learning-rate", -0.001, 0.0),
        ("max-tokens", 3, 4),
        ("adapter-dim", 0, 1),
        ("adapter-init-std", -0.1, 0.0),
        ("beam", 0, 1),
        ("max-decode-tokens", 3, 4),
        ("keep-translations", -1, 0),
        ("deadline-s", 0.0, 0.001),
        ("threads", 0, 1),
        ("seed", -1, 0),
    ],
)
def test_a_number_below_its_least_is_refused_and_the_least_is_taken(
    run_config: dict[str, Any], key: str, below: float, least: float
) -> None:
    assert settings_from({**run_config, key: least}).flat()[key] == least
    with pytest.raises(ConfigError) as caught:
        settings_from({**run_config, key: below})
    assert f"{key} = {below!r} is too small; wanted at least {least:g}" in str(caught.value)


def test_not_a_number_is_no_learning_rate(run_config: dict[str, Any]) -> None:
    assert "learning-rate = nan" in refusal(run_config, learning_rate=math.nan)


@pytest.mark.parametrize("quorum", [0.0, -0.5, 1.01, 2, math.nan])
def test_a_quorum_outside_its_range_is_refused(run_config: dict[str, Any], quorum: float) -> None:
    message = refusal(run_config, quorum=quorum)
    assert f"quorum = {float(quorum)}" in message
    assert "more than 0 and at most 1" in message


def test_a_quorum_of_all_sites_is_taken(run_config: dict[str, Any]) -> None:
    assert settings_from({**run_config, "quorum": 1.0}).quorum == 1.0


@pytest.mark.parametrize("strategy", ["MyStrategy", "a:b:c"])
def test_a_strategy_without_one_colon_is_refused(run_config: dict[str, Any], strategy: str) -> None:
    message = refusal(run_config, strategy=strategy)
    assert f"strategy = {strategy!r}" in message
    assert "'my_file:MyStrategy'" in message


def test_a_strategy_with_a_colon_is_left_to_the_server(run_config: dict[str, Any]) -> None:
    assert settings_from({**run_config, "strategy": "my_file:MyStrategy"}).strategy == "my_file:MyStrategy"


def test_a_federation_file_of_another_machine_is_no_fault_of_the_settings(run_config: dict[str, Any], tmp_path: Path) -> None:
    """A deployed site gets the run config with the server's paths in it, and has no use for them."""
    elsewhere = str(tmp_path / "nowhere" / "federation.toml")
    assert settings_from({**run_config, "federation": elsewhere}).federation == elsewhere


def test_a_relative_path_starts_at_the_app_and_an_absolute_one_stays(tmp_path: Path) -> None:
    assert resolve("experiments/x.toml") == APP_DIR / "experiments/x.toml"
    assert resolve(str(tmp_path)) == tmp_path
    assert resolve("~/x.toml") == Path.home() / "x.toml"
    assert (APP_DIR / "pyproject.toml").is_file()


def test_a_learning_rate_of_zero_takes_the_papers(run_config: dict[str, Any]) -> None:
    def rate(method: str, learning_rate: float) -> float:
        return settings_from({**run_config, "method": method, "learning-rate": learning_rate}).step_learning_rate

    assert rate("adapter-fed", 0.0) == 1e-3
    assert rate("model-fed", 0.0) == 5e-5
    assert rate("model-fed", 0.25) == 0.25


NEEDED = {
    "send-share": "top-k",
    "fixed-threshold": "fixed-g",
    "random-threshold": "random-l",
    "zero-norm": "fixed-l",
    "missing": "dp-g",
    "apf-window": "apf",
    "apf-threshold": "apf",
}
"""Key -> a selection under which it means something."""


@pytest.mark.parametrize("key", sorted(set(MAY_CHANGE) - {"resume"}))
def test_the_hash_ignores_where_and_until_when_a_run_runs(run_config: dict[str, Any], key: str) -> None:
    settings = settings_from(run_config)
    name = key.replace("-", "_")
    assert getattr(settings, name) != changed(settings, name)
    assert replace(settings, **{name: changed(settings, name)}).hash() == settings.hash()


@pytest.mark.parametrize("key", [key for key in known_keys() if key not in MAY_CHANGE])
def test_the_hash_changes_with_every_other_key_where_it_has_an_effect(run_config: dict[str, Any], key: str) -> None:
    settings = replace(settings_from(run_config), **with_effect(key))
    name = key.replace("-", "_")
    assert replace(settings, **{name: changed(settings, name)}).hash() != settings.hash()


@pytest.mark.parametrize(
    "key",
    [key for key in known_keys() if key.startswith(("signature", "controllers", "lora", "meta-", "second-")) or key in NEEDED],
)
def test_the_hash_ignores_what_the_method_does_not_have(run_config: dict[str, Any], key: str) -> None:
    settings = replace(settings_from(run_config), method="adapter-families")
    name = key.replace("-", "_")
    assert replace(settings, **{name: changed(settings, name)}).hash() == settings.hash()


def with_effect(key: str) -> dict[str, Any]:
    """Settings under which a key means something."""
    if key.startswith("signature"):
        return {"method": "adapter-gradients", "signature_form": "private"}
    if key.startswith(("lora", "controllers")):
        return {"tensor_set": key.partition("-")[0]}
    if key.startswith(("meta-", "second-filter")):
        return {"selection": "metasend-g", "meta_estimator": "loss", "second_filter": True}
    return {"selection": NEEDED[key]} if key in NEEDED else {}


def changed(settings: Settings, name: str) -> Any:
    value = getattr(settings, name)
    if name == "method":
        return "adapter-random"
    if isinstance(value, bool):
        return not value
    return f"{value}x" if isinstance(value, str) else value + 1


def test_the_hash_does_not_depend_on_the_order_of_keys(run_config: dict[str, Any]) -> None:
    turned = dict(reversed(run_config.items()))
    assert settings_from(turned).hash() == settings_from(run_config).hash()


def test_overrides_go_before_the_experiment_file_and_that_before_the_defaults(tmp_path: Path, federation: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(f'federation = "{federation}"\nrounds = 3\nseed = 7\n')
    settings = read_experiment(path, {"rounds": 4})
    assert (settings.rounds, settings.seed, settings.beam) == (4, 7, default_run_config()["beam"])


def test_a_mistake_in_an_experiment_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text("sed = 7\n")
    with pytest.raises(ConfigError, match=r"sed = 7: .*did you mean 'seed'\?"):
        read_experiment(path, {})


def test_a_missing_file_is_named_with_the_nearest_beside_it(tmp_path: Path) -> None:
    (tmp_path / "demo.toml").write_text("")
    with pytest.raises(ConfigError) as caught:
        read_experiment(tmp_path / "demos.toml", {})
    assert f"{tmp_path / 'demos.toml'}: there is no such file; did you mean 'demo.toml'?" in str(caught.value)


def test_a_missing_folder_is_named_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        read_toml(tmp_path / "nowhere" / "demo.toml")


@pytest.mark.parametrize(("content", "told"), [(b"rounds = 3\nseed 7\n", "line 2"), (b'name = "\xff"', "utf-8")])
def test_what_is_not_toml_is_named_with_its_place(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "experiment.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_toml(path)
    assert f"{path} is not TOML" in str(caught.value)
    assert told in str(caught.value)


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


def test_an_override_without_an_equals_sign_is_refused() -> None:
    with pytest.raises(ConfigError, match="--set 'rounds': wanted key=value"):
        parse_override("rounds")


@pytest.mark.parametrize("text", ["rounds=[1]", "seed=2024-01-01", "rounds={a=1}"])
def test_an_override_that_is_no_scalar_is_refused_as_a_wrong_type(run_config: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match="is of type"):
        settings_from({**run_config, **dict([parse_override(text)])})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"method": "adapter-gradients", "tensor-set": "lora"}, "takes the gradient of an adapter, and the tensor set is 'lora'"),
        ({"method": "adapter-fed", "cluster-parts": "encoder"}, "method adapter-fed has no clusters; leave it 'both'"),
        ({"method": "model-fed", "adapter-layers": "middle"}, "prunes adapters, and the tensor set is 'full'"),
        ({"signature-adapter": "encoder.fc2"}, "wanted part.layer.place, as in 'encoder.-1.fc2'"),
        ({"signature-form": "private", "signature-dim": 65}, "a private signature has at most 64 numbers"),
        (
            {"signature-form": "private", "signature-noise": 0.0},
            "signature-noise = 0; a private signature needs more",
        ),
        ({"signature-form": "private", "signature-clip": 0.0}, "signature-clip = 0; a private signature needs more than 0"),
        ({"signature-form": "private", "signature-delta": 1.0}, "signature-delta = 1 is no probability"),
        ({"signature-form": "private", "signature-noise": math.inf}, "signature-noise = inf; a private signature needs"),
        ({"method": "adapter-families", "num-clusters": 3}, "method adapter-families takes no number of clusters"),
        ({"method": "adapter-random", "num-clusters": -1}, "give adapter-random a number, or 0"),
        ({"num-clusters": -2}, "num-clusters = -2 is too small; wanted at least -1"),
    ],
)
def test_keys_that_do_not_go_together_are_refused(run_config: dict[str, Any], changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(reason)):
        settings_from({**run_config, **changes})


def test_a_tensor_set_of_its_own_goes_before_the_methods(run_config: dict[str, Any]) -> None:
    settings = settings_from({**run_config, "method": "adapter-families", "tensor-set": "controllers", "learning-rate": 0.0})
    assert (settings.trained_set, settings.step_learning_rate) == ("controllers", 5e-5)
