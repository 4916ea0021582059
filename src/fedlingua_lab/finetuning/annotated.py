"""Readers of annotated text with given splits (docs/files.md): IOB files, i2b2-2009's notes with entries, and marked mentions.

No message quotes a tag or a label, since what stands in its place may be text.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from fedlingua.common.errors import CorpusError
from fedlingua.common.visible import is_blank
from fedlingua.corpora.read import check_text, is_hidden, read_lines, read_objects
from fedlingua.corpora.split import Split

NAMES: dict[Split, tuple[str, ...]] = {"train": ("train",), "dev": ("devel", "dev", "valid", "validation"), "test": ("test",)}
"""Names that corpora give to their splits."""
OUTSIDE = "O"
DOCUMENT_START = "-DOCSTART-"
"""Token of CoNLL's files that begins a document, and is none of its words."""
ENTRIES = (".entries", ".i2b2.entries", "_gold.entries", ".i2b2")
FIELDS = ("m", "do", "mo", "f", "du", "r")
"""Fields of i2b2's entries that are entities."""

_TAG = re.compile(r"O|([BI])(?:-(\S+))?")
_FIELD = re.compile(r'([a-z]+)="(.*)"((?: ?\d+:\d+ \d+:\d+,?)*)')


class Tagged(NamedTuple):
    """A sentence or note: its tokens, and an IOB2 tag for each."""

    tokens: Sequence[str]
    tags: list[str]

    @property
    def classes(self) -> list[str]:
        """The types of its entities, one for each entity."""
        return [tag[2:] for tag in self.tags if tag.startswith("B-")]


class Marked(NamedTuple):
    """A text and its label. mentions: [start, end) in characters of the head, and of the tail if there is one."""

    text: str
    mentions: list[tuple[int, int]]
    label: str

    @property
    def classes(self) -> list[str]:
        return [self.label]


Texts = dict[Split, list[Any]]
"""Split -> its Tagged or its Marked texts."""


def read_annotated(folder: Path, layout: str) -> Texts:
    """Read train, dev and test. layout: a key of LAYOUTS.

    Raises:
        CorpusError: a split is missing, something is not as the layout wants it, there is nothing to learn, or dev or test has a type of
            entity or a label that train lacks; names file and line.
    """
    endings, read = LAYOUTS[layout]
    if not folder.is_dir():
        raise CorpusError(f"{folder}: there is no such folder; give the one that holds train, devel and test")
    texts, known = Texts(), set[str]()
    for split, names in NAMES.items():
        wanted = [f"{name}{ending}" for name in names for ending in endings]
        there = [name for name in wanted if (folder / name).exists()]
        if len(there) != 1:
            raise CorpusError(
                f"{folder}: got {', '.join(there) or 'none'} for the split {split}; wanted exactly one of {', '.join(wanted)}"
            )
        path, texts[split] = folder / there[0], []
        for where, text in read(path):
            if split != "train" and not known.issuperset(text.classes):
                raise CorpusError(
                    f"{where}: has a type or label that train lacks; put some of them into train, or leave them out here"
                )
            known.update(text.classes)
            texts[split].append(text)
        if not texts[split]:
            raise CorpusError(f"{path}: holds no text; wanted what docs/files.md describes")
        if len(known) < (2 if layout == "pairs" else 1):
            raise CorpusError(f"{path}: has nothing to learn; wanted an entity at least, or two labels")
    if layout == "pairs" and len({len(text.mentions) for text in chain(*texts.values())}) > 1:
        raise CorpusError(
            f"{folder}: some lines have a tail and some have none; wanted one in all (relations) or none (assertions)"
        )
    return texts


def labels_of(texts: Texts) -> list[str]:
    """Return every tag that a token can have, O first, or every label of a text."""
    classes = sorted({kind for text in texts["train"] for kind in text.classes})
    tagged = isinstance(texts["train"][0], Tagged)
    return [OUTSIDE, *(f"{place}-{kind}" for kind in classes for place in "BI")] if tagged else classes


def sizes_of(texts: Texts) -> dict[str, dict[str, Any]]:
    """Return each split's numbers of sentences, tokens and entities by type, or of texts by label."""
    sizes: dict[str, dict[str, Any]] = {}
    for split, of_split in texts.items():
        classes = dict(sorted(Counter(kind for text in of_split for kind in text.classes).items()))
        if isinstance(of_split[0], Tagged):
            sizes[split] = {"sentences": len(of_split), "tokens": sum(len(text.tokens) for text in of_split), "entities": classes}
        else:
            sizes[split] = {"texts": len(of_split), "labels": classes}
    return sizes


def _iob(path: Path) -> Iterator[tuple[str, Tagged]]:
    """Yield the sentences of a file of tokens and tags; the first of a line's columns is the token, the last its tag."""
    tokens, tags = list[str](), list[str]()
    for number, line in enumerate(chain(read_lines(path), [""]), start=1):  # as if a blank line ended the last sentence
        where = f"{path}, line {number}"
        if is_blank(line) or re.split(r"\s", line)[0] == DOCUMENT_START:
            if tokens:
                yield where, Tagged(tokens, tags)
            tokens, tags = [], []
            continue
        columns = line.split("\t" if "\t" in line else " ")
        match = _TAG.fullmatch(columns[-1])
        if len(columns) < 2 or not columns[0].strip() or match is None:
            raise CorpusError(
                f"{where}: got {len(columns)} column(s), which are no token and IOB tag; wanted a token first and O, B-x or I-x last, "
                "separated by TAB or one space: mend the line, or convert tags of another scheme (BIOES) to IOB2"
            )
        kind = match[1] and (match[2] or "entity")
        if match[1] == "I" and (not tags or tags[-1][2:] != kind):
            raise CorpusError(
                f"{where}: got an I where no entity of its type is open; wanted B-x for the first token of an entity and I-x only after "
                "its own type"
            )
        tokens.append(columns[0])
        tags.append(f"{match[1]}-{kind}" if kind else OUTSIDE)


