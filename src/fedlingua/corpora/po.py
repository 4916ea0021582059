"""Reader of gettext's catalogues, `.po` and `.mo`: the strings of a program and their translations, with all marks that are in them.

polib parses them. It takes what is cut off, so that is looked for first.
"""

import re
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from gettext import c2py
from pathlib import Path
from typing import Any

from fedlingua.common.errors import CorpusError
from fedlingua.corpora.read import Corpus, Pair, check_file, damaged, empty, on_one_line

CATALOGUE_BYTES = 64 << 20
"""Largest catalogue. It is read whole, in some five times its size, or twenty if each string is a letter."""
_ORDERS = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}
"""First bytes of a .mo -> the order of its bytes."""
_NOT_CLOSED = re.compile(rb'^(?:\xef\xbb\xbf)?+[ \t]*+[^#\s](?![^\n]*"[ \t\r]*$)', re.MULTILINE)
"""A line that is neither blank nor a comment, and does not end in a quotation mark."""
_ENGLISH = re.compile(r'^Default: "(.*?)(?<!\\)"$', re.DOTALL | re.MULTILINE)
_PLACEHOLDER = re.compile(
    r"%%|%(?:\([\w.-]+\))?(?:\d+\$)?[-+#0]*\d*(?:\.\d+)?(?:hh?|ll?|[zjt])?[diouxXeEfFgGcrsa@]|%\d+"
    r"|[$#%]?\{\{?\s*[\w.]*(?:[!:][^{}\s]*)?\s*\}\}?"
)


@dataclass(frozen=True)
class PoFile(Corpus[Pair]):
    """A catalogue. Fuzzy, obsolete and untranslated strings are left out. Of a plural's forms those for one and for three things are
    read, or, where a language has one form, that with the English plural. A message id that is a key, as in Zope, stands for the English
    in its comment, which no .mo has.
    """

    path: Path

    def read(self) -> Iterator[Pair]:
        catalogue = _parsed(self.path)
        one, several = _forms(catalogue.metadata.get("Plural-Forms", ""))
        translated = False
        for entry in catalogue:
            if not entry.obsolete and "fuzzy" not in entry.flags:
                for source, target in _sides(entry, one, several):
                    if source and target:
                        translated = True
                        yield Pair(on_one_line(source), on_one_line(target))
        if not translated:
            raise CorpusError(
                f"{self.path}: none of its {len(catalogue)} strings is translated; fuzzy and obsolete ones do not count"
            )


def _sides(entry: Any, one: int, several: int) -> Iterator[tuple[str, str]]:
    if entry.msgid_plural:
        if one != several:
            yield entry.msgid, entry.msgstr_plural.get(one, "")
        yield entry.msgid_plural, entry.msgstr_plural.get(several, "")
    else:
        english = None if " " in entry.msgid else _ENGLISH.search(entry.comment)
        yield english[1].replace('\\"', '"').replace("\\n", "\n") if english else entry.msgid, entry.msgstr


def _parsed(path: Path) -> Any:
    """Return the entries of a catalogue; raise CorpusError for what is none."""
    import polib  # here, since most sites need none

    check_file(path)
    try:
        if path.stat().st_size > CATALOGUE_BYTES:
            raise CorpusError(
                f"{path}: has more than {CATALOGUE_BYTES:,} bytes, and a catalogue is read whole; cut it into several"
            )
        data = path.read_bytes()
    except OSError as error:
        raise CorpusError(damaged(path, "line 0", error)) from None
    if not data:
        raise CorpusError(empty(path, "string"))
    if order := _ORDERS.get(data[:4]):
        _check_tables(path, data, order)
    try:
        catalogue = (polib.mofile if order else polib.pofile)(str(path))
        cut = _NOT_CLOSED.search(data) if not order else None
        line = data.count(b"\n", 0, cut.start()) + 1 if cut else 0
    except (UnicodeError, LookupError):
        charset = polib.detect_encoding(str(path), bool(order))
        advice = "compile it again from its .po" if order else "unpack it, convert it to UTF-8, or name its charset in its header"
        raise CorpusError(f"{path}: is not in {charset}; {advice}") from None
    except OSError as error:  # of its message only the line is told, since it can quote a word
        line = int((re.search(r"line (\d+)", str(error)) or [1, 1])[1])
    if line:
        raise CorpusError(
            f"{path}, line {line}: is not as in gettext's catalogues; is the file whole? gettext's msgcat says what is wrong, or mends it"
        )
    return catalogue


def _check_tables(path: Path, data: bytes, order: str) -> None:
    """Raise CorpusError if strings of a .mo lie outside it, or overlap; their lengths and places are in two tables."""
    try:
        count, *tables = struct.unpack_from(f"{order}3I", data, 8)
        strings = [struct.unpack_from(f"{order}2I", data, table + 8 * i) for table in tables for i in range(count)]
        is_whole = all(start + length <= len(data) for length, start in strings)
    except struct.error:
        is_whole = False
    if not is_whole:
        raise CorpusError(f"{path}: is cut off; get the file again")
    if sum(length for length, _ in strings) > 4 * len(data):
        raise CorpusError(f"{path}: its strings overlap, so that it would swell; get the file again")


def _forms(header: str) -> tuple[int, int]:
    """Return which plural form is for one thing and which for three: 0 and 1 in most languages, 0 and 0 in Japanese, 1 and 3 in Arabic."""
    rule = re.search(r"plural\s*=([^;]*)", header)
    try:
        form = c2py(rule[1] if rule else "n != 1")
        return form(1), form(3)
    except (ValueError, ArithmeticError):
        return 0, 1


def placeholders(text: str) -> Counter[str]:
    """Count what a program fills in, such as %s, %(x)s, {x}, ${x}; %1$s is %s, since a translation may have another order."""
    marks = (re.sub(r"\s|\d+\$", "", mark) for mark in _PLACEHOLDER.findall(text))
    return Counter(mark for mark in marks if mark != "%%")
