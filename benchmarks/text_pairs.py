"""Pairs that benchmarks train on and translate: Tatoeba's, whose lengths are those of everyday sentences, or the phrasebook's."""

import gzip
import random
from pathlib import Path

from fedlingua.common.languages import Direction
from fedlingua.corpora.read import Pair
from fedlingua_demo import phrasebook

TATOEBA = Direction("de", "en")
PHRASEBOOK = Direction("de", "fr")


def text_pairs(data: Path | None, number: int) -> tuple[Direction, list[Pair]]:
    """So many, in an order that is no length's. data: the folder that has tatoeba/de-en.tsv.gz; None takes the phrasebook."""
    if data is None:
        text = phrasebook.base_corpus(number, 11)
        return PHRASEBOOK, [Pair(*both) for both in zip(text[PHRASEBOOK.source], text[PHRASEBOOK.target], strict=True)]
    with gzip.open(data / "tatoeba" / f"{TATOEBA}.tsv.gz", "rt", encoding="utf-8", newline="\n") as file:
        pairs = [Pair(*line.split("\t")[:2]) for line in file.read().split("\n") if "\t" in line]
    return TATOEBA, random.Random(1).sample(pairs, min(number, len(pairs)))
