"""What a site takes part in, whatever its server asks for: `[limits]` of the site's file, with the defaults that hold without it.

Checked at every message against the run's settings as they take effect (`tensor-set = "full"` under a method of adapters is "full") and
against the text as it is used (split, cut, without leaks, drawn), before a model is loaded or anything runs. None holds in a simulation.

What makes an update as good as a gradient, out of which text can be read, is bounded together: SGD (its step is the gradient), an epsilon
so large that Adam is SGD, a single step (of Adam the gradient's signs), steps on few sentences, and few sentences altogether.
"""

import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence, Sized
from dataclasses import dataclass
from statistics import median
from typing import Literal

from fedlingua.config import Settings, key_of
from fedlingua.config_checks import choices_of
from fedlingua.corpora.split import SPLITS, Split
from fedlingua.errors import ConfigError, ExchangeError
from fedlingua.methods import METHODS
from fedlingua.training.sampling import num_samples


@dataclass(frozen=True)
class SiteLimits:
    """A list names what the site takes part in; an empty one, everything (of comet-models: none). max-KEY: most of a run's key.

    settings: whether a run's settings and text rules have to be approved one by one, or any within these limits run under an approved
    bundle. comet-models: models that COMET may load here. min-train, -dev, -test: least sentences of each text that an answer stands on.
    min-steps, min-batch: least optimiser steps behind an update, and examples of such a step (their median). max-tokens: of a sentence.
    max-minutes: of one message, which is stopped then. max-runs: that the site answers in, resumed ones counted again; max-attempts: how
    often one run may begin.
    """

    settings: Literal["approved", "within-limits"] = "approved"
    methods: tuple[str, ...] = ()
    tensor_sets: tuple[str, ...] = ("adapters", "controllers", "lora")
    selections: tuple[str, ...] = ()
    clusterings: tuple[str, ...] = ()
    optimizers: tuple[str, ...] = ("adam", "adamw")
    comet_models: tuple[str, ...] = ()
    min_train: int = 50
    min_dev: int = 50
    min_test: int = 50
    min_steps: int = 3
    min_batch: int = 8
    max_optimizer_epsilon: float = 1e-6
    max_rounds: int = 200
    max_local_epochs: int = 20
    max_batch_size: int = 512
    max_tokens_per_batch: int = 65536
    max_tokens: int = 512
    max_decode_tokens: int = 512
    max_beam: int = 10
    max_keep_translations: int = 100
    max_adapter_dim: int = 256
    max_lora_rank: int = 256
    max_controllers: int = 12
    max_meta_neurons: int = 1000
    max_signature_dim: int = 64
    max_processes: int = 8
    max_threads: int = 16
    max_minutes: float = 240.0
    max_attempts: int = 20
    max_runs: int = 200

    def __post_init__(self) -> None:
        known: dict[str, Collection[str]] = {
            name: choices_of(key_of(name.removesuffix("s"))) for name in ("methods", "tensor_sets", "selections", "optimizers")
        }
        for name, names in {**known, "clusterings": {one.clustering for one in METHODS.values()}}.items():
            if unknown := sorted(set(getattr(self, name)) - set(names)):
                raise ConfigError(f"[limits] {key_of(name)}: {unknown[0]!r} is not known; choose of {', '.join(names)}")
        for name, value in dataclasses.asdict(self).items():
            if isinstance(value, int | float) and not value >= 0:
                raise ConfigError(f"[limits] {key_of(name)} = {value!r}; wanted 0 or more")

    def check_settings(self, settings: Settings) -> None:
        """Refuse settings that this site does not work under. settings: as the server gave them.

        Raises:
            ExchangeError: names the key, what was asked and what is allowed; as all errors here.
        """
        for name, key, asked in (
            ("methods", "method", settings.method),
            ("tensor_sets", "tensor-set", settings.trained_set),
            ("selections", "selection", settings.selected_by),
            ("clusterings", "clustering", settings.how.clustering),
            ("optimizers", "optimizer", settings.optimizer),
        ):
            allowed: Sequence[str] = getattr(self, name)
            if allowed and asked not in allowed:
                raise _beyond(f"{key} = {asked!r}", name, ", ".join(allowed))
        if "comet" in settings.more_metrics and settings.comet_model not in self.comet_models:
            raise _beyond(f"comet-model = {settings.comet_model!r}", "comet_models", ", ".join(self.comet_models) or "none")
        for name, most in dataclasses.asdict(self).items():
            key = next((key for key in (name.removeprefix("max_"), name) if name[:4] == "max_" and hasattr(settings, key)), "")
            if key and getattr(settings, key) > most:
                raise _beyond(f"{key_of(key)} = {getattr(settings, key):g}", name, f"{most:g} at most")

    def check_text(self, texts: Mapping[str, Mapping[Split, Sized]], settings: Settings) -> None:
        """Refuse an answer that would stand on too few sentences. texts: each text -> split -> its sentences, as they are used."""
        for name, splits in texts.items():
            for split in SPLITS:
                self._check_split(name, split, len(splits[split]), settings)

    def _check_split(self, name: str, split: Split, number: int, settings: Settings) -> None:
        used = [number]
        if split == "train" and settings.draws:
            used.append(num_samples(number, settings.sample_least, settings.sample_share))
        if split == "train" and settings.how.clustering == "gradients" and settings.signature_examples:
            used.append(settings.signature_examples)
        if split == "dev":
            used.append(max(1, round(settings.evaluate_share * number)))
            if settings.learns_threshold and not settings.meta_frozen:
                used.append(settings.meta_batches * settings.meta_batch_size)
        least: int = getattr(self, f"min_{split}")
        if min(used) < least:
            raise _beyond(f"answers on {min(used)} sentences of {name}'s {split}", f"min_{split}", f"{least} and more")

    def check_update(self, steps: Sequence[int]) -> None:
        """Refuse an update that is little more than a gradient. steps: examples of each optimiser step of a round."""
        if len(steps) < self.min_steps:
            raise _beyond(f"an update of {len(steps)} optimiser steps", "min_steps", f"{self.min_steps} and more")
        if median(steps) < self.min_batch:
            raise _beyond(f"optimiser steps on {median(steps):g} examples", "min_batch", f"{self.min_batch} and more")

    def check_asked(self, settings: Settings, asked: str, answered: Collection[str], number: int, attempt: int) -> None:
        """Refuse a message that such a run does not have. answered: types of message that it has; number, attempt: of the round."""
        if asked not in answered:
            raise ExchangeError(f"asked for {asked!r}; a run with these settings has {', '.join(answered)}")
        if not 0 <= number <= settings.rounds:
            raise ExchangeError(f"asked about round {number}; the run has {settings.rounds}")
        if not 1 <= attempt <= self.max_attempts:
            raise _beyond(f"attempt {attempt} of the run", "max_attempts", f"{self.max_attempts} at most")


def _beyond(asked: str, name: str, allowed: str) -> ExchangeError:
    return ExchangeError(f"the run asks for {asked}; this site's file allows {allowed} ([limits] {key_of(name)})")


def limits_text() -> str:
    """The table with its defaults, commented out, as `fedlingua site init` writes it."""
    lines = [f"# {key_of(name)} = {json.dumps(value)}\n" for name, value in dataclasses.asdict(SiteLimits()).items()]
    return "".join(
        [
            "# What the server may ask for, with its defaults; fedlingua/deployment/limits.py says what each means.\n# [limits]\n",
            *lines,
        ]
    )
