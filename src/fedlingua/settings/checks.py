"""The run config, checked once at the door.

Flower hands over flat scalars and checks no types; everything a user can get wrong in them is found here, before anything loads.
"""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import nearest
from fedlingua.settings.config import Scalar, Settings, key_of, known_keys
from fedlingua.settings.methods import METHOD_NAMES, METHODS, SELECTIONS, SERVER_OPTIMIZERS, method_named
from fedlingua.settings.metrics import metric_names
from fedlingua.settings.schedules import SCHEDULES
from fedlingua.settings.tasks import TASKS
from fedlingua.settings.trackers import tracker_names

MOST_PRIVATE_DIM = 64
"""Numbers of a private signature: noise grows with each."""

_BOTH = "bleu,chrf"
"""What every translation is measured by."""

_CHOICES: dict[str, tuple[str, ...]] = {
    "task": TASKS,
    "aggregation": ("fed-mean", "fed-avg", "by-loss", "median", "trimmed-mean", "norm-clip", "krum", "multi-krum"),
    "server_optimizer": ("", *SERVER_OPTIMIZERS),
    "server_schedule": ("constant", "linear", "cosine", "inverse-sqrt"),
    "selection": ("", *SELECTIONS),
    "zero_norm": ("send", "stay", "refuse"),
    "missing": ("previous", "renormalise"),
    "random_threshold": ("unit", "range"),
    "meta_estimator": ("cross", "own", "loss"),
    "meta_scale": ("first", "round"),
    "backbone_weights": ("published", "random"),
    "tensor_set": ("", "adapters", "full", "controllers", "lora"),
    "adapter_layers": ("all", "input-end", "middle", "output-end"),
    "cluster_by": ("group", "family", "given"),
    "cluster_parts": ("both", "encoder", "decoder"),
    "signature_distance": ("cosine", "euclidean"),
    "signature_algorithm": ("agglomerative", "k-means"),
    "signature_form": ("raw", "private"),
    "best_by": ("examples", "tokens", "last"),
    "optimizer": ("adam", "adamw", "sgd"),
    "optimizer_state": ("fresh", "kept"),
    "schedule": tuple(SCHEDULES),
    "head_vocabulary": ("all", "text"),
    "adapter_init": ("paper", "zero"),
    "adapter_place": ("after-dropout", "before-dropout"),
    "score_split": ("test", "dev"),
    "overlap": ("off", "report", "remove"),
    "precision": ("fp32", "bf16"),
    "device": ("cpu", "cuda"),
    "below_quorum": ("fail", "wait", "go-on"),
}
_AT_LEAST: dict[str, float] = {
    "rounds": 1,
    "patience": 0,
    "min_gain": 0.0,
    "batch_size": 1,
    "accumulation": 1,
    "local_epochs": 1,
    "sample_least": 0,
    "sample_share": 0.0,
    "optimizer_epsilon": 0.0,
    "weight_decay": 0.0,
    "warmup_steps": 0,
    "clip_norm": 0.0,
    "label_smoothing": 0.0,
    "tokens_per_batch": 0,
    "micro_tokens": 0,
    "head_chunk": 0,
    "evaluate_every": 1,
    "learning_rate": 0.0,
    "max_tokens": 4,
    "adapter_dim": 1,
    "controllers": 1,
    "lora_rank": 1,
    "num_clusters": -1,
    "loss_temperature": 0.0,
    "byzantine_sites": 1,
    "clip_update_norm": 0.0,
    "server_learning_rate": 0.0,
    "server_decay": 0.0,
    "server_momentum": 0.0,
    "server_beta1": 0.0,
    "server_beta2": 0.0,
    "server_epsilon": 0.0,
    "server_weight_decay": 0.0,
    "apf_window": 1,
    "apf_threshold": 0.0,
    "meta_neurons": 1,
    "meta_batches": 1,
    "meta_batch_size": 1,
    "meta_learning_rate": 0.0,
    "meta_bytes_weight": 0.0,
    "second_filter_weight": 0.0,
    "signature_examples": 0,
    "signature_dim": 1,
    "adapter_init_std": 0.0,
    "beam": 1,
    "max_decode_tokens": 4,
    "keep_translations": 0,
    "keep_every": 0,
    "deadline_s": 0.001,
    "join_deadline_s": 0.0,
    "evaluate_deadline_s": 0.0,
    "finish_deadline_s": 0.0,
    "wait_s": 0.0,
    "max_update_norm": 0.0,
    "max_update_ratio": 0.0,
    "max_site_share": 0.5,
    "max_bad_replies": 0,
    "threads": 1,
    "processes": 1,
    "seed": 0,
}
_KINDS = {int: "a whole number, such as 3", float: "a number, such as 0.5", str: "text", bool: "true or false"}
"""Types of values -> in words."""
_TYPES: dict[str, type] = {field.name: field.type for field in dataclasses.fields(Settings)}  # type: ignore[misc]


