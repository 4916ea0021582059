"""Train, dev and test of text in one language: a document lies in one split, and no sentence of dev or test stands in train.

The keyed hash of a document decides where all of it goes, so neither sentences of one note nor equal notes stand on two sides, and sites
agree without talking. `components` and `shared-side` both mean this; `paper` shuffles a site's documents and cuts. Sentences that
documents of two splits have in common are then taken out of dev and test, as far as the sites are read together: a deployed site looks
at its own text only.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedlingua.corpora.read import Pair
from fedlingua.corpora.split import Side, Split, SplitRules, by_share, position


@dataclass(frozen=True)
class Document:
    """A document as it is used. sentences: what cleaning left of it, in its order."""

    text: str
    sentences: Sequence[Pair]


def split_documents(
    sites: Mapping[str, tuple[str, Sequence[Document]]], rules: SplitRules, base: frozenset[Side] | set[Side] = frozenset()
) -> dict[str, dict[Split, list[Pair]]]:
    """Every site's sentences by split, in their documents' order; a document with a sentence of `base` comes as "base" whole.

    sites: name -> (language, documents).
    """
    assert rules.mode != "given"  # documents never come divided
    splits: dict[str, dict[Split, list[Pair]]] = {}
    for name, (language, documents) in sites.items():
        chosen = _cut(name, documents, rules) if rules.mode == "paper" else _by_hash(language, documents, rules)
        splits[name] = {"base": [], "train": [], "dev": [], "test": []}
        for document, split in chosen:
            is_base = any((language, pair.source) in base for pair in document.sentences)
            splits[name]["base" if is_base else split] += document.sentences
    return _without_leaks(splits, {name: language for name, (language, _) in sites.items()})


def _by_hash(language: str, documents: Sequence[Document], rules: SplitRules) -> list[tuple[Document, Split]]:
    return [(document, by_share(position(rules.key, "split", language, document.text), rules)) for document in documents]


def _cut(name: str, documents: Sequence[Document], rules: SplitRules) -> list[tuple[Document, Split]]:
    shuffled = list(documents)
    random.Random(f"{rules.key}/{name}").shuffle(shuffled)
    first, second = round(len(shuffled) * rules.train), round(len(shuffled) * (rules.train + rules.dev))
    return [
        (document, "train" if number < first else "dev" if number < second else "test")
        for number, document in enumerate(shuffled)
    ]


def _without_leaks(
    splits: Mapping[str, Mapping[Split, Sequence[Pair]]], languages: Mapping[str, str]
) -> dict[str, dict[Split, list[Pair]]]:
    """Without the sentences of dev and test that some site trains on, and those of dev that some site tests on."""

    def held(split: Split) -> set[Side]:
        return {(languages[name], pair.source) for name, parts in splits.items() for pair in parts[split]}

    train, test = held("train"), held("test")
    taken: dict[Split, set[Side]] = {"base": set(), "train": set(), "dev": train | test, "test": train}
    return {
        name: {
            split: [pair for pair in pairs if (languages[name], pair.source) not in taken[split]]
            for split, pairs in parts.items()
        }
        for name, parts in splits.items()
    }
