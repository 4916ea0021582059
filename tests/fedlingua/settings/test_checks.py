"""The run config: what is accepted, and what each mistake is answered with."""

import math
import re
from pathlib import Path
from typing import Any

import pytest

from fedlingua.common.errors import ConfigError
from fedlingua.settings.checks import settings_from
from fedlingua.settings.methods import METHOD_NAMES, METHODS
from fedlingua.settings.table import KEYS


def refusal(run_config: dict[str, Any], **changes: Any) -> str:
    """The message that answers these values, given as attributes of `Settings`."""
    with pytest.raises(ConfigError) as caught:
        settings_from({**run_config, **{KEYS.get(name, name): value for name, value in changes.items()}})
    return str(caught.value)


def test_an_unknown_key_is_named_with_its_value_the_nearest_and_all_keys(run_config: dict[str, Any]) -> None:
    message = refusal(run_config, round=5)
    assert "round = 5" in message
    assert "did you mean 'rounds'?" in message
    assert sum(key in message.partition("nearest:")[2].split(";")[0].split(", ") for key in message.split()) <= 5
    assert message.endswith("; all: docs/options.md")


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
        ("keep_rates", 0.3, "float", 'str, text in quotation marks, "0.3"'),
        ("run_dir", 2024, "int", "str"),
        ("data_dir", ["a"], "list", "str"),
    ],
)
def test_a_wrong_type_is_refused(run_config: dict[str, Any], key: str, value: Any, got: str, wanted: str) -> None:
    assert f"{KEYS[key]} = {value!r} is of type {got}; wanted {wanted}" in refusal(run_config, **{key: value})


@pytest.mark.parametrize("key", ["learning-rate", "quorum", "deadline.phase-s"])
def test_a_whole_number_is_taken_for_a_float(run_config: dict[str, Any], key: str) -> None:
    value = settings_from({**run_config, key: 1}).flat()[key]
    assert (value, type(value)) == (1.0, float)


@pytest.mark.parametrize(
    ("key", "value", "near", "choices"),
    [
        ("method", "adapter-family", "adapter-families", METHOD_NAMES),
        ("method", "centralised", "centralized", METHOD_NAMES),
        ("method", "silo-all", "", METHOD_NAMES),
        ("method", "silo-public", "", METHOD_NAMES),
        ("task", "translate", "translation", "translation, masked-language"),
        ("optimizer", "adamww", "adamw", "adam, adamw, sgd"),
        ("optimizer_state", "keep", "kept", "fresh, kept"),
        ("schedule", "inverse-square", "inverse-sqrt", "constant, linear, cosine, inverse-sqrt"),
        ("aggregation", "fedavg", "fed-avg", "fed-mean, fed-avg"),
        ("cluster_by", "groups", "group", "group, family, given"),
        ("cluster_parts", "encode", "encoder", "both, encoder, decoder"),
        ("tensor_set", "adapter", "adapters", ", adapters, full, controllers, lora"),
        ("adapter_layers", "input", "input-end", "all, input-end, middle, output-end"),
        ("signature_form", "privat", "private", "raw, private"),
        ("best_by", "token", "tokens", "examples, tokens"),
        ("score_split", "tests", "test", "test, dev"),
        ("precision", "fp16", "fp32|bf16", "fp32, bf16"),
        ("device", "CUDA", "", "cpu, cuda"),
    ],
)
def test_a_bad_choice_is_answered_with_the_nearest_and_all_choices(
    run_config: dict[str, Any], key: str, value: str, near: str, choices: str
) -> None:
    message = refusal(run_config, **{key: value})
    assert f"{KEYS[key]} = {value!r} is not known" in message
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
        ("adapter.dim", 0, 1),
        ("beam", 0, 1),
        ("max-decode-tokens", 3, 4),
        ("keep-translations", -1, 0),
        ("deadline.phase-s", 0.0, 0.001),
        ("threads", 0, 1),
        ("seed", -1, 0),
        ("sample.least", -1, 0),
        ("sample.share", -0.1, 0.0),
        ("weight-decay", -0.1, 0.0),
        ("warmup-steps", -1, 0),
        ("clip-norm", -0.1, 0.0),
        ("label-smoothing", -0.1, 0.0),
        ("tokens-per-batch", -1, 0),
        ("memory.micro-tokens", -2, -1),
        ("memory.head-chunk", -2, -1),
        ("evaluate-every", 0, 1),
        ("sites-per-round", -0.1, 0.0),
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


@pytest.mark.parametrize("quorum", [0.0, -0.5, 1.01, 2])
def test_a_quorum_outside_its_range_is_refused(run_config: dict[str, Any], quorum: float) -> None:
    message = refusal(run_config, quorum=quorum)
    assert f"quorum = {float(quorum)} is too {'small' if quorum < 1 else 'large'}; wanted more than 0 and at most 1" in message


