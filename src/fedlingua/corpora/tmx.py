"""Reader of TMX, the exchange format of translation memories (TMX 1.4b, LISA 2005), unit by unit, never the whole file at once.

Only the text of a segment is read. Elements bpt, ept, it, ph and ut hold markup of the original document, and a sub in them holds
another text (a footnote, a title), so they are skipped; one that breaks a line is a space. The content of hi is part of the
sentence. Elements may be in any namespace. Files that declare entities are refused and no entity is expanded; a document type is
ignored, and nothing is fetched.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from lxml import etree

from fedlingua.common.errors import CorpusError
from fedlingua.common.languages import Direction, matching
from fedlingua.corpora.read import LINE_BYTES, UNREADABLE, Corpus, Pair, check_growth, damaged, empty, on_one_line, opened

LANG = "{http://www.w3.org/XML/1998/namespace}lang"
_CODES = frozenset({"bpt", "ept", "it", "ph", "ut"})
_BREAK_TYPE = re.compile(r"(?:x-)?(?:html-)?(?:[lpc]b|br|(?:line|page|column)-?break)", re.IGNORECASE)
"""Types of codes that break lines: lb, pb and cb of TMX 1.4b, and what tools make of them."""
_BREAK = re.compile(
    r"""\s+|(?:\s*(?:</?(?:\w+:)?(?:br|cr|lb|p|para|div|h[1-6]|hr|li|t[dhr]|tab|line-?break)\b[^>]*>  # HTML, Office, OpenDocument
    |\{?\\(?:line|par|page|cell|row|tab|[nrt])\b\s?\}?|&(?:nbsp|\#(?:10|13|160|x0*[ad]|xa0));))+\s*""",  # RTF, strings of programs
    re.IGNORECASE | re.VERBOSE,
)
"""Contents of codes that break a line or are white space."""
_CHUNK_BYTES = 1 << 15


@dataclass(frozen=True)
class TmxFile(Corpus[Pair]):
    """A file, plain or gzipped; each unit gives its first variant in either language: en or, if it has none, en-GB.

    A side is empty if the unit lacks its language.
    """

    path: Path
    direction: Direction

    def read(self) -> Iterator[Pair]:
        for source, target in tmx_sides(self.path, self.direction.sides):
            yield Pair(source or "", target or "")


def tmx_sides(path: Path, wanted: tuple[str, ...]) -> Iterator[list[str | None]]:
    """Yield every unit's texts in the wanted languages; None for a language that it lacks."""
    units, languages, read = 0, Counter[str](), set[str]()
    try:
        with opened(path) as stream:
            try:
                for unit in _units(stream, path):
                    units += 1
                    segments = _segments(unit)
                    languages.update(segments.keys())
                    tags = [_tag(code, tuple(segments)) for code in wanted]
                    read.update(code for code, tag in zip(wanted, tags, strict=True) if tag)
                    yield [on_one_line("".join(_parts(segments[tag], path)).strip("\n")) if tag else None for tag in tags]
            except etree.XMLSyntaxError as error:
                if stream.tell() == 0:
                    raise CorpusError(empty(path)) from None
                raise CorpusError(f"{path}{mistake(error)}, after {units} units; is the file whole?") from None
    except UNREADABLE as error:
        raise CorpusError(damaged(path, f"unit {units}", error)) from None
    if not units:
        raise CorpusError(f"{path}: holds no unit (<tu>); is it TMX?")
    for code in wanted:
        if code not in read:
            languages_text = ", ".join(f"{language} {count}" for language, count in languages.most_common())
            raise CorpusError(f"{path}: none of {units} units has {code!r}; got {languages_text or 'no language at all'}")


@lru_cache
def _tag(language: str, tags: tuple[str, ...]) -> str | None:
    """Return the tag of the variant to read; cached, since the units of a file share few sets of tags."""
    return next(iter(matching(language, tags)), None)


def mistake(error: etree.XMLSyntaxError) -> str:
    """Return the line and type of a syntax error; the parser's own message can quote the text."""
    entry = error.error_log.last_error
    line, kind = (entry.line, entry.type_name) if entry is not None else (error.lineno, "unknown")
    return f", line {line}: is not well-formed XML ({kind.removeprefix('ERR_')})"


class _Pruned:
    """The parser's input; before each chunk it removes from the tree what has been read outside units, to save memory."""

    def __init__(self, stream: Any, path: Path) -> None:
        self.stream, self.path, self.root, self.held = stream, path, None, 0

    def read(self, size: int) -> bytes:
        node: Any = self.root
        while node is not None and _name(node) != "tu":
            del node[:-1]  # the last element may still be open
            node = node[-1] if len(node) else None
        self.held = self.held + size if node is not None or self.root is None else 0
        if self.held > LINE_BYTES:
            raise CorpusError(f"{self.path}: has a unit of more than {LINE_BYTES:,} bytes, or none for so long; is it TMX?")
        check_growth(self.stream, self.path)
        return bytes(self.stream.read(size))


def _units(stream: Any, path: Path) -> Iterator[Any]:
    """Yield every <tu>; each is removed from the tree when the next is requested."""
    pruned = _Pruned(stream, path)
    parsing = etree.iterparse(
        pruned,
        events=("start", "end"),
        tag=("{*}tmx", "{*}tu"),
        resolve_entities=False,
        load_dtd=False,
        no_network=True,
        remove_comments=True,
        remove_pis=True,
        chunk_size=_CHUNK_BYTES,
    )
    for event, unit in parsing:
        if pruned.root is None:
            pruned.root = unit.getroottree().getroot()
            refuse_entities(unit, path)
        if event == "start" or _name(unit) != "tu":
            continue
        pruned.held = 0
        yield unit
        unit.clear()


def refuse_entities(unit: Any, path: Path) -> None:
    """Raise CorpusError if the document type of a unit's file declares entities."""
    declared = unit.getroottree().docinfo.internalDTD
    if declared is not None and any(True for _ in declared.iterentities()):
        raise CorpusError(
            f"{path}: its document type declares entities, which can name other files or swell without end, so none is expanded; "
            "write the text itself, and take the declarations out"
        )


def _name(element: Any) -> str:
    """Return an element's name without its namespace."""
    return str(element.tag).rpartition("}")[2]


def _segments(unit: Any) -> dict[str, Any]:
    """Map the tag of each language to the unit's first segment in it."""
    segments: dict[str, Any] = {}
    for variant in unit.iterchildren("{*}tuv"):
        code = variant.get(LANG) or variant.get("lang")
        if code and code not in segments and (segment := variant.find("{*}seg")) is not None:
            segments[code] = segment
    return segments


def _parts(element: Any, path: Path) -> Iterator[str]:
    yield element.text or ""
    for inner in element:
        if inner.tag is etree.Entity:
            raise CorpusError(f"{path}, line {inner.sourceline}: uses an entity (&...;) of a document type, but none is expanded")
        if _name(inner) not in _CODES:
            yield from _parts(inner, path)
        elif _BREAK_TYPE.fullmatch(inner.get("type", "")) or _BREAK.fullmatch(inner.text or ""):
            yield "\n"
        yield inner.tail or ""
