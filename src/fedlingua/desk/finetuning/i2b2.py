"""Reader of tagged notes in the layout of i2b2-2009 (docs/files.md), the medication challenge, whose data only applicants receive.

A note is one tagged sequence, since entities cross line ends; it is cut by length when it is encoded. IOB cannot express two cases: a
discontinuous entity becomes one entity for each piece, and of overlapping entities the first is kept; both are counted. An entity that
several medications name counts once. The reader follows the layout's description and has not been tried on the challenge's own files.
"""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from fedlingua.common.errors import CorpusError
from fedlingua.corpora.read import read_lines
from fedlingua.corpora.split import Split
from fedlingua.desk.finetuning.annotated import split_paths
from fedlingua.desk.finetuning.iob import OUTSIDE, Tagged, TaggedCorpus

TYPES = ("m", "do", "mo", "f", "du", "r")
NONE = "nm"
ENDINGS = (".entries", ".i2b2.entries", "_gold.entries", ".i2b2")

_FIELD = re.compile(r'([a-z]+)="(.*)"((?: ?\d+:\d+ \d+:\d+,?)*)')
_PIECE = re.compile(r"(\d+):(\d+) (\d+):(\d+)")


class Span(NamedTuple):
    """A span of a note's tokens, the last one included, counted from 0 over the whole note."""

    first: int
    last: int
    kind: str


def read_i2b2(folder: Path) -> TaggedCorpus:
    """Read the notes of train, devel (or dev, valid, validation) and test with their entries, in order of their names.

    Raises:
        CorpusError: a split or a note's entries are missing, a line is no entry, an offset is outside the note, quoted text is mostly
            not where the offsets point, or only devel or test has a type; names file and line.
    """
    splits: dict[Split, list[Tagged]] = {}
    notes: dict[Split, dict[str, int]] = {}
    for split, path in split_paths(folder, ("",)).items():
        counts: Counter[str] = Counter()
        files = sorted(path.glob("*.txt"))
        if not files:
            raise CorpusError(f"{path} has no notes; wanted files <id>.txt with <id>.entries beside them")
        splits[split] = [_note(file, _entries_file(file), counts) for file in files]
        if 2 * counts["elsewhere"] > counts["quoted"]:
            raise CorpusError(
                f"{path}: of {counts['quoted']} quoted entities {counts['elsewhere']} are not where their offsets point; "
                "wanted line:token with lines from 1 and tokens, between white space, from 0: mend the offsets or the notes"
            )
        notes[split] = {name: counts[name] for name in ("overlapping", "broken", "elsewhere")}
    corpus = TaggedCorpus(splits, notes)
    if not corpus.types:
        raise CorpusError(f"{folder}: the notes of train have no entity to learn; check their .entries")
    for split, sentences in splits.items():
        further = {tag[2:] for sentence in sentences for tag in sentence.tags if tag != OUTSIDE} - set(corpus.types)
        if further:
            raise CorpusError(f"{folder}: {split} has entities of type {', '.join(sorted(further))}, which train lacks")
    return corpus


def _entries_file(note: Path) -> Path:
    for ending in ENDINGS:
        if (file := note.with_name(f"{note.stem}{ending}")).is_file():
            return file
    raise CorpusError(f"{note}: no entries beside it; wanted one of {', '.join(note.stem + ending for ending in ENDINGS)}")


def _note(file: Path, entries: Path, counts: Counter[str]) -> Tagged:
    """Return a note as one sequence; what IOB cannot express is added to the counts."""
    lines = [line.split() for line in read_lines(file)]
    tokens = [token for line in lines for token in line]
    if not tokens:
        raise CorpusError(f"{file} has no token; wanted a note's text")
    tags = [OUTSIDE] * len(tokens)
    taken: set[Span] = set()
    for span in _spans(entries, file, lines, tokens, counts):
        if span in taken:
            continue
        if any(tag != OUTSIDE for tag in tags[span.first : span.last + 1]):
            counts["overlapping"] += 1
            continue
        taken.add(span)
        tags[span.first : span.last + 1] = [f"B-{span.kind}", *[f"I-{span.kind}"] * (span.last - span.first)]
    return Tagged(tokens, tags)


def _spans(entries: Path, note: Path, lines: list[list[str]], tokens: list[str], counts: Counter[str]) -> Iterator[Span]:
    """Yield every piece of every field, in the order of the entries. tokens: those of all lines."""
    starts = list(accumulate(map(len, lines), initial=0))
    # A note without a medication has an empty file, which read_lines refuses by default.
    for number, entry in enumerate(read_lines(entries) if entries.stat().st_size else (), start=1):
        where = f"{entries}, line {number}"
        for part in entry.split("||") if entry.strip() else ():
            match = _FIELD.fullmatch(part.strip())
            if match is None:
                raise CorpusError(
                    f'{where}: a field is not name="text" line:token line:token; separate fields by ||, pieces by a comma'
                )
            kind, text, offsets = match.groups()
            if kind not in TYPES or (text == NONE and not offsets):
                continue
            pieces = [tuple(map(int, piece)) for piece in _PIECE.findall(offsets)]
            if not pieces:
                raise CorpusError(
                    f'{where}: field {kind} has no offsets; wanted line:token line:token after its text, or "{NONE}"'
                )
            spans = [_span(piece, kind, starts, f"{where}: field {kind}", note) for piece in pieces]
            if len(spans) > 1:
                counts["broken"] += 1
            else:
                quoted = tokens[spans[0].first : spans[0].last + 1]
                counts["quoted"] += 1
                counts["elsewhere"] += " ".join(quoted).lower() != " ".join(text.split()).lower()
            yield from spans


def _span(piece: tuple[int, ...], kind: str, starts: list[int], where: str, note: Path) -> Span:
    """Return the tokens from line:token to line:token. starts: first token of every line, and the note's end."""
    places = []
    for line, token in (piece[:2], piece[2:]):
        if not 1 <= line < len(starts):
            raise CorpusError(f"{where}: got line {line}, but {note.name} has {len(starts) - 1} lines, counted from 1")
        if token >= starts[line] - starts[line - 1]:
            raise CorpusError(
                f"{where}: got token {token} of line {line}, but that line of {note.name} has {starts[line] - starts[line - 1]} tokens, "
                "counted from 0"
            )
        places.append(starts[line - 1] + token)
    if places[0] > places[1]:
        raise CorpusError(f"{where}: got {piece[0]}:{piece[1]} to {piece[2]}:{piece[3]}, which ends before it begins")
    return Span(places[0], places[1], kind)
