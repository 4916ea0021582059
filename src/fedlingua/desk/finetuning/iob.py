"""Reader of tagged sentences in IOB files (docs/files.md): a token and its tag a line, a blank line between sentences."""

import re
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from fedlingua.common.errors import CorpusError
from fedlingua.corpora.read import read_lines
from fedlingua.corpora.split import Split
from fedlingua.desk.finetuning.annotated import shown, split_paths

OUTSIDE = "O"
ONLY_TYPE = "entity"
"""Entity type in a corpus whose tags are plain B and I."""

NOT_SHOWN = "a type of {} characters (not shown, since it may be text)"
"""Explains a tag that may be in the wrong column: I-131 and B-12 can be tokens."""

_TAG = re.compile(r"([BI])(?:-(\S+))?")
_OTHER_SCHEME = re.compile(r"[ELSUM](-\S+)?")


class Tagged(NamedTuple):
    """A sentence: its tokens, and a tag for each."""

    tokens: list[str]
    tags: list[str]


@dataclass(frozen=True)
class TaggedCorpus:
    """Sentences of the three splits; `types` are the training split's, sorted."""

    splits: dict[Split, list[Tagged]]
    notes: dict[Split, dict[str, int]] = field(default_factory=dict)
    """counts of what IOB could not express of the layout"""

    @property
    def types(self) -> list[str]:
        """Entity types of the training split, sorted; the other splits have no further ones."""
        return sorted(entities_by_type(self.splits["train"]))

    @property
    def labels(self) -> list[str]:
        """Every tag that a token can have, O first."""
        return [OUTSIDE, *(f"{place}-{kind}" for kind in self.types for place in "BI")]

    def sizes(self) -> dict[str, dict[str, object]]:
        """Return each split's numbers of sentences, tokens and entities by type."""
        return {
            split: {
                "sentences": len(sentences),
                "tokens": sum(len(sentence.tokens) for sentence in sentences),
                "entities": entities_by_type(sentences),
                **self.notes.get(split, {}),
            }
            for split, sentences in self.splits.items()
        }


def entities_by_type(sentences: Sequence[Tagged]) -> dict[str, int]:
    """Return the number of entities of each type that begin in the sentences, types sorted."""
    begun = Counter(tag[2:] for sentence in sentences for tag in sentence.tags if tag.startswith("B-"))
    return dict(sorted(begun.items()))


def read_iob(folder: Path) -> TaggedCorpus:
    """Read train, devel (or dev, valid, validation) and test, each a .tsv or .tsv.gz.

    Raises:
        CorpusError: a split is missing, a line is not a token and a tag, a tag is not IOB or changes inside an entity, or only devel or
            test has an entity type; names file and line.
    """
    splits: dict[Split, list[Tagged]] = {}
    types: set[str] | None = None
    for split, path in split_paths(folder, (".tsv", ".tsv.gz")).items():
        splits[split] = list(_sentences(path, types))
        if not splits[split]:
            raise CorpusError(f"{path} has no sentence, only blank lines; wanted a token and its tag a line")
        if split == "train":
            types = set(entities_by_type(splits[split]))
            if not types:
                raise CorpusError(f"{path}: every tag is O, so there is no entity to learn; wanted tags B-x and I-x as well")
    return TaggedCorpus(splits)


def _sentences(path: Path, known: set[str] | None) -> Iterator[Tagged]:
    """Yield the sentences of a file, in order. known: permitted types; None: any."""
    tokens: list[str] = []
    tags: list[str] = []
    begun = set(known or ())  # types that a message may quote: those of tags before the wrong one
    plain: bool | None = None  # whether this file's entities have no type
    for number, line in enumerate(chain(read_lines(path), [""]), start=1):  # as if a blank line ended the last sentence
        where = f"{path}, line {number}"
        if not line.strip():
            if tokens:
                yield Tagged(tokens, tags)
            tokens, tags = [], []
            continue
        token, tag = _columns(line, where)
        place, kind = _parsed(tag, where)
        if place != OUTSIDE:
            if plain not in (None, not kind):
                raise CorpusError(
                    f"{where}: got a tag {'with' if plain else 'without'} a type in a file where others have {'none' if plain else 'one'}; "
                    "give every entity its type, or none"
                )
            plain = not kind
            kind = kind or ONLY_TYPE
            before = tags[-1] if tags else OUTSIDE
            if place == "I" and before[2:] != kind:
                raise CorpusError(f"{where}: {_change(before, kind, begun)}")
            if known is not None and kind not in known:
                raise CorpusError(
                    f"{where}: got an entity of {NOT_SHOWN.format(len(kind))}, which train lacks; it has "
                    f"{', '.join(map(shown, sorted(known)))}. Tag some of them in train, or make them O here"
                )
            begun.add(kind)
        tokens.append(token)
        tags.append(f"{place}-{kind}" if kind else OUTSIDE)


def _columns(line: str, where: str) -> tuple[str, str]:
    columns = line.split("\t") if "\t" in line else line.split(" ")
    if len(columns) < 2 or not columns[0].strip():
        raise CorpusError(
            f"{where}: got {len(columns)} column(s){'' if columns[0].strip() else ', the first empty'}; "
            "wanted a token and its tag, separated by TAB or one space"
        )
    return columns[0], columns[-1]


def _parsed(tag: str, where: str) -> tuple[str, str]:
    """Return ("O", ""), or "B" or "I" with the type, which is empty if the tag has none."""
    if tag == OUTSIDE:
        return OUTSIDE, ""
    if match := _TAG.fullmatch(tag):
        return match[1], match[2] or ""
    if _OTHER_SCHEME.fullmatch(tag):
        raise CorpusError(
            f"{where}: the last column is no IOB tag, but looks like one of another scheme (BIOES or the like); wanted O, B-x or I-x: "
            "convert the file to IOB2, or move the tag's column to the end"
        )
    # The column may be the wrong one, and then it is text.
    raise CorpusError(
        f"{where}: the last column is no IOB tag ({len(tag)} characters, not shown, since it may be text); "
        "wanted O, B-x or I-x: mend the line, or move the tag's column to the end"
    )


def _change(before: str, kind: str, begun: Container[str]) -> str:
    """Return what is wrong with an I of this type after the tag `before`."""
    tag = f"I-{kind}" if kind in begun else f"I of {NOT_SHOWN.format(len(kind))}"
    if before == OUTSIDE:
        got = f"got {tag} where no entity is open (after O, or at a sentence's start)"
    else:
        got = f"got {tag} after {before}: the label changes inside an entity"
    return f"{got}; wanted B-x for the first token of an entity and I-x only after its own type"
