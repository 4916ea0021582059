"""The splits and sizes of Liu et al. 2023 (§3.1, appendix A), from the corpora that the paper uses.

As in the paper's public code, the lines of a pair are shuffled and cut 60/20/20. Each split takes its first lines whose two sides have
more than one word (zh, th: character): for TED2020 as many as in table 6, for Europarl a hundredth of the split's lines. The cut to a
multiple of 128 is left to the federation file (`train = 9984` of these 10,000).

That split leaks: talks and speeches repeat sentences, so a sentence can be in two splits, at one site or at two. `no_leaks` takes the
same test sentences, skips those that are in test when it takes dev, and those that are in either when it takes train. Whole components
of equal sentences would avoid leaks too, but need all sentences of all pairs in memory; this needs one number for each sentence.
"""

import hashlib
import random
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fedlingua.common.languages import Direction
from fedlingua.corpora.clean import Account, CleaningRules, fault, judged, stripped
from fedlingua.corpora.read import LineFiles
from fedlingua.corpora.sizes import Sizes
from fedlingua.corpora.split import SPLITS, Split
from fedlingua.desk.corpora.prepared import Prepared, gathered, leaks
from fedlingua_lab.corpora.opus import OpusCorpus, find_all
from fedlingua_lab.corpora.sizes_of_papers import IN_TRAIN_OF_THE_PAPER, Report, check_sizes, kept_apart

CLEANING = CleaningRules(min_words=2, max_words=0, max_ratio=0.0, drop_duplicates=False)
UNIFORM = Sizes(train=5000, dev=1500, test=1500)
"""Sizes of every pair in appendix C (table 8), which are given by the paper's public code, not by its text."""


@dataclass(frozen=True)
class PaperCorpus:
    """What the paper takes from a corpus. sizes: those of each direction; None: a hundredth of each split's lines."""

    opus: OpusCorpus
    sizes: Mapping[Direction, Sizes | None]


def _directions(sizes: Mapping[str, Sizes | None]) -> dict[Direction, Sizes | None]:
    return {Direction(*text.split("-")): size for text, size in sizes.items()}


_LARGE, _MIDDLE, _SMALL = Sizes(10_000, 3000, 3000), UNIFORM, Sizes(2000, 600, 600)
PAPER_CORPORA = {
    "ted2020": PaperCorpus(
        OpusCorpus("TED2020", {"zh": "zh_cn"}),
        _directions(
            {
                "zh-en": _LARGE,
                "th-en": _MIDDLE,
                "ar-en": _LARGE,
                "he-en": _SMALL,
                "fi-en": _SMALL,
                "et-en": _SMALL,
                "ru-en": _LARGE,
                "sl-en": _SMALL,
            }
        ),
    ),
    "europarl": PaperCorpus(
        OpusCorpus("Europarl"),
        _directions(
            dict.fromkeys(
                ("de-fr", "nl-pl", "en-lt", "fr-nl", "it-sl", "es-lv", "pl-en", "sl-es", "sl-lt", "lt-de", "lv-it", "lv-pl")
            )
        ),
    ),
}


@dataclass
class _Lines:
    """One direction's corpus by line number: whether the line may be taken, and a number for the sentence on either side."""

    files: LineFiles
    account: Account = field(default_factory=Account)
    usable: bytearray = field(default_factory=bytearray)
    sources: "array[int]" = field(default_factory=lambda: array("Q"))
    targets: "array[int]" = field(default_factory=lambda: array("Q"))

    def sides(self, line: int) -> tuple[int, int]:
        return self.sources[line], self.targets[line]


def prepare(corpus: PaperCorpus, folder: Path, key: str, no_leaks: bool, report: Report) -> Prepared:
    """Read every pair twice: first to choose lines, then to take them.

    Raises:
        CorpusError: files are missing or cannot be read, or a pair is too small for its sizes; names all such pairs.
    """
    corpora: dict[Direction, _Lines] = {}
    files = find_all(corpus.opus, corpus.sizes, folder)
    for done, direction in enumerate(files):
        report(direction, done, 2 * len(files))
        corpora[direction] = _read(files[direction], direction)
    orders = {direction: paper_order(len(lines.usable), key, direction) for direction, lines in corpora.items()}
    sizes = {
        direction: corpus.sizes[direction] or Sizes(*(len(order[split]) // 100 for split in SPLITS))
        for direction, order in orders.items()
    }
    paper = _take(corpora, orders, sizes, no_leaks=False)
    taken = _take(corpora, orders, sizes, no_leaks=True) if no_leaks else paper
    accounts = {direction: lines.account for direction, lines in corpora.items()}
    check_sizes(taken, sizes, accounts)
    pairs = {}
    for done, (direction, lines) in enumerate(corpora.items(), start=len(corpora)):
        report(direction, done, 2 * len(files))
        wanted = {line for numbers in taken[direction].values() for line in numbers}
        stored = {number: stripped(pair) for number, pair in enumerate(lines.files.read()) if number in wanted}
        pairs[direction] = {split: [stored[line] for line in taken[direction][split]] for split in SPLITS}
    report(direction, 2 * len(files), 2 * len(files))
    paths = {direction: lines.files.paths() for direction, lines in corpora.items()}
    sides = {d: {split: list(map(corpora[d].sides, lines)) for split, lines in splits.items()} for d, splits in paper.items()}
    note = IN_TRAIN_OF_THE_PAPER
    return gathered(corpus.opus.name, key, no_leaks, pairs, paths, accounts, note, leaks(sides))


def paper_order(lines: int, key: str, direction: Direction) -> dict[Split, Sequence[int]]:
    """Return line numbers, shuffled and cut 60/20/20; the remainder of rounding goes to test, as in the paper's code."""
    order = array("Q", range(lines))
    random.Random(f"{key}/{direction}").shuffle(order)
    train, dev = int(lines * 0.6), int(lines * 0.2)
    return {"train": order[:train], "dev": order[train : train + dev], "test": order[train + dev :]}


def _read(files: LineFiles, direction: Direction) -> _Lines:
    lines = _Lines(files)
    reason = partial(fault, direction=direction, rules=CLEANING)
    for pair, against in judged(files.read(), reason, lines.account):
        lines.usable.append(against is None)
        lines.sources.append(_number(direction.source, pair.source))
        lines.targets.append(_number(direction.target, pair.target))
    return lines


def _number(language: str, sentence: str) -> int:
    """Return a hash of 64 bits of a sentence. Among twenty million, the probability that any two are equal is 1 in 100,000."""
    return int.from_bytes(hashlib.blake2b(f"{language}\x1f{sentence}".encode(), digest_size=8).digest(), "big")


def _take(
    corpora: Mapping[Direction, _Lines],
    orders: Mapping[Direction, Mapping[Split, Sequence[int]]],
    sizes: Mapping[Direction, Sizes],
    no_leaks: bool,
) -> dict[Direction, dict[Split, list[int]]]:
    """Return the numbers of every split's first usable lines, as shuffled; test is the same with and without `no_leaks`."""
    usable = {d: {split: filter(lines.usable.__getitem__, orders[d][split]) for split in SPLITS} for d, lines in corpora.items()}
    return kept_apart(usable, lambda line, direction: corpora[direction].sides(line) if no_leaks else (), sizes)