def settings_from(run_config: Mapping[str, Any]) -> Settings:
    """Check a whole run config.

    Raises:
        ConfigError: an unknown or missing key, a wrong type, a value out of its choices or range; with the nearest name.
    """
    values: dict[str, Scalar] = {}
    for key, value in run_config.items():
        name = key.replace("-", "_")
        if name not in _TYPES or "_" in key:
            raise ConfigError(
                f"{key} = {value!r}: there is no such key{nearest(key, known_keys())}; known keys: {', '.join(known_keys())}"
            )
        values[name] = _checked(name, value)
    missing = [key_of(name) for name in _TYPES if name not in values]
    if missing:
        raise ConfigError(
            f"the run config lacks {', '.join(missing)}; their defaults stand in pyproject.toml, [tool.flwr.app.config]"
        )
    settings = Settings(**values)  # type: ignore[arg-type]
    _check_together(settings)
    return settings


def _checked(name: str, value: Any) -> Scalar:
    wanted, key = _TYPES[name], key_of(name)
    if type(value) is int and wanted is float:
        value = float(value)
    got = type(value).__name__
    if got != wanted.__name__:
        raise ConfigError(f"{key} = {value!r} is of type {got}; wanted {wanted.__name__}, {_KINDS[wanted]}")
    if name == "method" and method_named(str(value)) is None:
        raise ConfigError(f"method = {value!r} is not known{nearest(value, METHODS)}; choose one of {METHOD_NAMES}")
    choices = _CHOICES.get(name)
    if choices and value not in choices:
        raise ConfigError(f"{key} = {value!r} is not known{nearest(value, choices)}; choose one of {', '.join(choices)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{key} = {value!r}; wanted a finite number")
    least = _AT_LEAST.get(name)
    if least is not None and not value >= least:
        raise ConfigError(f"{key} = {value!r} is too small; wanted at least {least:g}")
    result: Scalar = value
    return result


def _check_together(settings: Settings) -> None:
    if not 0 < settings.quorum <= 1:
        raise ConfigError(f"quorum = {settings.quorum} is no share of the sites; wanted more than 0 and at most 1")
    if settings.resume and not settings.run_dir:
        raise ConfigError("resume = true needs run-dir, the folder of the run to go on with")
    if settings.signature_form == "private":
        if settings.signature_dim > MOST_PRIVATE_DIM:
            raise ConfigError(
                f"signature-dim = {settings.signature_dim}; a private signature has at most {MOST_PRIVATE_DIM} numbers; give "
                "so many or less, or signature-form = 'raw'"
            )
        for key, value in (("signature-clip", settings.signature_clip), ("signature-noise", settings.signature_noise)):
            if not 0 < value < math.inf:
                raise ConfigError(f"{key} = {value:g}; a private signature needs more than 0, and a finite number")
        if not 0 < settings.signature_delta < 1:
            raise ConfigError(f"signature-delta = {settings.signature_delta:g} is no probability; wanted more than 0 and below 1")
    if settings.how.clustering == "gradients" and settings.trained_set != "adapters":
        raise ConfigError(
            f"method {settings.method} takes the gradient of an adapter, and the tensor set is {settings.trained_set!r}; "
            "give tensor-set = 'adapters', or another method"
        )
    if settings.num_clusters != 0 and settings.how.clustering not in ("random", "gradients"):
        raise ConfigError(
            f"num-clusters = {settings.num_clusters}, and method {settings.method} takes no number of clusters; leave it 0, or choose "
            "adapter-random or adapter-gradients"
        )
    if settings.num_clusters == -1 and settings.how.clustering != "gradients":
        raise ConfigError(
            "num-clusters = -1 leaves the number to the silhouette of gradients; give adapter-random a number, or 0"
        )
    if settings.cluster_parts != "both" and settings.how.clustering in ("none", "alone"):
        raise ConfigError(
            f"cluster-parts = {settings.cluster_parts!r}, and method {settings.method} has no clusters; leave it 'both'"
        )
    _check_training(settings)
    _check_server(settings)
    _check_selection(settings)
    if settings.backbone_weights == "random" and settings.trained_set != "full":
        raise ConfigError(
            f"backbone-weights = 'random' needs a tensor set that trains them all, and got {settings.trained_set!r}; give a method of the "
            "full model, or backbone-weights = 'published'"
        )
    found = [re.fullmatch(r"(encoder|decoder)\.-?\d+\.\w+", name.strip()) for name in settings.signature_adapter.split(",")]
    if len(found) > 2 or len({match and match[1] for match in found} - {None}) < len(found):
        raise ConfigError(
            f"signature-adapter = {settings.signature_adapter!r}; wanted part.layer.place, as in 'encoder.-1.fc2', of the encoder and of "
            "the decoder with a comma between them, or one for both"
        )
    if settings.adapter_layers != "all" and settings.trained_set not in ("adapters", "lora"):
        raise ConfigError(
            f"adapter-layers = {settings.adapter_layers!r} prunes adapters, and the tensor set is {settings.trained_set!r}; "
            "give adapter-layers = 'all', or tensor-set = 'adapters' or 'lora'"
        )
    if settings.strategy and not re.fullmatch(r"[\w.]+:\w+(\(.*\))?", settings.strategy):
        raise ConfigError(f"strategy = {settings.strategy!r} is not known; give 'my_file:MyStrategy', or leave it empty")


