"""Splits of the sizes that a paper gives, kept apart from each other."""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from fedlingua.common.errors import CorpusError
from fedlingua.common.languages import Direction
from fedlingua.corpora.clean import Account
from fedlingua.corpora.read import Pair
from fedlingua.corpora.sizes import Sizes
from fedlingua.corpora.split import SPLITS, Side, Split, seen_sides

Splits = dict[Direction, dict[Split, list[Pair]]]
Note = Callable[[str], None]
"""Called with a line of progress."""
IN_TRAIN = "in train: by the split without --no-leaks, pairs with a sentence that the same site trains on"


def kept_apart(
    orders: Mapping[Direction, Mapping[Split, Iterable[Pair]]], sizes: Mapping[Direction, Sizes] | None = None
) -> Splits:
    """Return the first pairs of every split, as many as `sizes` or all: test, then dev, then train, without a sentence in two, at any site.

    Splits that share an iterator of `orders` each continue where the one before stopped.
    """
    taken: Splits = {direction: {split: [] for split in SPLITS} for direction in orders}
    elsewhere: set[Side] = set()
    for split in reversed(SPLITS):
        for direction, order in orders.items():
            apart = (pair for pair in order[split] if elsewhere.isdisjoint(seen_sides(pair, direction)))
            taken[direction][split] += islice(apart, sizes[direction].of(split) if sizes else None)
        elsewhere.update(side for direction in orders for pair in taken[direction][split] for side in seen_sides(pair, direction))
    return taken


def check_sizes(taken: Splits, wanted: Mapping[Direction, Sizes], accounts: Mapping[Direction, Account]) -> None:
    """Raise CorpusError if a split of any corpus is empty or smaller than wanted; names all such splits."""
    short = []
    for direction, splits in taken.items():
        for split, pairs in splits.items():
            size, account = wanted[direction].of(split), accounts[direction]
            if len(pairs) < max(1, size):
                counts = f"{len(pairs)} of {size}" if size else "a hundredth of its lines is none"
                short.append(f"  {direction}, {split}: {counts}; read {account.read}, usable {account.kept}")
    if short:
        raise CorpusError(
            "the corpus is too small for the paper's sizes; is every download whole? Smaller text needs no preparing: "
            "a federation file takes it as it is, with [split] mode = 'paper' and [sizes]\n" + "\n".join(short)
        )
