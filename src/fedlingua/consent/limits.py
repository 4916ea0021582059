"""A site's limits on what its server may ask for: `[limits]` in the site's file, and the defaults.

They are checked at every message, before a model is loaded, against the settings in effect (`tensor-set = "full"` under an adapter
method is "full") and against the text in use (after splitting, cutting, removing leaks and drawing). A simulation has no limits.

Text can be reconstructed from a gradient, so everything that makes an update as revealing as one is limited: SGD (its step is the
gradient), an epsilon so large that Adam behaves like SGD, a pull or weight decay that leaves little more of an update than one step, a
single step (Adam's first step has the gradient's signs), steps on few sentences, and few sentences altogether.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Literal

from fedlingua.common.errors import ConfigError, ExchangeError
from fedlingua.corpora.split import Split
from fedlingua.settings.checks import choices_of
from fedlingua.settings.config import Settings
from fedlingua.settings.table import OPTIONS
from fedlingua.training.sampling import num_samples

_OF_CHOICES = {
    "methods": "method",
    "tensor_sets": "tensor-set",
    "selections": "send.rule",
    "optimizers": "optimizer",
    "units": "dp.unit",
}
"""Limit -> the option whose allowed values it lists, in the order of `check_settings`."""
Steps = Mapping[int, int]
"""Examples of an optimizer step -> number of such steps in a round."""


@dataclass(frozen=True)
class SiteLimits:
    """A site's limits. A list holds the allowed values; an empty list allows all (comet-models: none). max-KEY bounds the option KEY.

    settings: "approved": a run's settings and text rules need approval; "within-limits": an approved bundle runs any settings that
    these limits allow, under the first text rules that come, and the site refuses other rules until its owner approves a run with them.
    units: what differential privacy hides, if a run has it. comet-models: those that COMET may load. min-train, -dev, -test: fewest
    sentences of a text behind any reply. min-steps, min-batch: fewest optimizer steps behind an update, and fewest examples in any of them.
    max-minutes: time for a message, after which it is stopped. min-cluster: fewest sites in a secure sum, also of those that make noise
    in shares. max-attempts: of one run. max-runs: runs that the site answers, each attempt counted.
    Where min-KEY names an option, that option may also be 0, which turns it off: smaller values than these make a step of Adam as good
    as a gradient, or an example a few tokens of a sentence. The tensors themselves come from the server, and no limit bounds them.

    keep-choose, keep-passes, keep-minutes: whether the site chooses the model that it keeps if the run has that choice, and the
    most that it spends on it (0: it does not choose). A run that asks for more is not refused: the site does what its file allows.
    """

    settings: Literal["approved", "within-limits"] = "approved"
    methods: tuple[str, ...] = ()
    tensor_sets: tuple[str, ...] = ("adapters", "controllers", "lora")
    selections: tuple[str, ...] = ()
    optimizers: tuple[str, ...] = ("adam", "adamw")
    units: tuple[str, ...] = ()
    comet_models: tuple[str, ...] = ()
    min_train: int = 50
    min_dev: int = 50
    min_test: int = 50
    min_steps: int = 3
    min_batch: int = 8
    min_cluster: int = 3
    min_clip_norm: float = 0.01
    min_lora_alpha: float = 1.0
    min_max_tokens: int = 16
    max_pull: float = 10.0
    max_weight_decay: float = 0.1
    max_optimizer_epsilon: float = 1e-6
    max_rounds: int = 200
    max_local_epochs: int = 20
    max_learning_rate: float = 1.0
    max_sample_least: int = 100_000
    max_sample_share: float = 20.0
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
    max_threads: int = 16
    max_minutes: float = 240.0
    keep_choose: bool = True
    keep_passes: int = 100
    keep_minutes: float = 120.0
    max_attempts: int = 20
    max_runs: int = 200

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int | float) and not 0 <= value < math.inf:
                raise ConfigError(f"[limits] {_hyphens(field.name)} = {value}; wanted a finite number, 0 or more")
        for name, key in _OF_CHOICES.items():
            choices = choices_of(key)
            if unknown := set(getattr(self, name)) - set(choices):
                raise ConfigError(f"[limits] {_hyphens(name)}: {min(unknown)!r} is not known; choose of {', '.join(choices)}")

    def check_settings(self, settings: Settings) -> None:
        """Refuse settings that are beyond this site's limits. settings: as the server gave them.

        Raises:
            ExchangeError: Names the key, what was asked and what is allowed, as all errors here.
        """
        unit = settings.dp_unit if settings.trains_privately else ""
        asked = (settings.method, settings.trained_set, settings.rule, settings.optimizer, unit)
        for (name, key), value in zip(_OF_CHOICES.items(), asked, strict=True):
            if value and (allowed := getattr(self, name)) and value not in allowed:
                raise beyond(f"{key} = {value!r}", name, ", ".join(allowed))
        if settings.shares_noise and (honest := settings.privacy_min_cluster) < self.min_cluster:
            raise beyond(f"dp.noise = 'shares' of {honest} sites", "min_cluster", f"{self.min_cluster} sites and more")
        for key, value, what in (("client", settings.client, "a client class"), ("layers", settings.layers, "layers")):
            if self.settings == "within-limits" and value:
                raise beyond(f"{key} = {value!r}", "settings", f"{what} of its own only in a run that it has approved")
        if "comet" in settings.more_metrics and settings.comet_model not in self.comet_models:
            raise beyond(f"comet-model = {settings.comet_model!r}", "comet_models", ", ".join(self.comet_models) or "none")
        for key, option in OPTIONS.items():
            name = f"max_{option.attribute.removeprefix('max_')}"
            if hasattr(self, name) and (value := getattr(settings, option.attribute)) > (most := getattr(self, name)):
                raise beyond(f"{key} = {value:g}", name, f"{most:g} at most")
            name = f"min_{option.attribute}"
            if not hasattr(self, name) or not option.has_effect(settings):
                continue
            if 0 < abs(value := getattr(settings, option.attribute)) < (least := getattr(self, name)):
                raise beyond(f"{key} = {value:g}", name, f"{least:g} and more")

    def bounded(self, settings: Settings) -> Settings:
        """Return the settings, with those of the last phase reduced to this site's limits."""
        if not settings.chooses:
            return settings
        return dataclasses.replace(
            settings,
            keep_choose=settings.keep_choose and self.keep_choose and self.keep_passes > 0 and self.keep_minutes > 0,
            keep_passes=min(settings.keep_passes or settings.passes_of_rounds, self.keep_passes),
            keep_minutes=min(settings.keep_minutes or math.inf, self.keep_minutes),
        )

    def check_text(self, texts: Mapping[str, Mapping[Split, Sized]], settings: Settings) -> None:
        """Raise ExchangeError for a reply on too few sentences, or for an update as `check_update` does if its steps can be foreseen.

        texts: text -> split -> sentences, as they are used.
        """
        for name, splits in texts.items():
            train, dev, test = len(splits["train"]), len(splits["dev"]), len(splits["test"])
            used = {"train": [train], "dev": [dev, num_measured(dev, settings)], "test": [test]}
            if settings.draws:
                used["train"].append(num_samples(train, settings.sample_least, settings.sample_share))
            if settings.learns_threshold:
                used["dev"].append(settings.meta_batches * settings.meta_batch_size)
            for split, numbers in used.items():
                if min(numbers) < (least := getattr(self, f"min_{split}")):
                    raise beyond(f"answers on {min(numbers)} sentences of {name}'s {split}", f"min_{split}", f"{least} and more")
        steps = planned_steps([len(splits["train"]) for splits in texts.values()], settings)
        if steps is not None and settings.how.trains and settings.how.travels and not settings.trains_privately:
            self.check_update(steps)

    def check_update(self, steps: Steps) -> None:
        """Raise ExchangeError for an update that is little more than a gradient, or of which one step is."""
        if (number := sum(steps.values())) < self.min_steps:
            raise beyond(f"an update of {number} optimizer steps", "min_steps", f"{self.min_steps} and more")
        if min(steps, default=self.min_batch) < self.min_batch:
            way = f"tokens-per-batch = 0, whole-steps = true and batch-size = {self.min_batch} or more make such steps"
            raise beyond(f"optimizer {step_words(steps)}", "min_batch", f"{self.min_batch} and more in each; {way}")


