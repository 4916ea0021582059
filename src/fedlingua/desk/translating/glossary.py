"""Glossaries: terms and their translations, as TSV (term, TAB, translation) or TBX (ISO 30042: terms by concept and language).

A TSV named NAME.en-de.tsv or en-de.tsv says which column is which and serves de-en, too. No entity of a TBX is expanded. In a TBX
of either edition the status of a term decides, whether a termNote (DCA) or an element of its own (DCT) says it: a preferred
translation is used before others, and a deprecated, superseded or forbidden one never.
"""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import regex
from lxml import etree

from fedlingua.common.errors import ConfigError, CorpusError
from fedlingua.common.languages import Direction, matching, parse_direction, without_spaces
from fedlingua.common.visible import trimmed
from fedlingua.corpora.read import LINE_BYTES, UNREADABLE, damaged, opened, read_rows
from fedlingua.corpora.tmx import LANG, mistake, refuse_entities

_STATUS = regex.compile("status|authorization|usage|forbidden", regex.IGNORECASE)
"""In the names of notes that say a term's status: administrativeStatus and normativeAuthorization of ISO 30042, and of other tools."""
_FORBIDDEN = regex.compile(
    "deprecated|superseded|forbidden|obsolete|prohibited|rejected|not.?recommended|true$", regex.IGNORECASE
)
"""Beginnings of values by which a term is not to be used: deprecatedTerm-admn-sts, or true of a note named forbidden."""


@dataclass(frozen=True)
class Term:
    """A term and its translation. line: line number in the glossary."""

    source: str
    target: str
    line: int


def read_glossary(path: Path, direction: Direction) -> tuple[list[Term], list[str]]:
    """Return the terms of a direction, and a remark for each line that translates an earlier term differently and is not used.

    Raises:
        CorpusError: A line is not a pair, XML is malformed, there is an entity, or no term at all; names file and line.
        ConfigError: The file's name names other languages.
    """
    if (named := named_direction(path)) and direction not in (named, named.reverse):
        raise ConfigError(f"--terms {path}: holds terms of {named.source} and {named.target}, and {direction} is translated")
    is_tbx = path.name.lower().removesuffix(".gz").endswith((".tbx", ".xml"))
    terms, remarks = dict[str, Term](), list[str]()
    for term in _of_tbx(path, direction) if is_tbx else _of_tsv(path, turned=named is not None and named != direction):
        first = terms.setdefault(folded(term.source), term)
        if folded(first.target) != folded(term.target):
            remarks.append(
                f"{path}, line {term.line}: translates the term of line {first.line} differently; line {first.line} is used"
            )
    if not terms:
        others = " but deprecated or forbidden ones" if is_tbx else ""
        raise CorpusError(f"{path}: holds no term of {direction}{others}; give another glossary, or none")
    return list(terms.values()), remarks


def named_direction(path: Path) -> Direction | None:
    """Return the direction that a file's name ends in, such as `DE-EN` or `zh-Hant--en`, if any.

    Raises:
        ConfigError: the name ends in two short codes, one of them of no language, as in cz-en.
    """
    ending = regex.search(r"(?:^|\.)([^.]*-[^.]*)\.(?:tsv|tbx|xml)(?:\.gz)?$", path.name, regex.IGNORECASE)
    if ending is None:
        return None
    try:
        named = parse_direction(ending[1], f"--terms {path}: direction")
    except ConfigError:
        if regex.fullmatch("[a-z]{2,3}-[a-z]{2,3}", ending[1]):
            raise
        return None
    # Without "--", codes with a hyphen have to be in their normal form: med-de-en is not med-DE into en.
    is_plain = "--" in ending[1] or ending[1].count("-") == 1
    return named if is_plain or "-".join(named.sides) == ending[1] else None


def folded(text: str) -> str:
    """Normalize a text for comparison: NFKC, casefolded, one space between words."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def pattern(terms: list[str], language: str) -> regex.Pattern[str]:
    """Return a pattern that finds folded terms in folded text, longest first; whole words if the language has spaces."""
    either = "|".join(regex.escape(term) for term in sorted(terms, key=len, reverse=True))
    return regex.compile(either if without_spaces(language) else rf"(?<!\w)(?:{either})(?!\w)")


def _of_tsv(path: Path, turned: bool) -> Iterator[Term]:
    for number, row in read_rows(path):
        columns = [*map(trimmed, row)]
        if not any(columns):
            continue
        if len(columns) != 2 or not all(columns):
            raise CorpusError(
                f"{path}, line {number}: got {sum(map(bool, columns))} of {len(columns)} column(s) with text; wanted a term, TAB, and its "
                "translation; mend the line"
            )
        source, target = reversed(columns) if turned else columns
        yield Term(source, target, number)


def _of_tbx(path: Path, direction: Direction) -> Iterator[Term]:
    """Yield every term of the source language with the concept's best of the target language; those deprecated in the source last."""
    parser = etree.XMLParser(resolve_entities=False, load_dtd=False, no_network=True, remove_comments=True, remove_pis=True)
    try:
        with opened(path) as stream:
            content = stream.read(16 * LINE_BYTES + 1)
        if len(content) > 16 * LINE_BYTES:
            raise CorpusError(f"{path}: has more than {16 * LINE_BYTES:,} bytes; divide the glossary")
        root = etree.fromstring(content, parser)
    except etree.XMLSyntaxError as error:
        raise CorpusError(f"{path}{mistake(error)}; is the file whole?") from None
    except UNREADABLE as error:
        raise CorpusError(damaged(path, "line 0", error)) from None
    refuse_entities(root, path)
    ranked = list[tuple[int, Term]]()
    for concept in root.iter("{*}termEntry", "{*}conceptEntry"):
        sections = {section.get(LANG, ""): section for section in concept.iter("{*}langSet", "{*}langSec")}
        sources, targets = ([_terms(sections[tag]) for tag in matching(code, sections)] for code in direction.sides)
        usable = [text for of_tag in targets for rank, text, _ in sorted(of_tag, key=itemgetter(0)) if rank < _NEVER]
        ranked += [(rank, Term(text, usable[0], line)) for rank, text, line in (sources[0] if sources and usable else ())]
    yield from (term for _, term in sorted(ranked, key=lambda each: each[0] == _NEVER))


_PREFERRED, _USUAL, _NEVER = range(3)


def _terms(section: Any) -> list[tuple[int, str, int]]:
    """Return the terms of a language's section: rank by their status, text, line."""
    terms = []
    for term in section.iter("{*}term"):
        group = next(term.iterancestors("{*}tig", "{*}ntig", "{*}termSec"), term.getparent())
        notes = (
            ((note.get("type") or etree.QName(note).localname), "".join(note.itertext()).strip()) for note in group.iter("{*}*")
        )
        statuses = [value for kind, value in notes if _STATUS.search(kind)]
        is_preferred = any(value.lower().startswith("preferred") for value in statuses)
        rank = _NEVER if any(map(_FORBIDDEN.match, statuses)) else _PREFERRED if is_preferred else _USUAL
        if text := " ".join("".join(term.itertext()).split()):
            terms.append((rank, text, term.sourceline))
    return terms
