"""The United Nations' corpus v1.0 (Ziemski et al. 2016), sampled for MetaSend: 80,000 / 10,000 / 10,000 pairs of each of three directions.

The papers give only these sizes; Weller et al. 2022, whose settings they use, draw lines at random and cut the sample, so that recurring
titles and formulas can be in two splits. Here a keyed hash of the pair itself orders all pairs. Test takes the first, dev the next, then
train; each takes a pair once and skips pairs with a sentence in an earlier split. The three directions have no language in common; whether
a sentence of one is the translation of another's cannot be detected here.
"""

from collections.abc import Iterable
from heapq import nsmallest
from itertools import groupby
from pathlib import Path

from fedlingua.common.languages import Direction
from fedlingua.corpora.clean import Account, usable
from fedlingua.corpora.read import LineFiles, Pair
from fedlingua.corpora.sizes import Sizes
from fedlingua.corpora.split import SPLITS, Split, position
from fedlingua.desk.corpora.prepared import Prepared, gathered
from fedlingua_lab.corpora.opus import OpusCorpus, find_all
from fedlingua_lab.corpora.sizes_of_papers import IN_TRAIN, Note, Splits, check_sizes, kept_apart

ORIGIN = "the UN's site (UNv1.0.en-fr.tar.gz.00 and so on; join and unpack them)"
DIRECTIONS = (Direction("en", "fr"), Direction("ar", "es"), Direction("ru", "zh"))
SIZES = Sizes(train=80_000, dev=10_000, test=10_000)


def prepare_uncorpus(folder: Path, key: str, note: Note, sizes: Sizes = SIZES) -> Prepared:
    """Read every pair once, holding in memory four times as many as needed, and more only if too many of them repeat others.

    Raises:
        CorpusError: files are missing or cannot be read, or a pair is too small for its sizes; names all such pairs.
    """
    corpus = OpusCorpus("UNv1.0", dict.fromkeys(DIRECTIONS, sizes), origin=ORIGIN)
    files, splits, accounts = find_all(corpus, folder), Splits(), dict[Direction, Account]()
    for direction, lines in files.items():
        note(f"reads {direction}")
        splits[direction], accounts[direction] = _sampled(lines, direction, key, sizes)
    check_sizes(splits, dict.fromkeys(DIRECTIONS, sizes), accounts)
    paths = {direction: lines.paths() for direction, lines in files.items()}
    return gathered(corpus.name, key, True, splits, paths, accounts, IN_TRAIN)


def _sampled(files: LineFiles, direction: Direction, key: str, sizes: Sizes) -> tuple[dict[Split, list[Pair]], Account]:
    """Return one direction's splits. If more pairs are skipped than were held in reserve, read the files again and hold twice as many."""
    wanted = sum(sizes.of(split) for split in SPLITS)
    most = 4 * wanted
    while True:
        account = Account()
        # The papers clean nothing but empty sides.
        pairs = usable(files.read(), lambda pair: None if pair.source and pair.target else "empty", account)
        front = first_by_hash(pairs, key, most)
        taken = kept_apart({direction: dict.fromkeys(SPLITS, iter(front))}, {direction: sizes})[direction]
        if sum(map(len, taken.values())) == wanted or account.kept <= most:
            return taken, account
        most *= 2


def first_by_hash(pairs: Iterable[Pair], key: str, most: int) -> list[Pair]:
    """Return the distinct ones of the first `most` pairs by keyed hash, in its order, whatever the order of input."""
    first = nsmallest(most, pairs, key=lambda pair: (position(key, "sample", *pair), pair))
    return [pair for pair, _ in groupby(first)]