def _check_training(settings: Settings) -> None:
    for key, value in (("mask-share", settings.mask_share), ("evaluate-share", settings.evaluate_share)):
        if not 0 < value <= 1:
            raise ConfigError(f"{key} = {value:g} is no share; wanted more than 0 and at most 1")
    if settings.sampling_temperature < 1:
        raise ConfigError(f"sampling-temperature = {settings.sampling_temperature:g}; wanted 1 (by size) or more (more alike)")
    if settings.how.pooled and settings.draws and not settings.sample_replacement and settings.sampling_temperature != 1:
        raise ConfigError(
            f"sampling-temperature = {settings.sampling_temperature:g}, and under sample-replacement = false every example of the pool "
            "comes once before any comes again, whichever text it is of; give 1, or sample-replacement = true"
        )
    if settings.optimizer_state == "kept" and settings.how.travels:
        raise ConfigError(
            f"optimizer-state = 'kept', and under method {settings.method} a round begins with other tensors than the last one ended with; "
            "leave it 'fresh', or choose a method under which nothing leaves a site"
        )
    if settings.how.pools != "all" and settings.score_split == "dev":
        raise ConfigError(
            f"score-split = 'dev', and under method {settings.method} only the pool's own dev text is kept, which chooses its best round; "
            "give 'test', or a method that trains on all sites' text"
        )
    if settings.optimizer != "sgd" and not settings.optimizer_epsilon > 0:
        raise ConfigError(
            f"optimizer-epsilon = {settings.optimizer_epsilon:g}, and {settings.optimizer} divides by it; give more than 0"
        )
    if settings.label_smoothing >= 1:
        raise ConfigError(
            f"label-smoothing = {settings.label_smoothing:g} leaves nothing for what is to be predicted; wanted 0 or more and below 1, "
            "as 0.1"
        )
    if 0 < settings.tokens_per_batch < settings.max_tokens:
        raise ConfigError(
            f"tokens-per-batch = {settings.tokens_per_batch} holds no sentence of max-tokens = {settings.max_tokens}; give so many or "
            "more, or 0 for batches of batch-size sentences"
        )
    if settings.evaluate_every > 1 and settings.learns_threshold:
        raise ConfigError(
            f"evaluate-every = {settings.evaluate_every}, and selection {settings.selected_by} learns from every round's dev text; "
            "leave it 1"
        )
    metric_names(settings.metrics)
    tracker_names(settings.track)
    if settings.task == "masked-language":
        if settings.more_metrics:
            raise ConfigError(
                f"metrics = {settings.metrics!r}, and nothing is translated under task = 'masked-language'; leave it {_BOTH!r}"
            )
        if settings.keep_translations:
            raise ConfigError(
                f"keep-translations = {settings.keep_translations}, and nothing is translated under task = 'masked-language'; leave it 0"
            )
        if settings.trained_set == "controllers":
            raise ConfigError(
                "tensor-set = 'controllers' adds layers to translation models; give full, adapters or lora under task = 'masked-language'"
            )


