"""Corpora as their downloads unpack, in small."""

import random
from pathlib import Path

from fedlingua.common.languages import Direction
from fedlingua.corpora.read import Pair
from fedlingua.corpora.split import Split
from fedlingua_lab.corpora.mtnt import EN_FR, EN_JA, FOLDERS
from fedlingua_lab.corpora.uncorpus import DIRECTIONS

Rows = dict[tuple[Direction, Split], list[Pair]]


def mtnt_rows() -> Rows:
    """Ten kept rows of en-fr's train and six of en-ja's; the English of three stands in both."""
    return {
        (EN_FR, "train"): [Pair(f"so many words {n}", f"tant de mots {n}") for n in range(9)] + [Pair("hm", "euh")],
        (EN_JA, "train"): [Pair(f"so many words {n}", f"言葉 {n}") for n in range(6, 12)] + [Pair("lol no", "いや")],
        (EN_FR, "dev"): [Pair("hm", "euh bon"), Pair("a dev row", "une ligne")],
        (EN_JA, "dev"): [Pair("a dev row too", "行")],
        (EN_FR, "test"): [Pair("a test row", "une autre"), Pair("so many words 3", "tellement")],
        (EN_JA, "test"): [Pair("a dev row", "別の行")],
    }


def write_mtnt(folder: Path, text: Rows) -> None:
    for (direction, split), pairs in text.items():
        name = FOLDERS[split]
        (folder / name).mkdir(parents=True, exist_ok=True)
        lines = "".join(f"c{number}\t{pair.source}\t{pair.target}\n" for number, pair in enumerate(pairs))
        (folder / name / f"{name}.{direction}.tsv").write_text(lines, encoding="utf-8")


def un_lines(direction: Direction, count: int = 40) -> list[Pair]:
    """`count` pairs, a title that comes on every second line, and one English sentence with ten translations."""
    source, target = direction.source, direction.target
    pairs = [Pair(f"{source} {number}", f"{target} {number}") for number in range(count)]
    pairs += [Pair(f"{source} title", f"{target} title")] * count
    return pairs + [Pair(f"{source} again", f"{target} again {number}") for number in range(10)]


def write_un(folder: Path, shuffled: int = 0, count: int = 40, below: bool = True) -> Path:
    for direction in DIRECTIONS:
        pairs = un_lines(direction, count)
        random.Random(shuffled).shuffle(pairs)
        place = folder / str(direction) if below else folder
        place.mkdir(parents=True, exist_ok=True)
        for code, side in ((direction.source, 0), (direction.target, 1)):
            (place / f"UNv1.0.{direction}.{code}").write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    return folder
