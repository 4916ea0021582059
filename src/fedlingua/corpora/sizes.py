"""Exact sizes: how many sentences of each split a site uses, no fewer and no more.

A federation file gives them in [sizes], or at a site (train, dev, test), whose own sizes replace the federation's. The sentences
are the first of the split after a shuffle by keyed hash, which does not depend on other sites. A split by the paper's rule is
shuffled already, and a split that comes as a file is not shuffled.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedlingua.common.errors import ConfigError, CorpusError
from fedlingua.corpora.read import Pair
from fedlingua.corpora.split import SPLITS, Split, SplitRules, position

REGISTER_SENTENCES = 1000
"""Size of a phrasebook register if neither `sentences` nor a size is given."""
LARGEST_REGISTER = 50_000


@dataclass(frozen=True)
class Sizes:
    """Number of sentences of each split, exact or at most; 0: all that there are."""

    train: int = 0
    dev: int = 0
    test: int = 0

    def of(self, split: Split) -> int:
        """Return the number of sentences of a split, or 0."""
        return int(getattr(self, split, 0))

    def before(self, other: "Sizes") -> "Sizes":
        """Return these sizes, with those of `other` where they are 0."""
        return Sizes(*(self.of(split) or other.of(split) for split in SPLITS))


def read_sizes(raw: Mapping[str, Any], where: str) -> Sizes:
    """Read the optional keys train, dev and test of a table; raise ConfigError unless they are whole numbers of 1 or more."""
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
    """Return the first `size` pairs of a split after its shuffle; all of them, in corpus order, if `size` is 0."""
    if size == 0:
        return pairs
    if rules.mode in ("paper", "given"):
        return pairs[:size]
    return sorted(pairs, key=lambda pair: position(rules.key, "size", split, *pair))[:size]


def check_found(site: str, splits: Mapping[Split, Sequence[Pair]], sizes: Sizes) -> None:
    """Raise CorpusError, naming all splits that are too small, if a corpus has fewer sentences than the sizes."""
    short = [split for split in SPLITS if len(splits[split]) < sizes.of(split)]
    if short:
        counts = ", ".join(f"{split} {len(splits[split])} of {sizes.of(split)}" for split in short)
        raise CorpusError(
            f"site {site}: too few sentences for the requested sizes ({counts}); {sum(map(len, splits.values()))} were kept in all: "
            f"give more text, other shares in [split], or ask for fewer ({', '.join(short)} of the site or in [sizes])"
        )


def first_sentences(sizes: Sizes, rules: SplitRules) -> int:
    """Return how many sentences to generate so that the sizes are most likely met, with a reserve of a tenth for cleaning."""
    shares = zip(SPLITS, (rules.train, rules.dev, rules.test), strict=True)
    wanted = [sizes.of(split) / share for split, share in shares if sizes.of(split) and share > 0]
    return min(LARGEST_REGISTER, math.ceil(max(wanted) * 11 / 10) + 20) if wanted else REGISTER_SENTENCES


def more_sentences(sentences: int, splits: Mapping[Split, Sequence[Pair]], sizes: Sizes) -> int:
    """Return how many sentences to generate next if `sentences` gave these splits; the same if no more is needed or allowed."""
    short = [sizes.of(split) / max(1, len(splits[split])) for split in SPLITS if len(splits[split]) < sizes.of(split)]
    return min(LARGEST_REGISTER, math.ceil(sentences * max(short) * 11 / 10)) if short else sentences