def _check_server(settings: Settings) -> None:
    if settings.aggregation == "by-loss" and not settings.loss_temperature > 0:
        raise ConfigError(f"loss-temperature = {settings.loss_temperature:g}; losses are divided by it: give more than 0")
    if settings.aggregation in ("median", "trimmed-mean", "krum", "multi-krum") and settings.selected_by != "all":
        raise ConfigError(
            f"aggregation = {settings.aggregation!r} compares what all sites made of every number, and selection {settings.selected_by} "
            "leaves some out; give selection = 'all', or aggregation = 'norm-clip' or 'fed-mean'"
        )
    if settings.aggregation not in ("fed-mean", "fed-avg", "by-loss") and not settings.how.travels:
        raise ConfigError(
            f"aggregation = {settings.aggregation!r}, and under method {settings.method} the server gets no update; leave it "
            "'fed-mean', or choose a federated method"
        )
    if settings.server_optimizer not in ("", "none") and not settings.how.travels:
        raise ConfigError(
            f"server-optimizer = {settings.server_optimizer!r}, and under method {settings.method} the server gets no update; leave it "
            "empty, or choose a federated method"
        )
    if settings.optimized_by != "none" and settings.learns_threshold:
        raise ConfigError(
            f"server-optimizer = {settings.optimized_by!r}, and selection {settings.selected_by} learns its threshold from what it does to "
            "the sites' mean; give server-optimizer = 'none', or another selection"
        )
    shares = {
        "server-beta1": settings.server_beta1,
        "server-beta2": settings.server_beta2,
        "server-momentum": settings.server_momentum,
    }
    for key, value in shares.items():
        if value >= 1:
            raise ConfigError(f"{key} = {value:g}; wanted a share of what was before, 0 or more and below 1")
    if settings.optimized_by != "none" and not settings.server_learning_rate > 0:
        raise ConfigError(f"server-learning-rate = {settings.server_learning_rate:g} never moves anything; give more than 0")
    if settings.optimized_by not in ("none", "sgd") and not settings.server_epsilon > 0:
        raise ConfigError(
            f"server-epsilon = {settings.server_epsilon:g}, and {settings.optimized_by} divides by it where gradients are 0; give more"
        )


def _check_selection(settings: Settings) -> None:
    if settings.selection not in ("", "all") and not settings.how.travels:
        raise ConfigError(
            f"selection = {settings.selection!r}, and under method {settings.method} nothing leaves a site; leave it empty, or choose "
            "a federated method"
        )
    if not 0 < settings.send_share <= 1:
        raise ConfigError(f"send-share = {settings.send_share:g} is no share of an update; wanted more than 0 and at most 1")
    if settings.fixed_threshold != "median" and not _is_number(settings.fixed_threshold):
        raise ConfigError(
            f"fixed-threshold = {settings.fixed_threshold!r}; wanted a number, 0 or above, as in '0.5', or 'median'"
        )
    if settings.second_filter and not (settings.learns_threshold and not settings.meta_frozen):
        raise ConfigError(
            f"second-filter = true looks at what a learned threshold leaves, and selection {settings.selected_by} learns none; "
            "give metasend-g or metasend-l, not frozen, or second-filter = false"
        )
    if settings.selected_by == "apf" and settings.apf_threshold >= 1:
        raise ConfigError(
            f"apf-threshold = {settings.apf_threshold:g}; a number's movement is at most all of its steps, so 1 and above freeze "
            "everything: give less"
        )
    if settings.learns_threshold:
        if not settings.meta_frozen and not settings.meta_learning_rate > 0:
            raise ConfigError(
                f"meta-learning-rate = {settings.meta_learning_rate:g} learns nothing; give more than 0, or meta-frozen = true"
            )
        for key, value in (("meta-temperature", settings.meta_temperature), ("meta-noise", settings.meta_noise)):
            if not 0 < value < math.inf:
                raise ConfigError(f"{key} = {value:g}; wanted more than 0, and a finite number")


def _is_number(text: str) -> bool:
    try:
        return 0 <= float(text) < math.inf
    except ValueError:
        return False


def choices_of(key: str) -> tuple[str, ...]:
    """The values that a key may have, where they can be told by name; empty where they are numbers or text of one's own."""
    if key == "method":
        return tuple(METHODS)
    name = key.replace("-", "_")
    return ("true", "false") if _TYPES.get(name) is bool else tuple(choice for choice in _CHOICES.get(name, ()) if choice)
