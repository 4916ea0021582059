"""The papers' methods: rows of their tables, by name."""

from dataclasses import dataclass

from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import nearest


@dataclass(frozen=True)
class Method:
    """A row of the paper's tables: which tensors, averaged among whom.

    clustering: "none" (everybody), "random", "gradients", "families", or "alone" (every site by itself: local-only). `trains`: whether
    anything trains; `travels`: whether what trains leaves the site; `pooled`: whether all sites' text is trained on as one. selection:
    which part of an update is sent, see SELECTIONS. optimizer: what the server makes of the sites' mean, see SERVER_OPTIMIZERS. pools: of
    which sites' text a pooled method trains on: "all", "public", or one site's, by its name.
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
"""What a site sends of its update: everything, or by a rule of fedlingua.selection. -g: what deviates most, -l: what deviates least."""

AGGREGATIONS = ("fed-mean", "fed-avg", "by-loss", "median", "trimmed-mean", "norm-clip", "krum", "multi-krum")
"""How a cluster's updates become one: means, and rules that a few lying sites do not decide."""

SERVER_OPTIMIZERS = ("none", "sgd", "adam", "adamw", "yogi", "lamb")
"""What makes the next tensors of the sites' mean: nothing more, or a step of an optimiser that the server keeps from round to round."""

OWN_MODELS = ("none", "ditto", "mr-mtl", "shared-private")
"""Models that sites train for themselves; the server averages those of all but ditto, which has one beside what travels."""

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
"""In the order of the papers' tables: Liu et al. 2023, 1 and 2, where `base` stands beside them all; Chu et al. 2024, 1; Manoel et al.
2022, 2, 3 and 5. Beside them stands `silo-NAME`, the model of one site's own text."""

CENTRALIZED, SILO = "centralized", "silo-"
"""How the names of methods begin that train on text in one place."""
METHOD_NAMES = ", ".join([*METHODS, f"{SILO}<site>"])
"""For people."""


def method_named(name: str) -> Method | None:
    """The method that a run config names; None when there is none. Whether the federation has such a site is told when it is read."""
    site = name.removeprefix(SILO)
    if site in ("", name, "all", "public"):  # the last two are pools of their own
        return METHODS.get(name)
    return Method("full", "alone", travels=False, pooled=True, pools=site)


def check_method(name: str) -> None:
    """Raises ConfigError for a name that no method has."""
    if method_named(name) is None:
        raise ConfigError(f"method = {name!r} is not known{nearest(name, METHODS)}; choose one of {METHOD_NAMES}")


SMALL_SETS = ("adapters", "lora", "lora-sb", "ia3", "norms")
"""Tensor sets beside which the backbone's weight matrices stay as they are."""

PAPER_LEARNING_RATES = {**dict.fromkeys(SMALL_SETS, 1e-3), "full": 5e-5, "controllers": 5e-5}
"""Liu et al. 2023, §3.3; other small sets as adapters, controllers as the full model that trains with them."""