def num_trained(sizes: Sequence[int], settings: Settings) -> int:
    """Return the most sentences that a round trains on; under `dp.epsilon` the number expected. sizes: sentences of each text."""
    return min(sum(sizes), settings.local_epochs * _num_drawn(sizes, settings))


def num_measured(dev: int, settings: Settings) -> int:
    """Return the number of dev sentences that a round's dev loss is measured on."""
    return min(dev, max(1, round(settings.evaluate_share * dev)))


def _num_drawn(sizes: Sequence[int], settings: Settings) -> int:
    least, share = settings.sample_least, settings.sample_share
    return sum(num_samples(size, least, share) for size in sizes) if settings.draws else sum(sizes)


def planned_steps(sizes: Sequence[int], settings: Settings) -> Steps | None:
    """Return the optimizer steps of a round. sizes: sentences of each text.

    None: they are over tokens or blocks of text or of a client class of one's own, so they are known only when they are made.
    """
    if settings.task != "translation" or settings.client or settings.tokens_per_batch:
        return None
    window, epochs = settings.batch_size * settings.accumulation, settings.local_epochs
    whole, rest = divmod(_num_drawn(sizes, settings), window)
    last = {rest: epochs} if rest and (whole == 0 or not settings.whole_steps) else {}
    return Counter({window: whole * epochs} if whole else {}) + Counter(last)


def step_words(steps: Steps) -> str:
    """Return the sizes of steps in words."""
    usual = max(steps, key=lambda size: (steps[size], size), default=0)
    return f"steps on {min(steps, default=0)} (smallest), {usual} (usual) and {max(steps, default=0)} (largest) examples"


def _hyphens(name: str) -> str:
    return name.replace("_", "-")


def beyond(asked: str, name: str, allowed: str) -> ExchangeError:
    """Return the error for a run that exceeds the limit `name`."""
    return ExchangeError(f"the run asks for {asked}; this site's file allows {allowed} ([limits] {_hyphens(name)})")
