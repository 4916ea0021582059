"""MTNT (Michel & Neubig 2018), release 1.1, as in Weller et al. 2022 and MetaSend: en-fr and en-ja, already split.

As in Weller et al.'s public code, a row of any split is dropped if half or more of the characters of either side are punctuation (only
ASCII counts), and a row of en-ja's train also if it has fewer than three English words. en-fr's train is then cut to the size of en-ja's
(5,605 in the papers): first rows whose English is in en-ja's train, then others at random, here by a keyed hash. Training rows are
ordered by that hash, so that the first rows of any number are a fair sample.
"""

from functools import partial
from pathlib import Path
from string import punctuation

from fedlingua.common.errors import CorpusError
from fedlingua.common.languages import Direction
from fedlingua.corpora.clean import Account, usable
from fedlingua.corpora.read import Pair, TsvFile
from fedlingua.corpora.sizes import Sizes
from fedlingua.corpora.split import Split, position
from fedlingua.desk.corpora.prepared import Prepared, gathered, leaks
from fedlingua_lab.corpora.sizes_of_papers import IN_TRAIN, Note, Splits, check_sizes, kept_apart

EN_FR, EN_JA = Direction("en", "fr"), Direction("en", "ja")
FOLDERS: dict[Split, str] = {"train": "train", "dev": "valid", "test": "test"}
PAPER_TRAIN = 5605
FEWEST_WORDS = 3
"""Fewest English words in a row of en-ja's train; shorter rows are numbers and emojis."""


def prepare_mtnt(folder: Path, key: str, no_leaks: bool, note: Note) -> Prepared:
    """Read the six files (comment, source, target) in the folder of the unpacked release, or in MTNT/ inside it.

    Raises:
        CorpusError: files are missing or cannot be read, or have too few rows; names all of them.
    """
    tables, rows = _find(folder), Splits()
    accounts = {direction: Account() for direction in tables}
    for direction, files in tables.items():
        note(f"reads {direction}")
        rows[direction] = {
            split: list(usable(file.read(), partial(fault, direction=direction, split=split), accounts[direction]))
            for split, file in files.items()
        }
    paper = _cut(rows, key)
    taken = _cut(kept_apart(rows), key) if no_leaks else paper
    check_sizes(taken, {EN_FR: Sizes(max(1, len(taken[EN_JA]["train"])), 1, 1), EN_JA: Sizes(1, 1, 1)}, accounts)
    paths = {direction: [file.path for file in files.values()] for direction, files in tables.items()}
    about = f"{IN_TRAIN}; the papers train on {PAPER_TRAIN}"
    return gathered("MTNT", key, no_leaks, taken, paths, accounts, about, leaks(paper))


def _find(folder: Path) -> dict[Direction, dict[Split, TsvFile]]:
    root = folder / "MTNT" if (folder / "MTNT").is_dir() else folder
    tables = {
        direction: {split: TsvFile(root / name / f"{name}.{direction}.tsv", 1, 2) for split, name in FOLDERS.items()}
        for direction in (EN_FR, EN_JA)
    }
    missing = [str(file.path) for files in tables.values() for file in files.values() if not file.path.is_file()]
    if missing:
        raise CorpusError(
            f"{folder} lacks {len(missing)} of 6 files of MTNT; unpack MTNT.1.1.tar.gz there, or check the folder:\n  "
            + "\n  ".join(missing)
        )
    return tables


def fault(pair: Pair, direction: Direction, split: Split) -> str | None:
    """Return why a stripped row is dropped; None if it is kept."""
    if not pair.source or not pair.target:
        return "empty"
    if any(2 * sum(character in punctuation for character in side) >= len(side) for side in pair):
        return "punctuation"
    if (direction, split) == (EN_JA, "train") and len(pair.source.split(" ")) < FEWEST_WORDS:
        return "too-short"
    return None


def _cut(rows: Splits, key: str) -> Splits:
    """Order train by hash, and cut en-fr's to the size of en-ja's."""

    def by_hash(pair: Pair) -> tuple[float, Pair]:
        return position(key, "mtnt", *pair), pair

    train = {direction: sorted(splits["train"], key=by_hash) for direction, splits in rows.items()}
    english = {pair.source for pair in train[EN_JA]}
    matched_first = sorted(train[EN_FR], key=lambda pair: pair.source not in english)[: len(train[EN_JA])]
    train[EN_FR] = sorted(matched_first, key=by_hash)
    return {direction: {**splits, "train": train[direction]} for direction, splits in rows.items()}
