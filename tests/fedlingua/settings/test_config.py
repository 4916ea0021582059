"""The settings: written back as they came, what the method decides, and what their hash holds."""

from dataclasses import replace
from typing import Any

import pytest

from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Settings
from fedlingua.settings.table import KEYS, MAY_CHANGE, OPTIONS


def test_every_key_becomes_an_attribute_and_is_written_back(run_config: dict[str, Any]) -> None:
    settings = settings_from(run_config)
    assert settings.flat() == run_config
    assert settings.batch_size == run_config["batch-size"]
    assert list(settings.flat()) == list(OPTIONS)


def test_a_learning_rate_of_zero_takes_the_papers(run_config: dict[str, Any]) -> None:
    def rate(method: str, learning_rate: float) -> float:
        return settings_from({**run_config, "method": method, "learning-rate": learning_rate}).step_learning_rate

    assert rate("adapter-fed", 0.0) == 1e-3
    assert rate("model-fed", 0.0) == 5e-5
    assert rate("model-fed", 0.25) == 0.25


def test_a_tensor_set_of_its_own_goes_before_the_methods(run_config: dict[str, Any]) -> None:
    settings = settings_from({**run_config, "method": "adapter-families", "tensor-set": "controllers", "learning-rate": 0.0})
    assert (settings.trained_set, settings.step_learning_rate) == ("controllers", 5e-5)


NEEDED = {
    "send_share": "top-k",
    "fixed_threshold": "fixed-g",
    "random_threshold": "random-l",
    "missing": "dp-g",
    "apf_window": "apf",
    "apf_threshold": "apf",
}
"""Attribute -> a rule of sending under which it means something."""


@pytest.mark.parametrize("name", sorted({OPTIONS[key].attribute for key in MAY_CHANGE} - {"resume"}))
def test_the_hash_ignores_where_and_until_when_a_run_runs(run_config: dict[str, Any], name: str) -> None:
    settings = settings_from(run_config)
    assert getattr(settings, name) != changed(settings, name)
    assert replace(settings, **{name: changed(settings, name)}).hash() == settings.hash()


@pytest.mark.parametrize("name", [name for name, key in KEYS.items() if key not in MAY_CHANGE])
def test_the_hash_changes_with_every_other_key_where_it_has_an_effect(run_config: dict[str, Any], name: str) -> None:
    settings = replace(settings_from(run_config), **with_effect(name))
    assert replace(settings, **{name: changed(settings, name)}).hash() != settings.hash()


@pytest.mark.parametrize(
    "name",
    [name for name in KEYS if name.startswith(("signature", "controllers", "lora", "meta_", "second_")) or name in NEEDED],
)
def test_the_hash_ignores_what_the_method_does_not_have(run_config: dict[str, Any], name: str) -> None:
    settings = replace(settings_from(run_config), method="adapter-families")
    assert replace(settings, **{name: changed(settings, name)}).hash() == settings.hash()


def with_effect(name: str) -> dict[str, Any]:
    """Settings under which an option means something."""
    if name.startswith("signature"):
        return {"method": "adapter-gradients", "signature_form": "private"}
    if name.startswith(("lora", "controllers")):
        return {"tensor_set": name.partition("_")[0]}
    if name.startswith(("meta_", "second_filter")):
        return {"selection": "metasend-g", "meta_estimator": "loss", "second_filter": True}
    if name.startswith("server_"):
        return {"server_optimizer": "sgd" if name == "server_momentum" else "adam", "server_schedule": "linear"}
    if name == "clip_update_norm":
        return {"aggregation": "norm-clip"}
    if name == "max_site_share":
        return {"aggregation": "fed-avg"}
    if name == "sampling_temperature":
        return {"aggregation": "fed-avg"}
    if name == "sample_replacement":
        return {"sample_least": 5}
    if name.startswith("dp_"):
        return {"dp_epsilon": 8.0}
    if name in ("privacy_min_cluster", "privacy_scores"):
        return {"privacy_sum": "secure"}
    if name == "async_age_exponent":
        return {"async_buffer": 2}
    if name == "mask_share":
        return {"task": "masked-language"}
    return {"selection": NEEDED[name]} if name in NEEDED else {}


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