def _i2b2(path: Path) -> Iterator[tuple[str, Tagged]]:
    """Yield each note as one sequence, since entities cross line ends.

    IOB cannot express two cases: a discontinuous entity becomes one for each piece, and of overlapping ones the first is kept. An entity
    that several medications name counts once. Written by the layout's description, not tried on the challenge's own files.
    """
    in_place = list[bool]()
    for note in sorted(file for file in path.glob("*.txt") if not is_hidden(file.name)):
        wanted = [note.with_name(note.stem + ending) for ending in ENTRIES]
        entries = next(filter(Path.is_file, wanted), None)
        if entries is None:
            raise CorpusError(f"{note}: no entries beside it; wanted one of {', '.join(file.name for file in wanted)}")
        lines = [line.split() for line in read_lines(note)]
        tokens = [*chain(*lines)]
        places = [(line, token) for line, words in enumerate(lines, start=1) for token in range(len(words))]
        numbers = {place: number for number, place in enumerate(places)}
        tags = [OUTSIDE] * len(tokens)
        # A note without a medication has an empty file.
        for number, entry in enumerate(read_lines(entries, may_be_empty=True), start=1):
            for kind, quoted, spans in _fields(entry, numbers, f"{entries}, line {number}"):
                for first, end in spans:
                    if set(tags[first:end]) == {OUTSIDE}:
                        tags[first:end] = [f"B-{kind}", *[f"I-{kind}"] * (end - first - 1)]
                if len(spans) == 1:
                    in_place.append(quoted.lower().split() == " ".join(tokens[slice(*spans[0])]).lower().split())
        if tokens:
            yield str(entries), Tagged(tokens, tags)
    if 2 * sum(in_place) < len(in_place):
        raise CorpusError(
            f"{path}: of {len(in_place)} quoted entities {in_place.count(False)} are not where their offsets point; wanted line:token with "
            "lines from 1 and tokens, between white space, from 0: mend the offsets or the notes"
        )


def _fields(entry: str, numbers: Mapping[tuple[int, int], int], where: str) -> Iterator[tuple[str, str, list[tuple[int, int]]]]:
    """Yield the fields of a line of entries that are entities: kind, quoted text, and pieces as [first, end) of the note's tokens.

    numbers: (line, place in it) of a token -> its number in the note.
    """
    for part in entry.split("||") if entry.strip() else ():
        match = _FIELD.fullmatch(part.strip())
        if match is None:
            raise CorpusError(
                f'{where}: a field is not name="text" line:token line:token; separate fields by ||, pieces by a comma'
            )
        kind, quoted, offsets = match.groups()
        if kind not in FIELDS or (quoted == "nm" and not offsets):
            continue
        ends = [numbers.get((int(line), int(token)), -1) for line, token in re.findall(r"(\d+):(\d+)", offsets)]
        spans = [(first, last + 1) for first, last in zip(ends[::2], ends[1::2], strict=True)]
        if not spans or not all(0 <= first < end for first, end in spans):
            raise CorpusError(
                f"{where}: field {kind} has offsets {offsets.strip() or '(none)'}; wanted line:token line:token, inside the note and the "
                f'first not after the last, lines from 1 to {max(numbers, default=(0,))[0]}, tokens from 0, or "nm"'
            )
        yield kind, quoted, spans


def _pairs(path: Path) -> Iterator[tuple[str, Marked]]:
    """Yield the texts of a file of JSON lines."""
    for where, entry in read_objects(path, "text, head, tail and label"):
        text, label = (check_text(entry.get(name), name, where) for name in ("text", "label"))
        if is_blank(text) or is_blank(label):
            raise CorpusError(f"{where}: text or label is empty; wanted the text that head and tail are in, and its label")
        names = ["head"] if entry.get("tail") is None else ["head", "tail"]
        mentions = [_mention(entry.get(name), name, text, where) for name in names]
        if any(after[0] < before[1] for before, after in pairwise(sorted(mentions))):
            raise CorpusError(f"{where}: head and tail overlap; wanted two mentions apart from each other")
        yield where, Marked(text, mentions, label)


def _mention(given: Any, name: str, text: str, where: str) -> tuple[int, int]:
    is_pair = isinstance(given, list) and [type(offset) for offset in given] == [int, int]
    if is_pair and 0 <= given[0] < given[1] <= len(text) and not is_blank(text[slice(*given)]):
        return given[0], given[1]
    raise CorpusError(
        f"{where}: {name} is {given if is_pair else 'missing or not two whole numbers'}; wanted [start, end) with "
        f"0 <= start < end <= {len(text)}, not of white space alone"
    )


LAYOUTS: dict[str, tuple[tuple[str, ...], Callable[[Path], Iterator[tuple[str, Any]]]]] = {
    "iob": ((".tsv", ".tsv.gz"), _iob),
    "i2b2": (("",), _i2b2),
    "pairs": ((".jsonl", ".jsonl.gz"), _pairs),
}
"""Layout -> endings of a split's file ("" for a folder), and its reader, which yields (file and line, text)."""