@pytest.mark.parametrize("key", ["quorum", "meta.learning-rate", "meta.bytes-weight", "server.learning-rate", "deadline.phase-s"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_refused(run_config: dict[str, Any], key: str, value: float) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"{key} = {value!r}; wanted a finite number")):
        settings_from({**run_config, key: value})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"send.rule": "metasend-g", "meta.learning-rate": 0.0}, "meta.learning-rate = 0 learns nothing"),
        ({"apf.threshold": 1.0}, "apf.threshold = 1.0 is too large; wanted at least 0 and below 1"),
        ({"server.momentum": 1.0}, "server.momentum = 1.0 is too large; wanted at least 0 and below 1"),
        ({"server.learning-rate": 0.0}, "server.learning-rate = 0.0 is too small; wanted more than 0"),
    ],
)
def test_what_would_never_move_anything_is_refused(run_config: dict[str, Any], changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(reason)):
        settings_from({**run_config, **changes})


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


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"method": "adapter-gradients", "tensor-set": "lora"}, "takes the gradient of an adapter, but the tensor set is 'lora'"),
        ({"method": "adapter-fed", "cluster.parts": "encoder"}, "method adapter-fed has no clusters; leave it 'both'"),
        ({"method": "base", "pull": 0.1}, "pull = 0.1, and under method base nothing leaves a site; give 0"),
        ({"method": "adapter-local", "start-from": "runs/R"}, "nothing leaves a site; give '', or a federated method"),
        ({"send.rule": "metasend-g", "start-from": "runs/R"}, "give send.rule = 'all', or leave start-from out"),
        ({"method": "model-fed", "adapter.layers": "middle"}, "prunes adapters, but the tensor set is 'full'"),
        ({"signature.adapter": "encoder.fc2"}, "wanted part.layer.place, as in 'encoder.-1.fc2'"),
        ({"signature.adapter": "encoder.0.fc2,encoder.-1.fc2"}, "of the encoder and of the decoder with a comma between them"),
        ({"signature.adapter": "encoder.0.fc2, decoder.0.fc2, decoder.1.fc2"}, "or one for both"),
        ({"signature.form": "private", "signature.dim": 65}, "a private signature has at most 64 numbers"),
        ({"signature.noise": 0.0}, "signature.noise = 0.0 is too small; wanted more than 0"),
        ({"signature.clip": 0.0}, "signature.clip = 0.0 is too small; wanted more than 0"),
        ({"signature.delta": 1.0}, "signature.delta = 1.0 is too large; wanted more than 0 and below 1"),
        ({"signature.noise": math.inf}, "signature.noise = inf; wanted a finite number"),
        ({"method": "adapter-families", "cluster.number": 3}, "method adapter-families takes no number of clusters"),
        ({"method": "adapter-random", "cluster.number": -1}, "give adapter-random a number, or 0"),
        ({"cluster.number": -2}, "cluster.number = -2 is too small; wanted at least -1"),
    ],
)
def test_keys_that_do_not_go_together_are_refused(run_config: dict[str, Any], changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(reason)):
        settings_from({**run_config, **changes})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sites-per-round": 2.5}, "sites-per-round = 2.5; wanted a whole number of sites, or a share below 1"),
        ({"method": "adapter-local"}, "under method adapter-local nothing leaves a site; give 0, or a federated method"),
        ({"method": "base"}, "under method base nothing leaves a site"),
        ({"method": "centralized"}, "under method centralized nothing leaves a site"),
        ({"send.rule": "metasend-g"}, "selection metasend-g makes a threshold from all sites' losses"),
        ({"sample.least": 9, "sample.replacement": False}, "a site that is not drawn would miss its next examples"),
    ],
)
def test_what_does_not_go_with_rounds_of_some_sites_is_refused(
    run_config: dict[str, Any], changes: dict[str, Any], reason: str
) -> None:
    config = {**run_config, "sites-per-round": 4, **changes}
    with pytest.raises(ConfigError, match=re.escape(reason)):
        settings_from(config)
    settings_from({**config, "sites-per-round": 0})


# --- Pre-training --------------------------------------------------------------------------------------------------------------


def test_an_unknown_method_is_answered_with_one_name_for_all_silos(run_config: dict[str, Any]) -> None:
    message = refusal(run_config, method="unheard-of")
    assert message.endswith("server-lamb, centralized, centralized-public, silo-<site>")


@pytest.mark.parametrize(
    ("method", "pools"), [("centralized", "all"), ("centralized-public", "public"), ("silo-es-cases", "es-cases")]
)
def test_a_centralized_method_trains_the_whole_model_on_its_pool(run_config: dict[str, Any], method: str, pools: str) -> None:
    settings = settings_from({**run_config, "method": method})
    assert (settings.trained_set, settings.how.pools) == ("full", pools)
    assert settings.how.pooled
    assert not settings.how.travels


