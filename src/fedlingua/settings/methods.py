"""The papers' methods by name, each a row of their tables."""

from dataclasses import dataclass

from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import nearest


@dataclass(frozen=True)
class Method:
    """A row of a paper's table: which tensors train, and which sites average them.

    Attributes:
        tensor_set: The tensors that train, as the option `tensor-set` names them.
        clustering: "none" (all sites together), "random", "gradients", "families", or "alone" (every site by itself: local-only).
        trains: Whether anything trains.
        travels: Whether trained tensors leave the site.
        pooled: Whether one model trains on a pool of sites' text.
        selection: Which part of an update is sent, one of SELECTIONS.
        optimizer: What the server applies to the mean, one of SERVER_OPTIMIZERS.
        pools: Whose text a pooled method trains on: "all", "public", or the name of a site.
    """

    tensor_set: str
    clustering: str
    trains: bool = True
    travels: bool = True
    pooled: bool = False
    selection: str = "all"
    optimizer: str = "none"
    pools: str = "all"


SELECTIONS = (
    *("all", "rand-send", "dp-g", "dp-l", "top-k", "apf"),
    *("fixed-g", "fixed-l", "random-g", "random-l", "metasend-g", "metasend-l"),
)
"""Rules for the part of its update that a site sends: all, or a rule of fedlingua.selection. -g: what deviates most, -l: least."""
BY_DEVIATION = ("fixed-", "random-", "metasend-")
"""Beginnings of the rules that are a threshold on deviations."""
AGREED = ("all", "rand-send", "dp-g", "dp-l", "fixed-g", "fixed-l", "random-g", "random-l")
"""Rules that secure sums allow: they can be applied to the mean, for all sites at once."""

AGGREGATIONS = ("fed-mean", "fed-avg", "by-loss", "norm-clip")
"""How a cluster's updates are averaged."""

SERVER_OPTIMIZERS = ("none", "sgd", "adam", "adamw", "yogi", "lamb")
"""How the server computes its next tensors: the sites' mean itself, or a step of an optimizer that keeps its state across rounds."""


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
    **{f"server-{name}": Method("full", "none", optimizer=name) for name in SERVER_OPTIMIZERS[1:]},
    "centralized": Method("full", "alone", travels=False, pooled=True),
    "centralized-public": Method("full", "alone", travels=False, pooled=True, pools="public"),
}
"""In the order of the papers' tables: Liu et al. 2023, 1 and 2, with `base` for comparison; Chu et al. 2024, 1; Manoel et al.
2022, 2, 3 and 5. `silo-NAME`, a model trained on one site's own text, is not listed."""

CENTRALIZED, SILO = "centralized", "silo-"
"""Prefixes of the names of methods that train on text in one place."""
METHOD_NAMES = ", ".join([*METHODS, f"{SILO}<site>"])
"""All names, for messages."""


def method_named(name: str) -> Method | None:
    """Return the method of a name, or None. Whether the federation has the site of a silo is checked when the federation is read."""
    site = name.removeprefix(SILO)
    if site in ("", name, "all", "public"):  # the last two are pools, not sites
        return METHODS.get(name)
    return Method("full", "alone", travels=False, pooled=True, pools=site)


def check_method(name: str) -> None:
    """Raise ConfigError for an unknown method."""
    if method_named(name) is None:
        raise ConfigError(f"method = {name!r} is not known{nearest(name, METHODS)}; choose one of {METHOD_NAMES}")


SMALL_SETS = ("adapters", "lora")
"""Tensor sets that leave the backbone's weight matrices frozen."""

PAPER_LEARNING_RATES = {**dict.fromkeys(SMALL_SETS, 1e-3), "full": 5e-5, "controllers": 5e-5}
"""Liu et al. 2023, §3.3; other small sets get the adapters' rate, controllers that of the full model trained with them."""
