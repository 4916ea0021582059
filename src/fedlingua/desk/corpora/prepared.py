"""The result of preparing any corpus: its splits, an account that adds up, and how much of dev and test is also in training text."""

import gzip
import json
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from fedlingua.common.errors import CorpusError
from fedlingua.common.folders import replace_folder
from fedlingua.common.languages import Direction
from fedlingua.corpora.clean import Account
from fedlingua.corpora.read import AnyPath, Pair
from fedlingua.corpora.sizes import Sizes
from fedlingua.corpora.split import SPLITS, Split, sides

Item = TypeVar("Item")
Report = Callable[[Direction, int, int], None]
"""(direction, steps done, all steps)"""
IN_TRAIN = "in train: pairs with a sentence that the same site trains on"
IN_TRAIN_OF_THE_PAPER = "in train: by the paper's split, pairs with a sentence that the same site trains on"


@dataclass(frozen=True)
class Prepared:
    """Every direction's pairs by split, and the account of every line. note: how to read the account's table."""

    splits: Mapping[Direction, Mapping[Split, Sequence[Pair]]]
    account: Mapping[str, Any]
    note: str


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


def leaks_of_pairs(splits: Mapping[Direction, Mapping[Split, Sequence[Pair]]]) -> dict[Direction, Any]:
    """Return `leaks` for pairs in memory."""
    return leaks({d: {split: [sides(pair, d) for pair in pairs] for split, pairs in of.items()} for d, of in splits.items()})


def leaks(taken: Mapping[Direction, Mapping[Split, Collection[tuple[Hashable, Hashable]]]]) -> dict[Direction, Any]:
    """Count pairs of dev and test with a side that is in the same site's train, and in any site's.

    taken: each pair, as two values that identify its sides.
    """
    train = {direction: {side for pair in splits["train"] for side in pair} for direction, splits in taken.items()}
    anywhere = set[Hashable]().union(*train.values())
    return {
        direction: {
            split: {
                "same_site": sum(not train[direction].isdisjoint(pair) for pair in splits[split]),
                "any_site": sum(not anywhere.isdisjoint(pair) for pair in splits[split]),
            }
            for split in SPLITS
            if split != "train"
        }
        for direction, splits in taken.items()
    }


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


def gathered(
    corpus: str,
    key: str,
    no_leaks: bool,
    splits: Mapping[Direction, Mapping[Split, Sequence[Pair]]],
    files: Mapping[Direction, Sequence[AnyPath]],
    accounts: Mapping[Direction, Account],
    note: str,
    in_train: Mapping[Direction, Any] | None = None,
) -> Prepared:
    """Return the splits with each TAB replaced by a space, and their account: read = kept + dropped, kept = sizes + not_taken.

    in_train: leaks; None: count those of these splits.
    """
    clean = {d: {split: list(map(without_tabs, pairs)) for split, pairs in parts.items()} for d, parts in splits.items()}
    in_train = in_train or leaks_of_pairs(clean)
    directions = {}
    for direction, parts in splits.items():
        names = [str(path).rpartition("/")[2] for path in files[direction]]
        sizes = {split: len(pairs) for split, pairs in parts.items()}
        account = accounts[direction]
        account.check(" and ".join(names))
        directions[str(direction)] = {
            "files": names,
            "read": account.read,
            "kept": account.kept,
            "dropped": account.dropped,
            "sizes": sizes,
            "not_taken": account.kept - sum(sizes.values()),
            "tabs": sum(has_tab(pair) for pairs in parts.values() for pair in pairs),
            "also_in_train": in_train[direction],
        }
    return Prepared(clean, {"corpus": corpus, "key": key, "no_leaks": no_leaks, "directions": directions}, note)


def has_tab(pair: Pair) -> bool:
    return any("\t" in side for side in pair)


def without_tabs(pair: Pair) -> Pair:
    """Replace each TAB by a space, since a TAB would separate columns of a TSV file."""
    return Pair(pair.source.replace("\t", " "), pair.target.replace("\t", " "))


def write_splits(named: Mapping[Any, Mapping[Split, Sequence[Pair]]], account: Mapping[str, Any], target: Path) -> None:
    """Write target/<name>.<split>.tsv.gz and account.json, all at once or not at all. named: splits by site or direction."""

    def write(aside: Path) -> None:
        for name, splits in named.items():
            for split, pairs in splits.items():
                text = "".join(f"{pair.source}\t{pair.target}\n" for pair in pairs)
                # Without name and time, so that the same text gives the same bytes.
                (aside / f"{name}.{split}.tsv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        (aside / "account.json").write_text(json.dumps(account, indent=2) + "\n", encoding="utf-8")

    replace_folder(target, write)