@pytest.mark.parametrize("key", ["mask-share", "evaluate-share"])
@pytest.mark.parametrize("value", [0.0, -0.1, 1.01])
def test_what_is_no_share_is_refused(run_config: dict[str, Any], key: str, value: float) -> None:
    with pytest.raises(
        ConfigError, match=re.escape(f"{key} = {value!r} is too {'small' if value < 1 else 'large'}; wanted more")
    ):
        settings_from({**run_config, key: value})
    assert settings_from({**run_config, key: 1.0}).flat()[key] == 1.0


MASKED = {"task": "masked-language", "method": "model-fed"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sampling-temperature": 0.5}, "sampling-temperature = 0.5 is too small; wanted at least 1"),
        (
            {"method": "centralized", "sample.least": 5, "sample.replacement": False, "sampling-temperature": 5.0},
            "every example of the pool comes once before any comes again",
        ),
        ({"pull": 0.1, "send.rule": "metasend-g"}, "selection metasend-g has no request that tells it"),
        ({"method": "base", "optimizer-epsilon": 0.0}, "optimizer-epsilon = 0, and adam divides by it"),
        ({"optimizer": "adamw", "optimizer-epsilon": 0.0}, "optimizer-epsilon = 0, and adamw divides by it"),
        ({"method": "silo-es", "score-split": "dev"}, "only the pool's own dev text is kept, which chooses its best round"),
        ({"send.rule": "metasend-g", "evaluate-every": 2}, "selection metasend-g learns from every round's dev text; leave it 1"),
        ({**MASKED, "keep-translations": 2}, "keep-translations = 2, and nothing is translated under task = 'masked-language'"),
        ({**MASKED, "tensor-set": "controllers"}, "give full, adapters or lora under task = 'masked-language'"),
    ],
)
def test_keys_of_training_that_do_not_go_together_are_refused(
    run_config: dict[str, Any], changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(reason)):
        settings_from({**run_config, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "sgd", "optimizer-epsilon": 0.0},
        {"method": "adapter-local", "optimizer-state": "kept"},
        {"method": "adapter-fed", "optimizer-state": "kept"},
        {"method": "silo-madrid", "optimizer-state": "kept", "task": "masked-language"},
        {"sample.least": 500, "sample.share": 0.8e-4, "sampling-temperature": 2.0},
        {**MASKED, "aggregation": "fed-avg", "evaluate-every": 100, "evaluate-share": 0.1},
        {"send.rule": "metasend-g", "meta.frozen": True, "evaluate-every": 2, "server.optimizer": "adam"},
    ],
)
def test_keys_of_training_that_go_together_are_taken(run_config: dict[str, Any], changes: dict[str, Any]) -> None:
    settings_from({**run_config, **changes})


def test_a_site_draws_with_either_key_above_nothing(run_config: dict[str, Any]) -> None:
    draws = [settings_from({**run_config, **c}).draws for c in ({}, {"sample.least": 1}, {"sample.share": 0.1})]
    assert draws == [False, True, True]


def test_a_smoothing_that_leaves_nothing_is_refused(run_config: dict[str, Any]) -> None:
    assert "label-smoothing = 1.0 is too large; wanted at least 0 and below 1" in refusal(run_config, label_smoothing=1)
    assert settings_from({**run_config, "label-smoothing": 0.99}).label_smoothing == 0.99


