"""The run config, checked once at the door and then frozen.

Flower hands over flat scalars and checks no types; everything a user can get wrong in them is found here, before anything loads.
"""

import dataclasses
import hashlib
import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedlingua.errors import ConfigError
from fedlingua.languages import nearest

Scalar = str | int | float | bool
Phase = Literal["join", "train", "send", "evaluate", "finish"]

APP_DIR = Path(__file__).resolve().parents[2]
"""Root of the app: the checkout, or the bundle as a node unpacked it."""


@dataclass(frozen=True)
class Method:
    """A row of the paper's tables: which tensors, averaged among whom.

    clustering: "none" (everybody), "random", "gradients", "families", or "alone" (every site by itself: local-only). `trains`: whether
    anything trains; `travels`: whether what trains leaves the site; `pooled`: whether all sites' text is trained on as one. selection:
    which part of an update is sent, see SELECTIONS.
    """

    tensor_set: str
    clustering: str
    trains: bool = True
    travels: bool = True
    pooled: bool = False
    selection: str = "all"


SELECTIONS = (
    *("all", "rand-send", "dp-g", "dp-l", "top-k", "apf"),
    *("fixed-g", "fixed-l", "random-g", "random-l", "metasend-g", "metasend-l"),
)
"""What a site sends of its update: everything, or by a rule of fedlingua.selection. -g: what deviates most, -l: what deviates least."""

METHODS: dict[str, Method] = {
    "base": Method("adapters", "none", trains=False, travels=False),
    "centralized-model": Method("full", "alone", travels=False, pooled=True),
    "centralized-adapter": Method("adapters", "alone", travels=False, pooled=True),
    "adapter-local": Method("adapters", "alone", travels=False),
    "model-fed": Method("full", "none"),
    "adapter-fed": Method("adapters", "none"),
    "adapter-random": Method("adapters", "random"),
    "adapter-gradients": Method("adapters", "gradients"),
    "adapter-families": Method("adapters", "families"),
    "pmfl": Method("full", "none"),
    **{name: Method("full", "none", selection=name) for name in SELECTIONS[1:]},
}
"""In the order of the papers' tables: Liu et al. 2023, 1 and 2, where `base` stands beside them all; Chu et al. 2024, 1."""

PAPER_LEARNING_RATES = {"adapters": 1e-3, "lora": 1e-3, "full": 5e-5, "controllers": 5e-5}
"""Liu et al. 2023, §3.3; LoRA as adapters, controllers as the full model that trains with them."""


MOST_PRIVATE_DIM = 64
"""Numbers of a private signature: noise grows with each."""

_CHOICES: dict[str, tuple[str, ...]] = {
    "method": tuple(METHODS),
    "aggregation": ("fed-mean", "fed-avg"),
    "selection": ("", *SELECTIONS),
    "zero_norm": ("send", "stay", "refuse"),
    "missing": ("previous", "renormalise"),
    "random_threshold": ("unit", "range"),
    "meta_estimator": ("cross", "own", "loss"),
    "backbone_weights": ("published", "random"),
    "tensor_set": ("", "adapters", "full", "controllers", "lora"),
    "adapter_layers": ("all", "input-end", "middle", "output-end"),
    "cluster_by": ("group", "family", "given"),
    "cluster_parts": ("both", "encoder", "decoder"),
    "signature_distance": ("cosine", "euclidean"),
    "signature_algorithm": ("agglomerative", "k-means"),
    "signature_form": ("raw", "private"),
    "best_by": ("examples", "tokens"),
    "adapter_init": ("paper", "zero"),
    "score_split": ("test", "dev"),
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
    "learning_rate": 0.0,
    "max_tokens": 4,
    "adapter_dim": 1,
    "controllers": 1,
    "lora_rank": 1,
    "num_clusters": -1,
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
    "deadline_s": 0.001,
    "join_deadline_s": 0.0,
    "evaluate_deadline_s": 0.0,
    "finish_deadline_s": 0.0,
    "wait_s": 0.0,
    "max_update_norm": 0.0,
    "max_update_ratio": 0.0,
    "max_bad_replies": 0,
    "threads": 1,
    "seed": 0,
}
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
)
"""Keys that a resumed run may have otherwise than its first attempt: places, how long to wait for whom, what is kept to look at."""


