"""Options and values of options that were taken out: what an experiment, a site's file or a stored run is told about them.

Each was measured and found no better than what stays, or is used by no paper's row. docs/removed.md has the figures.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fedlingua.common.errors import ConfigError
from fedlingua.settings.options import Scalar

LAST = "69079fa3"
"""The last commit that has all that is listed here."""


@dataclass(frozen=True)
class Removed:
    """An option, or a value of one, that was taken out.

    Attributes:
        instead: What to do, as the end of a sentence: "leave it out", "give send.code = '4bit'".
        without: Values with which a run behaves as it does now; None: all. A stored run with one of them is read as if it had no such key.
        spent: Whether it mattered only while a run trained: a completed run with any value can still be translated with.
    """

    instead: str
    without: tuple[Scalar, ...] | None = ()
    spent: bool = True


_LEFT_OUT: dict[str, Scalar] = {
    "adapter.init": "paper",
    "adapter.init-std": 0.02,
    "adapter.place": "after-dropout",
    "head-vocabulary": "all",
    "keep.confidence": 0.95,
    "loss-temperature": 1.0,
    "meta.noise": 0.25,
    "meta.second-filter-weight": 0.001,
    "meta.temperature": 0.1,
    "send.zero-norm": "send",
    "server.beta1": 0.9,
    "server.decay": 1e-3,
    "signature.algorithm": "k-means",
    "signature.distance": "cosine",
    "signature.examples": 0,
}
"""Keys that no experiment set to anything but this value, with which all runs go now."""

_SMALL = Removed("give tensor-set = 'lora' or 'adapters'", spent=False)


def _by_flower(strategy: str) -> Removed:
    return Removed(f"give strategy = 'flwr.serverapp.strategy:{strategy}'")


KEYS: dict[str, Removed] = {
    **{key: Removed(f"leave it out: runs have {value!r}", (value,)) for key, value in _LEFT_OUT.items()},
    "deadline.evaluate-s": Removed("give deadline.phase-s", None),
    "deadline.finish-s": Removed("give deadline.phase-s and deadline.keep-s", None),
    "send.missing": Removed("leave it out: what a site did not send counts with what it received", ("previous",)),
    "own-model": Removed("leave it out; the last phase gives each site a model of its own (keep.choose)", ("none",), spent=False),
    "private-layers": Removed(
        "leave it out, or give tensor-set = 'controllers', of which only the added layers travel", ("",), spent=False
    ),
    "scaffold": Removed("leave it out", (False,), spent=False),
    "server.extrapolation": Removed("leave it out", (False,)),
    "keep-every": Removed("leave it out; the last phase begins from the best round (fedlingua personalize)", None),
    "processes": Removed("leave it out: a site trains in one process", (1,)),
    "robust.byzantine-sites": Removed("give the number to the strategy, as in FedTrimmedAvg(beta=0.2)", (1,)),
}
"""Key -> what became of it."""
VALUES: dict[tuple[str, Scalar], tuple[Scalar, Removed]] = {
    ("aggregation", "krum"): ("fed-mean", _by_flower("Krum(num_malicious_nodes=1)")),
    ("aggregation", "median"): ("fed-mean", _by_flower("FedMedian")),
    ("aggregation", "multi-krum"): ("fed-mean", _by_flower("MultiKrum(num_malicious_nodes=1, num_nodes_to_select=4)")),
    ("aggregation", "trimmed-mean"): ("fed-mean", _by_flower("FedTrimmedAvg(beta=0.2)")),
    ("meta.estimator", "cross"): ("own", Removed("give meta.estimator = 'own' or 'loss'")),
    ("optimizer-state", "averaged"): ("kept", Removed("give optimizer-state = 'kept'", spent=False)),
    ("tensor-set", "ia3"): ("lora", _SMALL),
    ("tensor-set", "lora-sb"): ("lora", _SMALL),
    ("tensor-set", "norms"): ("lora", _SMALL),
}
"""(Key, value) -> the value as which a completed run is read, and what became of it."""

LIMITS = {"max-processes": "processes", "min-adapter-init-std": "adapter.init-std"}
"""Limit of a site on a key that was taken out -> the key."""


def refuse_removed(key: str, value: Scalar) -> None:
    """Raise ConfigError for a key or a value that was taken out, with what to use."""
    gone = KEYS.get(key) or (VALUES[key, value][1] if isinstance(value, str) and (key, value) in VALUES else None)
    if gone:
        what = key if key in KEYS else f"{key} = {value!r}"
        raise ConfigError(
            f"{what} was taken out; {gone.instead}. The last version that has it is commit {LAST} (docs/removed.md)"
        )


def without_removed(config: Mapping[str, Scalar], completed: bool = False) -> dict[str, Scalar]:
    """Return a stored run's config without keys that were taken out, where its value of them makes no difference.

    completed: whether the run has ended, so that what mattered only while it trained makes none either.
    """
    left = dict[str, Scalar]()
    for key, value in config.items():
        gone = KEYS.get(key)
        if gone and (gone.without is None or value in gone.without or (completed and gone.spent)):
            continue
        stand_in, of_value = VALUES.get((key, value), (value, None))
        left[key] = stand_in if of_value and completed and of_value.spent else value
    return left