def test_a_budget_of_tokens_holds_the_longest_sentence_there_may_be(run_config: dict[str, Any]) -> None:
    message = refusal(run_config, tokens_per_batch=127, max_tokens=128)
    assert "tokens-per-batch = 127 holds no sentence of max-tokens = 128; give so many or more, or 0" in message
    assert settings_from({**run_config, "tokens-per-batch": 128, "max-tokens": 128}).tokens_per_batch == 128


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"task": "masked-language", "metrics": "bleu,chrf"}, "task = 'masked-language' fills sequences"),
        (
            {"dp.unit": "document", "method": "adapter-gradients", "signature.form": "private"},
            "method = 'adapter-gradients' makes signatures whose noise hides a sentence, not a document",
        ),
        ({"dp.unit": "site"}, r"12 sites over 20 rounds .* 635 clips over 8 million numbers"),
        ({"aggregation": "by-loss"}, "aggregation = 'by-loss' needs each site's training loss"),
        ({"send.rule": "metasend-g"}, "send.rule = 'metasend-g' needs each site's training loss"),
        ({"sample.least": 50}, "sample.least = 50 draws a fixed number"),
        ({"sample.share": 1.5}, "sample.share = 1.5 is no probability"),
        ({"sample.share": 0.1, "sample.replacement": False}, "draws sentences that depend on each other"),
        ({"overlap": "remove"}, "overlap = 'remove' sends a hash of every sentence"),
        ({"memory.gradient-checkpointing": True}, "forgets what clipping needs"),
        ({"method": "adapter-gradients"}, "signature.form = 'raw' sends a gradient of each site"),
        ({"method": "adapter-local"}, "dp.epsilon = 8.0, and under method adapter-local nothing leaves a site; give 0"),
    ],
)
def test_what_breaks_the_guarantee_of_private_training_is_refused_by_name(
    run_config: dict[str, Any], changes: dict[str, Any], words: str
) -> None:
    private = {**run_config, "method": "adapter-fed", "dp.epsilon": 8.0}
    assert settings_from(private).trains_privately
    with pytest.raises(ConfigError, match=words):
        settings_from({**private, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "sgd"},
        {"optimizer-state": "kept"},
        {"pull": 0.1},
        {"send.rule": "top-k"},
        {"aggregation": "fed-avg"},
        {"privacy.sum": "secure"},
        {"method": "adapter-gradients", "signature.form": "private"},
        {"sample.share": 0.1},
        {"method": "model-fed"},
    ],
)
def test_what_is_made_of_noised_gradients_alone_keeps_the_guarantee(run_config: dict[str, Any], changes: dict[str, Any]) -> None:
    assert settings_from({**run_config, "method": "adapter-fed", "dp.epsilon": 8.0, **changes}).trains_privately


SHARED = {
    "method": "adapter-fed",
    "dp.epsilon": 8.0,
    "dp.noise": "shares",
    "privacy.sum": "secure",
    "local-epochs": 1,
    "aggregation": "fed-avg",
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"privacy.sum": "plain"}, "privacy.sum = 'plain' has no sum in which shares of noise add up; give 'secure'"),
        ({"dp.epsilon": 0.0}, "dp.epsilon = 0.0 needs no noise"),
        ({"sample.share": 0.5}, "sample.share = 0.5 draws sentences"),
        ({"sample.share": 1.0}, "sample.share = 1.0 draws sentences"),
        ({"sample.least": 50}, "sample.least = 50 draws a fixed number"),
        ({"local-epochs": 2}, "local-epochs = 2 makes an update other than one step .* give 1, and more rounds"),
        ({"optimizer": "sgd"}, "optimizer = 'sgd' bounds no update"),
        ({"optimizer-state": "kept"}, "optimizer-state = 'kept' carries on a site's own steps"),
        ({"weight-decay": 0.01}, "weight-decay = 0.01 makes an update other"),
        ({"clip-norm": 1.0}, "clip-norm = 1.0 makes an update other"),
        ({"pull": 0.1}, "pull = 0.1 makes an update other"),
        ({"aggregation": "fed-mean"}, "aggregation = 'fed-mean' weighs sentences of a small site more"),
        ({"sampling-temperature": 2.0}, "sampling-temperature = 2.0 weighs sentences of a small site more"),
        ({"tensor-set": "controllers"}, "tensor-set = 'controllers' trains without noise"),
        ({"client": "my_file:MyClient"}, "client = 'my_file:MyClient' may send other numbers"),
        ({"layers": "my_file:MyLayer"}, "layers = 'my_file:MyLayer' may send other numbers"),
        ({"send.rule": "top-k"}, "send.rule = 'top-k' takes numbers or losses of single sites"),
        ({"send.rule": "fixed-g"}, "send.rule = 'fixed-g' leaves out tensors, and their noise; give 'all'"),
        ({"send.code": "4bit"}, "send.code = '4bit' rounds the noised sum anew; give 'none' or 'auto'"),
        ({"strategy": "my_file:MyStrategy"}, "strategy = 'my_file:MyStrategy' is handed single updates"),
        ({"sites-per-round": 2.0}, "sites-per-round = 2.0 leaves out sites"),
        ({"async.buffer": 2}, "privacy.sum = 'secure' has masks that cancel"),
        ({"method": "adapter-local"}, "nothing leaves a site"),
    ],
)
def test_what_is_no_noised_sum_of_clipped_gradients_goes_without_noise_in_shares(
    run_config: dict[str, Any], changes: dict[str, Any], words: str
) -> None:
    assert settings_from({**run_config, **SHARED}).shares_noise
    with pytest.raises(ConfigError, match=words):
        settings_from({**run_config, **SHARED, **changes})


def test_noise_in_shares_goes_with_steps_of_the_server_and_schedules(run_config: dict[str, Any]) -> None:
    more = {"server.optimizer": "adam", "schedule": "linear", "method": "adapter-families", "tensor-set": "lora"}
    assert settings_from({**run_config, **SHARED, **more}).shares_noise
