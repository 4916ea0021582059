"""The run config as attributes, and what follows from it; fedlingua.settings.checks makes it of what a user wrote."""

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import fedlingua_demo
from fedlingua.common.files import resolve
from fedlingua.settings.methods import PAPER_LEARNING_RATES, Method, method_named
from fedlingua.settings.metrics import metric_names

Scalar = str | int | float | bool
Phase = Literal["join", "train", "send", "evaluate", "finish"]

MAY_CHANGE = (
    "data-dir",
    "run-dir",
    "resume",
    "quorum",
    "below-quorum",
    "wait-s",
    "deadline-s",
    "join-deadline-s",
    "evaluate-deadline-s",
    "finish-deadline-s",
    "max-bad-replies",
    "keep-translations",
    "keep-every",
    "track",
)
"""Keys that a resumed run may have otherwise than its first attempt: places, how long to wait for whom, what is kept to look at, and who
is told. No run's hash knows of them."""

_OFF = {
    "sample_replacement": True,
    "schedule": "constant",
    "warmup_steps": 0,
    "clip_norm": 0.0,
    "label_smoothing": 0.0,
    "tokens_per_batch": 0,
    "micro_tokens": 0,
    "head_chunk": 0,
    "head_vocabulary": "all",
    "gradient_checkpointing": False,
    "processes": 1,
    "adapter_place": "before-dropout",
    "metrics": "bleu,chrf",
    "comet_model": "wmt22-comet-da",
}
"""Options of training and scoring, with the value under which a run is as before they came: its hash leaves that out."""


DEMO_FEDERATION = ("demo", "experiments/federations/phrasebook.toml")
"""What a run config names the demo's sites by; the path is that of older runs."""


