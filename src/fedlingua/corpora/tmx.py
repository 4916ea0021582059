"""TMX, the exchange format of translation memories (TMX 1.4b, LISA 2005): one unit after another, never the whole file.

Of a segment its text is taken. What stands in bpt, ept, it, ph and ut is code of the document that the segment is from, and a sub in it
a text of its own (a footnote, a title), no part of the sentence; hi only marks what it holds. No entity is expanded, and a file that
declares one is refused; a document type is passed over, and nothing is fetched.
"""

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
_CHUNK_BYTES = 1 << 15


@dataclass(frozen=True)
class TmxFile(Corpus[Pair]):
    """A file, plain or gzipped; of each unit its first variant in either language: en, or, where the unit has none, en-GB.

    A side whose language a unit has not is empty.
    """

    path: Path
    direction: Direction

    def read(self) -> Iterator[Pair]:
        for source, target in _sides(self.path, (self.direction.source, self.direction.target)):
            yield Pair(source or "", target or "")


def read_tmx_side(path: Path, language: str) -> Iterator[str | None]:
    """Yield what every unit has in one language, in file order; None of a unit that has it not.

    Raises:
        CorpusError: missing, empty, damaged, not well-formed, an entity, no unit, or none in the language; with file and line.
    """
    for (side,) in _sides(path, (language,)):
        yield side


def _sides(path: Path, wanted: tuple[str, ...]) -> Iterator[list[str | None]]:
    """What every unit has in each of the languages."""
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
                    yield [_text(segments[tag], path) if tag else None for tag in tags]
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
    """The variant that is read; a file has few sets of tags, each as often as it has units."""
    return next(iter(matching(language, tags)), None)


def mistake(error: etree.XMLSyntaxError) -> str:
    """Where and of which type a mistake is; the parser's own words can quote the text."""
    entry = error.error_log.last_error
    line, kind = (entry.line, entry.type_name) if entry is not None else (error.lineno, "unknown")
    return f", line {line}: is not well-formed XML ({kind.removeprefix('ERR_')})"


class _Pruned:
    """The stream as the parser asks for it; before each part what is read and in no unit leaves the tree, however much there is."""

    def __init__(self, stream: Any, path: Path) -> None:
        self.stream, self.path, self.root, self.held = stream, path, None, 0

    def read(self, size: int) -> bytes:
        node: Any = self.root
        while node is not None and node.tag != "tu":
            del node[:-1]  # the last may still be open
            node = node[-1] if len(node) else None
        self.held = self.held + size if node is not None or self.root is None else 0
        if self.held > LINE_BYTES:
            raise CorpusError(f"{self.path}: has a unit of more than {LINE_BYTES:,} bytes, or none for so long; is it TMX?")
        check_growth(self.stream, self.path)
        return bytes(self.stream.read(size))


def _units(stream: Any, path: Path) -> Iterator[Any]:
    """Every <tu>; each is removed from the tree when the next is requested."""
    pruned = _Pruned(stream, path)
    parsing = etree.iterparse(
        pruned,
        events=("start", "end"),
        tag=("tmx", "tu"),
        resolve_entities=False,
        load_dtd=False,
        no_network=True,
        remove_comments=True,
        remove_pis=True,
        chunk_size=_CHUNK_BYTES,
    )
    first = True
    for event, unit in parsing:
        pruned.root = unit.getroottree().getroot() if pruned.root is None else pruned.root
        if event == "start" or unit.tag != "tu":
            continue
        pruned.held = 0
        if first:
            refuse_entities(unit, path)
            first = False
        yield unit
        unit.clear()


def refuse_entities(unit: Any, path: Path) -> None:
    """Raise CorpusError where the document type of an element's file declares any."""
    declared = unit.getroottree().docinfo.internalDTD
    if declared is not None and any(True for _ in declared.iterentities()):
        raise CorpusError(
            f"{path}: its document type declares entities, which can name other files or swell without end, so none is expanded; "
            "write the text itself, and take the declarations out"
        )


def _segments(unit: Any) -> dict[str, Any]:
    """Tag of a language -> the first segment in it."""
    segments: dict[str, Any] = {}
    for variant in unit.iterchildren("tuv"):
        code = variant.get(LANG) or variant.get("lang")
        if code and code not in segments and (segment := variant.find("seg")) is not None:
            segments[code] = segment
    return segments


def _text(segment: Any, path: Path) -> str:
    return on_one_line("".join(_parts(segment, path)) if len(segment) else segment.text or "")


def _parts(element: Any, path: Path) -> Iterator[str]:
    yield element.text or ""
    for inner in element:
        if inner.tag is etree.Entity:
            raise CorpusError(f"{path}, line {inner.sourceline}: uses an entity (&...;) of a document type, but none is expanded")
        if inner.tag not in _CODES:
            yield from _parts(inner, path)
        yield inner.tail or ""