@pytest.mark.parametrize(
    ("name", "changes", "matters"),
    [
        ("sampling_temperature", {"aggregation": "fed-avg"}, True),
        ("sampling_temperature", {"method": "centralized"}, True),
        ("sampling_temperature", {"aggregation": "fed-mean"}, False),
        ("sample_replacement", {"sample_share": 0.5}, True),
        ("sample_replacement", {}, False),
        ("optimizer_epsilon", {"optimizer": "adamw"}, True),
        ("optimizer_epsilon", {"optimizer": "sgd"}, False),
        ("batch_size", {"tokens_per_batch": 500}, False),
        ("whole_steps", {"tokens_per_batch": 500}, False),
        ("group_by_length", {}, True),
        ("group_by_length", {"tokens_per_batch": 500}, False),
        ("accumulation", {"tokens_per_batch": 500}, True),
        ("mask_share", {"task": "masked-language"}, True),
        ("mask_share", {"task": "translation"}, False),
        ("beam", {"task": "translation"}, True),
        ("beam", {"task": "masked-language"}, False),
    ],
)
def test_the_hash_follows_a_key_only_where_it_has_an_effect(
    run_config: dict[str, Any], name: str, changes: dict[str, Any], matters: bool
) -> None:
    settings = replace(settings_from(run_config), **changes)
    assert (replace(settings, **{name: changed(settings, name)}).hash() != settings.hash()) == matters


def test_an_option_that_is_off_is_not_part_of_the_hash(run_config: dict[str, Any]) -> None:
    """So a new one leaves the hashes of stored runs and sites' approvals as they are. A changed default changes this number."""
    assert settings_from(run_config).hash() == "b5e3a0714805ede2"
    assert settings_from({**run_config, "keep.ensemble": False}).hash() == "53e5fdc9a5343a6d"


@pytest.mark.parametrize(
    ("adapters", "parts", "named"),
    [
        ("encoder.0.fc2, decoder.-1.fc2", "both", {"encoder": "encoder.0.fc2", "decoder": "decoder.-1.fc2"}),
        ("decoder.-1.fc2,encoder.0.fc2", "both", {"encoder": "encoder.0.fc2", "decoder": "decoder.-1.fc2"}),
        ("encoder.0.fc2,decoder.-1.fc2", "encoder", {"encoder": "encoder.0.fc2"}),
        ("decoder.-1.encoder_attn", "both", {"signature": "decoder.-1.encoder_attn"}),
        ("decoder.-1.encoder_attn", "encoder", {"signature": "decoder.-1.encoder_attn"}),
    ],
)
def test_each_part_that_is_clustered_has_an_adapter_or_one_is_both_parts(
    run_config: dict[str, Any], adapters: str, parts: str, named: dict[str, str]
) -> None:
    changes = {"method": "adapter-gradients", "signature.adapter": adapters, "cluster.parts": parts}
    assert settings_from({**run_config, **changes}).signature_adapters == named


def test_the_hash_of_what_is_trained_alone_is_the_same_in_every_method_that_trains_the_same(run_config: dict[str, Any]) -> None:
    def hashed(method: str, **other: Any) -> str:
        return settings_from({**run_config, "keep.choose": True, "method": method, **other}).hash_of_alone()

    same = hashed("adapter-fed")
    assert (
        hashed("adapter-families", **{"cluster.parts": "encoder", "keep.by": "loss", "keep.ensemble": False, "beam": 3}) == same
    )
    assert hashed("adapter-fed", **{"server.optimizer": "adam"}) == same
    assert hashed("model-fed") != same
    assert hashed("model-fed", **{"tensor-set": "adapters"}) == same
    for key, value in {
        "seed": 9,
        "learning-rate": 0.5,
        "batch-size": 3,
        "keep.rates": "0.5",
        "rounds": 9,
        "backbone": "other",
    }.items():
        assert hashed("adapter-fed", **{key: value}) != same


@pytest.mark.parametrize(
    ("keys", "passes"),
    [
        ({"sample.share": 0.25, "sample.replacement": False, "rounds": 9}, 3),
        ({"sample.share": 0.25, "sample.replacement": False, "rounds": 9, "local-epochs": 2}, 5),
        ({"sample.share": 0.25, "sample.replacement": True, "rounds": 9}, 9),
        ({"sample.share": 0.25, "sample.least": 5, "sample.replacement": False, "rounds": 9}, 9),
        ({"sample.share": 0.2, "sample.replacement": False, "rounds": 5, "local-epochs": 3}, 3),
        ({"rounds": 9}, 9),
    ],
)
def test_rounds_that_draw_parts_of_the_text_make_so_many_passes(
    run_config: dict[str, Any], keys: dict[str, Any], passes: int
) -> None:
    assert settings_from({**run_config, **keys}).passes_of_rounds == passes