@dataclass(frozen=True)
class Settings:
    """The run config as attributes; what each means and its default stands once, in pyproject.toml `[tool.flwr.app.config]`."""

    task: str
    method: str
    federation: str
    backbone: str
    backbone_revision: str
    backbone_weights: str
    data_dir: str
    run_dir: str
    strategy: str
    aggregation: str
    loss_temperature: float
    byzantine_sites: int
    clip_update_norm: float
    server_optimizer: str
    server_learning_rate: float
    server_schedule: str
    server_decay: float
    server_momentum: float
    server_beta1: float
    server_beta2: float
    server_epsilon: float
    server_weight_decay: float
    cluster_by: str
    cluster_parts: str
    num_clusters: int
    signature_adapter: str
    signature_examples: int
    signature_distance: str
    signature_algorithm: str
    signature_form: str
    signature_dim: int
    signature_clip: float
    signature_noise: float
    signature_delta: float
    selection: str
    send_share: float
    fixed_threshold: str
    random_threshold: str
    zero_norm: str
    missing: str
    apf_window: int
    apf_threshold: float
    meta_estimator: str
    meta_scale: str
    meta_frozen: bool
    meta_neurons: int
    meta_learning_rate: float
    meta_batches: int
    meta_batch_size: int
    meta_temperature: float
    meta_noise: float
    meta_bytes_weight: float
    second_filter: bool
    second_filter_weight: float
    seed: int
    rounds: int
    patience: int
    min_gain: float
    best_by: str
    batch_size: int
    accumulation: int
    local_epochs: int
    sample_least: int
    sample_share: float
    sample_replacement: bool
    sampling_temperature: float
    optimizer: str
    optimizer_state: str
    optimizer_epsilon: float
    weight_decay: float
    learning_rate: float
    schedule: str
    warmup_steps: int
    clip_norm: float
    label_smoothing: float
    tokens_per_batch: int
    micro_tokens: int
    head_chunk: int
    head_vocabulary: str
    gradient_checkpointing: bool
    mask_share: float
    max_tokens: int
    whole_steps: bool
    tensor_set: str
    adapter_layers: str
    adapter_dim: int
    adapter_init: str
    adapter_init_std: float
    adapter_place: str
    controllers: int
    lora_rank: int
    lora_alpha: float
    lora_targets: str
    evaluate_every: int
    evaluate_share: float
    beam: int
    max_decode_tokens: int
    score_split: str
    overlap: str
    metrics: str
    comet_model: str
    keep_translations: int
    keep_every: int
    track: str
    quorum: float
    below_quorum: str
    wait_s: float
    deadline_s: float
    join_deadline_s: float
    evaluate_deadline_s: float
    finish_deadline_s: float
    max_update_norm: float
    max_update_ratio: float
    max_site_share: float
    max_bad_replies: int
    resume: bool
    threads: int
    processes: int
    precision: str
    device: str

    @property
    def how(self) -> Method:
        method = method_named(self.method)
        assert method is not None, f"{self.method} was checked"
        return method

    @property
    def signature_adapters(self) -> dict[str, str]:
        """Name of a signature -> its adapter: one for each part that is clustered, or of one adapter alone "signature", which is both's."""
        adapters = {name.strip().partition(".")[0]: name.strip() for name in self.signature_adapter.split(",")}
        if len(adapters) == 1:
            return {"signature": self.signature_adapter.strip()}
        return {part: adapters[part] for part in ("encoder", "decoder") if self.cluster_parts in ("both", part)}

    @property
    def trained_set(self) -> str:
        """Name of the run's tensor set: the method's, unless `tensor-set` says another."""
        return self.tensor_set or self.how.tensor_set

    @property
    def selected_by(self) -> str:
        """Name of the rule for what a site sends: the method's, unless `selection` says another."""
        return (self.selection or self.how.selection) if self.how.travels else "all"

    @property
    def optimized_by(self) -> str:
        """Name of the server's optimiser: the method's, unless `server-optimizer` says another."""
        return (self.server_optimizer or self.how.optimizer) if self.how.travels else "none"

    @property
    def by_deviation(self) -> bool:
        """Whether the rule is a threshold on deviations."""
        return self.selected_by.startswith(("fixed-", "random-", "metasend-"))

    @property
    def selects_numbers(self) -> bool:
        """Whether the rule sends single numbers rather than whole tensors."""
        return self.selected_by in ("top-k", "apf")

    @property
    def keep(self) -> Literal["g", "l"]:
        """Which side of a threshold the rule sends: what deviates more, or less."""
        return "l" if self.selected_by.endswith("-l") else "g"

    @property
    def compares_rounds(self) -> bool:
        """Whether the rule compares an update with the site's own tensors of the round before."""
        return self.by_deviation or self.selected_by in ("dp-g", "dp-l")

    @property
    def remembers(self) -> bool:
        """Whether a site keeps something of one round for the selection of the next."""
        return self.compares_rounds or self.selected_by == "apf"

    @property
    def learns_threshold(self) -> bool:
        """Whether a round has MetaSend's two phases."""
        return self.selected_by in ("metasend-g", "metasend-l")

    @property
    def asks_own_terms(self) -> bool:
        """Whether every site is asked, in every round, what its own update did to its dev loss."""
        return self.learns_threshold and not self.meta_frozen and (self.meta_estimator == "own" or self.second_filter)

    @property
    def draws(self) -> bool:
        """Whether a round trains on a sample of a site's text."""
        return self.sample_least > 0 or self.sample_share > 0

    @property
    def more_metrics(self) -> list[str]:
        """What sites measure at the end besides BLEU and chrF."""
        return [name for name in metric_names(self.metrics) if name not in ("bleu", "chrf")]

    @property
    def step_learning_rate(self) -> float:
        return self.learning_rate or PAPER_LEARNING_RATES[self.trained_set]

    @property
    def federation_path(self) -> Path:
        return fedlingua_demo.FEDERATION if self.federation in DEMO_FEDERATION else resolve(self.federation)

    def deadline_of(self, phase: Phase) -> float:
        """Seconds for one phase; `deadline-s` where the phase has none of its own."""
        own = {"join": self.join_deadline_s, "evaluate": self.evaluate_deadline_s, "finish": self.finish_deadline_s}
        return own.get(phase) or self.deadline_s

    def flat(self) -> dict[str, Scalar]:
        """The run config again, keys with hyphens."""
        return {key_of(name): value for name, value in dataclasses.asdict(self).items()}

    def hash(self) -> str:
        """Of the settings that can change tensors or scores when every site answers, not of the files that they name."""
        without_effect = {*MAY_CHANGE, *self._without_effect()}
        flat = {key: value for key, value in self.flat().items() if key not in without_effect}
        if self.federation in DEMO_FEDERATION:
            flat["federation"] = DEMO_FEDERATION[-1]
        return hashlib.sha256(json.dumps(flat, sort_keys=True).encode()).hexdigest()[:16]

    def _without_effect(self) -> Iterator[str]:
        """Keys of what the method or its tensor set does not have."""
        clusters, trained = self.how.clustering, self.trained_set
        if clusters in ("none", "alone"):
            yield from ("cluster-by", "cluster-parts", "num-clusters")
        if clusters != "gradients":
            yield from (key for key in self.flat() if key.startswith("signature-"))
        elif self.signature_form == "raw":
            yield from ("signature-dim", "signature-clip", "signature-noise", "signature-delta")
        if trained != "controllers":
            yield "controllers"
        if trained != "lora":
            yield from ("lora-rank", "lora-alpha", "lora-targets")
        if trained != "adapters":
            yield from ("adapter-dim", "adapter-init", "adapter-init-std", "adapter-place")
        if self.overlap in ("off", "report"):
            yield "overlap"
        if self.backbone_weights == "published":
            yield "backbone-weights"
        yield from ("beam", "max-decode-tokens") if self.task == "masked-language" else ("mask-share",)
        yield from self._without_effect_on_training()
        yield from self._without_effect_at_the_server()
        yield from self._without_effect_on_selection()

    def _without_effect_on_training(self) -> Iterator[str]:
        if self.task == "translation":
            yield "task"
        if self.optimizer == "sgd":
            yield "optimizer-epsilon"
        yield from (key_of(name) for name, off in _OFF.items() if getattr(self, name) == off)
        if not self.draws:
            yield "sample-replacement"
        if self.tokens_per_batch:
            yield from ("batch-size", "whole-steps")
        if self.sampling_temperature == 1 or not (self.how.pooled or self.aggregation == "fed-avg"):
            yield "sampling-temperature"

    def _without_effect_at_the_server(self) -> Iterator[str]:
        optimizer = self.optimized_by
        if self.aggregation != "by-loss":
            yield "loss-temperature"
        if self.aggregation not in ("fed-avg", "by-loss") or self.max_site_share == 1:
            yield "max-site-share"
        if self.aggregation not in ("trimmed-mean", "krum", "multi-krum"):
            yield "byzantine-sites"
        if self.aggregation != "norm-clip":
            yield "clip-update-norm"
        if optimizer == self.how.optimizer:
            yield "server-optimizer"
        if optimizer == "none":
            yield from (key for key in self.flat() if key.startswith("server-"))
        elif optimizer == "sgd":
            yield from ("server-beta1", "server-beta2", "server-epsilon")
        else:
            yield "server-momentum"
        if self.server_schedule != "linear":
            yield "server-decay"

    def _without_effect_on_selection(self) -> Iterator[str]:
        rule = self.selected_by
        if rule == self.how.selection:
            yield "selection"
        if rule == "all":
            yield "missing"
        if rule not in ("rand-send", "top-k"):
            yield "send-share"
        if not rule.startswith("fixed-"):
            yield "fixed-threshold"
        if not rule.startswith("random-"):
            yield "random-threshold"
        if not self.by_deviation:
            yield "zero-norm"
        if rule != "apf":
            yield from ("apf-window", "apf-threshold")
        if not self.learns_threshold:
            yield from (key for key in self.flat() if key.startswith("meta-"))
        elif self.meta_estimator != "loss":
            yield "meta-noise"
        if not (self.learns_threshold and self.second_filter):
            yield from ("second-filter", "second-filter-weight")


def known_keys() -> list[str]:
    return [key_of(field.name) for field in dataclasses.fields(Settings)]


def key_of(name: str) -> str:
    return name.replace("_", "-")
