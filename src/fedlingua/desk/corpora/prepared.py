"""The result of preparing any corpus: its splits, an account that adds up, and how much of dev and test is also in training text."""

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlingua.common.folders import replace_folder
from fedlingua.common.languages import Direction
from fedlingua.corpora.clean import Account
from fedlingua.corpora.read import AnyPath, Pair
from fedlingua.corpora.split import SPLITS, Side, Split, seen_sides


@dataclass(frozen=True)
class Prepared:
    """Every direction's pairs by split, and the account of every line. note: how to read the account's table."""

    splits: Mapping[Direction, Mapping[Split, Sequence[Pair]]]
    account: Mapping[str, Any]
    note: str


def leaks(splits: Mapping[Direction, Mapping[Split, Sequence[Pair]]]) -> dict[Direction, Any]:
    """Count pairs of dev and test with a side that is in the same site's train, and in any site's."""
    taken = {d: {split: [seen_sides(pair, d) for pair in pairs] for split, pairs in of.items()} for d, of in splits.items()}
    train = {direction: {side for pair in parts["train"] for side in pair} for direction, parts in taken.items()}
    anywhere = set[Side]().union(*train.values())
    return {
        direction: {
            split: {
                "same_site": sum(not train[direction].isdisjoint(pair) for pair in parts[split]),
                "any_site": sum(not anywhere.isdisjoint(pair) for pair in parts[split]),
            }
            for split in SPLITS
            if split != "train"
        }
        for direction, parts in taken.items()
    }


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
    in_train = in_train or leaks(clean)
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
