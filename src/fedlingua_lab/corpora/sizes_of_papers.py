"""Splits of the sizes that a paper gives, kept apart from each other."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sized
from itertools import islice
from typing import TypeVar

from fedlingua.common.errors import CorpusError
from fedlingua.common.languages import Direction
from fedlingua.corpora.clean import Account
from fedlingua.corpora.sizes import Sizes
from fedlingua.corpora.split import SPLITS, Split

Item = TypeVar("Item")
Report = Callable[[Direction, int, int], None]
"""(direction, steps done, all steps)"""
IN_TRAIN = "in train: pairs with a sentence that the same site trains on"
IN_TRAIN_OF_THE_PAPER = "in train: by the paper's split, pairs with a sentence that the same site trains on"


def kept_apart(
    orders: Mapping[Direction, Mapping[Split, Iterable[Item]]],
    sides_of: Callable[[Item, Direction], Iterable[Hashable]],
    sizes: Mapping[Direction, Sizes] | None = None,
) -> dict[Direction, dict[Split, list[Item]]]:
    """Return the first pairs of every split: test, then dev, then train; no side is in two splits, at any site.

    Args:
        orders: Items from which each split is taken; if splits share an iterator, each continues where the one before stopped.
        sides_of: Returns values that identify the two sides of an item; none if splits need not be kept apart.
        sizes: Number of items to take; None: all.
    """
    taken: dict[Direction, dict[Split, list[Item]]] = {direction: {} for direction in orders}
    elsewhere: set[Hashable] = set()
    for split in reversed(SPLITS):
        for direction, order in orders.items():
            apart = (item for item in order[split] if elsewhere.isdisjoint(sides_of(item, direction)))
            taken[direction][split] = list(islice(apart, sizes[direction].of(split)) if sizes else apart)
        elsewhere.update(side for direction in orders for item in taken[direction][split] for side in sides_of(item, direction))
    return {direction: {split: splits[split] for split in SPLITS} for direction, splits in taken.items()}


def check_sizes(
    taken: Mapping[Direction, Mapping[Split, Sized]], wanted: Mapping[Direction, Sizes], accounts: Mapping[Direction, Account]
) -> None:
    """Raise CorpusError if a split of any corpus is empty or smaller than wanted; names all such splits."""
    short = []
    for direction, splits in taken.items():
        for split in SPLITS:
            got, size, account = len(splits[split]), wanted[direction].of(split), accounts[direction]
            if got < max(1, size):
                counts = f"{got} of {size}" if size else "a hundredth of its lines is none"
                short.append(f"  {direction}, {split}: {counts}; read {account.read}, usable {account.kept}")
    if short:
        raise CorpusError(
            "the corpus is too small for the paper's sizes; is every download whole? Smaller text needs no preparing: "
            "a federation file takes it as it is, with [split] mode = 'paper' and [sizes]\n" + "\n".join(short)
        )
