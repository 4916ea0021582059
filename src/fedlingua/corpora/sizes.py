"""Exact sizes: so many sentences of each split, no fewer and no more.

A federation file asks for them once, in [sizes], or at a site (train, dev, test); a site's own go before the federation's. They are
taken from the front of the split after a shuffle by keyed hash, which knows nothing of other sites. A split by the paper's rule is
shuffled already, and one that came as a file is taken as it is.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedlingua.common.errors import ConfigError, CorpusError
from fedlingua.corpora.read import Pair
from fedlingua.corpora.split import SPLITS, Split, SplitRules, position

REGISTER_SENTENCES = 1000
"""Of a phrasebook register, where neither a number of sentences nor a size is given."""
LARGEST_REGISTER = 50_000


@dataclass(frozen=True)
class Sizes:
    """Sentences of each split, wanted or at most; 0: not said, as many as there are."""

    train: int = 0
    dev: int = 0
    test: int = 0

    def of(self, split: Split) -> int:
        """Sentences of this split, or 0."""
        return int(getattr(self, split, 0))

    def before(self, other: "Sizes") -> "Sizes":
        """These, and the other's where these do not ask."""
        return Sizes(*(self.of(split) or other.of(split) for split in SPLITS))


def read_sizes(raw: Mapping[str, Any], where: str) -> Sizes:
    """Read the keys train, dev and test of a table, each optional; ConfigError for anything but a whole number, 1 or above."""
    for split in SPLITS:
        value = raw.get(split, 1)
        if type(value) is not int or value < 1:
            raise ConfigError(
                f"{where}: {split} = {value!r}; wanted a whole number of sentences, 1 or above, or leave it out to take all"
            )
    return Sizes(*(raw.get(split, 0) for split in SPLITS))


def check_limits(sizes: Sizes, limits: Sizes, where: str) -> None:
    """Raise ConfigError for a size above the limit of its split."""
    for split in SPLITS:
        if 0 < limits.of(split) < sizes.of(split):
            raise ConfigError(
                f"{where}: {split} = {sizes.of(split)} is above max-{split} = {limits.of(split)} in [split]; "
                f"ask for no more, or raise max-{split}"
            )


def take(pairs: Sequence[Pair], split: Split, size: int, rules: SplitRules) -> Sequence[Pair]:
    """The first `size` pairs of a split after its shuffle; all of them, in corpus order, when `size` is 0."""
    if size == 0:
        return pairs
    if rules.mode in ("paper", "given"):
        return pairs[:size]
    return sorted(pairs, key=lambda pair: position(rules.key, "size", split, *pair))[:size]


def check_found(site: str, splits: Mapping[Split, Sequence[Pair]], sizes: Sizes) -> None:
    """Raise CorpusError for a corpus too small for the sizes asked, with every split that is."""
    short = [split for split in SPLITS if len(splits[split]) < sizes.of(split)]
    if short:
        counts = ", ".join(f"{split} {len(splits[split])} of {sizes.of(split)}" for split in short)
        raise CorpusError(
            f"site {site}: too few sentences for the requested sizes ({counts}); {sum(map(len, splits.values()))} were kept in all: "
            f"give more text, other shares in [split], or ask for fewer ({', '.join(short)} of the site or in [sizes])"
        )


def first_sentences(sizes: Sizes, rules: SplitRules) -> int:
    """How many sentences to have of a register so that the sizes will most likely be met, with a tenth to spare for cleaning."""
    shares = zip(SPLITS, (rules.train, rules.dev, rules.test), strict=True)
    wanted = [sizes.of(split) / share for split, share in shares if sizes.of(split) and share > 0]
    return min(LARGEST_REGISTER, math.ceil(max(wanted) * 11 / 10) + 20) if wanted else REGISTER_SENTENCES


def more_sentences(sentences: int, splits: Mapping[Split, Sequence[Pair]], sizes: Sizes) -> int:
    """How many to have instead of `sentences`, which gave these splits: as many as before where that is enough, or no more would do."""
    short = [sizes.of(split) / max(1, len(splits[split])) for split in SPLITS if len(splits[split]) < sizes.of(split)]
    return min(LARGEST_REGISTER, math.ceil(sentences * max(short) * 11 / 10)) if short else sentences