@dataclass(frozen=True)
class Settings:
    """The run config as attributes; what each means and its default stands once, in pyproject.toml `[tool.flwr.app.config]`."""

    method: str
    federation: str
    backbone: str
    backbone_revision: str
    backbone_weights: str
    data_dir: str
    run_dir: str
    strategy: str
    aggregation: str
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
    learning_rate: float
    max_tokens: int
    whole_steps: bool
    tensor_set: str
    adapter_layers: str
    adapter_dim: int
    adapter_init: str
    adapter_init_std: float
    controllers: int
    lora_rank: int
    lora_alpha: float
    lora_targets: str
    beam: int
    max_decode_tokens: int
    score_split: str
    keep_translations: int
    quorum: float
    below_quorum: str
    wait_s: float
    deadline_s: float
    join_deadline_s: float
    evaluate_deadline_s: float
    finish_deadline_s: float
    max_update_norm: float
    max_update_ratio: float
    max_bad_replies: int
    resume: bool
    threads: int
    precision: str
    device: str

    @property
    def how(self) -> Method:
        return METHODS[self.method]

    @property
    def trained_set(self) -> str:
        """Name of the run's tensor set: the method's, unless `tensor-set` says another."""
        return self.tensor_set or self.how.tensor_set

    @property
    def selected_by(self) -> str:
        """Name of the rule for what a site sends: the method's, unless `selection` says another."""
        return (self.selection or self.how.selection) if self.how.travels else "all"

    @property
    def by_deviation(self) -> bool:
        """Whether the rule is a threshold on deviations."""
        return self.selected_by.startswith(("fixed-", "random-", "metasend-"))

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
        return self.learns_threshold and (self.meta_estimator == "own" or self.second_filter)

    @property
    def step_learning_rate(self) -> float:
        return self.learning_rate or PAPER_LEARNING_RATES[self.trained_set]

    @property
    def federation_path(self) -> Path:
        return resolve(self.federation)

    def deadline_of(self, phase: Phase) -> float:
        """Seconds for one phase; `deadline-s` where the phase has none of its own."""
        own = {"join": self.join_deadline_s, "evaluate": self.evaluate_deadline_s, "finish": self.finish_deadline_s}
        return own.get(phase) or self.deadline_s

    def flat(self) -> dict[str, Scalar]:
        """The run config again, keys with hyphens."""
        return {_key(name): value for name, value in dataclasses.asdict(self).items()}

    def hash(self) -> str:
        """Of the settings that can change tensors or scores when every site answers, not of the files that they name."""
        without_effect = {*MAY_CHANGE, *self._without_effect()}
        flat = {key: value for key, value in self.flat().items() if key not in without_effect}
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
            yield from ("adapter-dim", "adapter-init", "adapter-init-std")
        if self.backbone_weights == "published":
            yield "backbone-weights"
        yield from self._without_effect_on_selection()

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
    missing = [_key(name) for name in _TYPES if name not in values]
    if missing:
        raise ConfigError(
            f"the run config lacks {', '.join(missing)}; their defaults stand in pyproject.toml, [tool.flwr.app.config]"
        )
    settings = Settings(**values)  # type: ignore[arg-type]
    _check_together(settings)
    return settings


def known_keys() -> list[str]:
    return [_key(name) for name in _TYPES]


def default_run_config(app_dir: Path = APP_DIR) -> dict[str, Scalar]:
    """The defaults, from the app's pyproject.toml."""
    with (app_dir / "pyproject.toml").open("rb") as stream:
        config: dict[str, Scalar] = tomllib.load(stream)["tool"]["flwr"]["app"]["config"]
    return config


def read_experiment(path: Path, overrides: Mapping[str, Scalar]) -> Settings:
    """Defaults, then the experiment file's keys, then `overrides`; checked.

    Raises:
        ConfigError: no such file, not TOML, or what `settings_from` refuses.
    """
    return settings_from({**default_run_config(), **read_toml(path), **overrides})


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file.

    Raises:
        ConfigError: no such file, or not TOML; with the line.
    """
    try:
        with path.open("rb") as stream:
            return tomllib.load(stream)
    except (FileNotFoundError, IsADirectoryError) as error:
        near = nearest(path.name, [p.name for p in path.parent.glob("*.toml")]) if path.parent.is_dir() else ""
        raise ConfigError(f"{path}: there is no such file{near}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error


def parse_override(text: str) -> tuple[str, Scalar]:
    """Read `key=value` as given to --set: the value is TOML where it parses as a TOML scalar, else a string."""
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--set {text!r}: wanted key=value, for example --set rounds=5")
    try:
        parsed = tomllib.loads(f"value = {value.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    return key.strip(), parsed


def resolve(path: str) -> Path:
    """An absolute path as it is; another one from the app's root."""
    given = Path(path).expanduser()
    return given if given.is_absolute() else APP_DIR / given


def _key(name: str) -> str:
    return name.replace("_", "-")


def _checked(name: str, value: Any) -> Scalar:
    wanted, key = _TYPES[name], _key(name)
    if type(value) is int and wanted is float:
        value = float(value)
    got = type(value).__name__
    if got != wanted.__name__:
        raise ConfigError(f"{key} = {value!r} is of type {got}; wanted {wanted.__name__}")
    choices = _CHOICES.get(name)
    if choices and value not in choices:
        raise ConfigError(f"{key} = {value!r} is not known{nearest(value, choices)}; choose one of {', '.join(choices)}")
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
                f"signature-dim = {settings.signature_dim}; a private signature has at most {MOST_PRIVATE_DIM} numbers"
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
    _check_selection(settings)
    if settings.backbone_weights == "random" and settings.trained_set != "full":
        raise ConfigError(
            f"backbone-weights = 'random' needs a tensor set that trains them all, and got {settings.trained_set!r}; give a method of the "
            "full model, or backbone-weights = 'published'"
        )
    if not re.fullmatch(r"(encoder|decoder)\.-?\d+\.\w+", settings.signature_adapter):
        raise ConfigError(f"signature-adapter = {settings.signature_adapter!r}; wanted part.layer.place, as in 'encoder.-1.fc2'")
    if settings.adapter_layers != "all" and settings.trained_set not in ("adapters", "lora"):
        raise ConfigError(
            f"adapter-layers = {settings.adapter_layers!r} prunes adapters, and the tensor set is {settings.trained_set!r}; "
            "give adapter-layers = 'all', or tensor-set = 'adapters' or 'lora'"
        )
    if settings.strategy and not re.fullmatch(r"[\w.]+:\w+", settings.strategy):
        raise ConfigError(f"strategy = {settings.strategy!r} is not known; give 'my_file:MyStrategy', or leave it empty")


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
    if settings.learns_threshold:
        for key, value in (("meta-temperature", settings.meta_temperature), ("meta-noise", settings.meta_noise)):
            if not 0 < value < math.inf:
                raise ConfigError(f"{key} = {value:g}; wanted more than 0, and a finite number")


def _is_number(text: str) -> bool:
    try:
        return 0 <= float(text) < math.inf
    except ValueError:
        return False
