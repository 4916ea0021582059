"""The splits and sizes of Liu et al. 2023 (§3.1, appendix A), from the corpora that the paper uses.

As in the paper's public code, the lines of a pair are shuffled and cut 60/20/20. Each split takes its first lines whose two sides have
more than one word (zh, th: character): for TED2020 as many as in table 6, for Europarl a hundredth of the split's lines. The cut to a
multiple of 128 is left to the federation file (`train = 9984` of these 10,000).

That split leaks: talks and speeches repeat sentences, so a sentence can be in two splits, at one site or at two. `no_leaks` takes the
same test sentences, skips those that are in test when it takes dev, and those that are in either when it takes train.
"""

import random
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from fedlingua.common.languages import Direction, parse_direction
from fedlingua.corpora.clean import Account, CleaningRules, fault, judged
from fedlingua.corpora.sizes import Sizes
from fedlingua.corpora.split import SPLITS, Split
from fedlingua.desk.corpora.prepared import Prepared, gathered, leaks
from fedlingua_lab.corpora.opus import OpusCorpus, find_all
from fedlingua_lab.corpora.sizes_of_papers import IN_TRAIN, Note, Splits, check_sizes, kept_apart

T = TypeVar("T")
CLEANING = CleaningRules(min_words=2, max_words=0, max_ratio=0.0, drop_duplicates=False)
UNIFORM = Sizes(train=5000, dev=1500, test=1500)
"""Sizes of every pair in appendix C (table 8), which are given by the paper's public code, not by its text."""
RESERVE = 4
"""Usable pairs that are held for each one taken, to skip those in another split."""
_LARGE, _SMALL = Sizes(10_000, 3000, 3000), Sizes(2000, 600, 600)
_TED = {"zh": _LARGE, "th": UNIFORM, "ar": _LARGE, "he": _SMALL, "fi": _SMALL, "et": _SMALL, "ru": _LARGE, "sl": _SMALL}
_EUROPARL = "de-fr nl-pl en-lt fr-nl it-sl es-lv pl-en sl-es sl-lt lt-de lv-it lv-pl"
PAPER_CORPORA = {
    "ted2020": OpusCorpus("TED2020", {Direction(code, "en"): sizes for code, sizes in _TED.items()}, {"zh": "zh_cn"}),
    "europarl": OpusCorpus("Europarl", dict.fromkeys(map(parse_direction, _EUROPARL.split()))),
}


def prepare(corpus: OpusCorpus, folder: Path, key: str, no_leaks: bool, note: Note) -> Prepared:
    """Read and split every pair; the lines of one are in memory at a time, which is about 1 GB for Europarl's de-fr.

    Raises:
        CorpusError: files are missing or cannot be read, or a pair is too small for its sizes; names all such pairs.
    """
    files, held = find_all(corpus, folder), Splits()
    sizes, accounts = dict[Direction, Sizes](), {direction: Account() for direction in files}
    for direction, lines in files.items():
        note(f"reads {direction}")
        reason = partial(fault, direction=direction, rules=CLEANING)
        pairs = [None if against else pair for pair, against in judged(lines.read(), reason, accounts[direction])]
        order = paper_order(pairs, key, direction)
        sizes[direction] = size = corpus.sizes[direction] or Sizes(*(len(order[split]) // 100 for split in SPLITS))
        held[direction] = {split: list(islice(filter(None, order[split]), RESERVE * size.of(split))) for split in SPLITS}
    paper = {d: {split: pairs[: sizes[d].of(split)] for split, pairs in splits.items()} for d, splits in held.items()}
    taken = kept_apart(held, sizes) if no_leaks else paper
    check_sizes(taken, sizes, accounts)
    paths = {direction: lines.paths() for direction, lines in files.items()}
    return gathered(corpus.name, key, no_leaks, taken, paths, accounts, IN_TRAIN, leaks(paper))


def paper_order(lines: Sequence[T], key: str, direction: Direction) -> dict[Split, list[T]]:
    """Return lines, shuffled and cut 60/20/20; the remainder of rounding goes to test, as in the paper's code."""
    order = list(lines)
    random.Random(f"{key}/{direction}").shuffle(order)
    train, dev = int(len(order) * 0.6), int(len(order) * 0.2)
    return {"train": order[:train], "dev": order[train : train + dev], "test": order[train + dev :]}
