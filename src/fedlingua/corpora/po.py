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

from fedlingua.common.errors import CorpusError
from fedlingua.corpora.read import Corpus, Pair, check_file, damaged, empty, on_one_line

CATALOGUE_BYTES = 64 << 20
"""Largest catalogue. It is read whole, in about six times its size."""
_ORDERS = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}
"""First bytes of a .mo -> the order of its bytes."""
_NOT_CLOSED = re.compile(rb'^[ \t]*+[^#\s](?![^\n]*"[ \t\r]*$)', re.MULTILINE)
"""A line that is neither blank nor a comment, and does not end in a quotation mark."""
_DEFAULT = re.compile(r'^Default: "(.*)"$', re.MULTILINE)
_PLACEHOLDER = re.compile(
    r"%%|%(?:\(\w+\))?(?:\d+\$)?[-+#0]*\d*(?:\.\d+)?(?:hh?|ll?|[zjt])?[diouxXeEfFgGcrsa@]|%\d+"
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
        import polib

        binary = _check(self.path)
        try:
            catalogue = (polib.mofile if binary else polib.pofile)(str(self.path))
        except (UnicodeError, LookupError):
            charset = polib.detect_encoding(str(self.path), binary)
            raise CorpusError(f"{self.path}: is not {charset}; convert it to UTF-8, or name its charset in its header") from None
        except OSError as error:  # its message can quote a word
            line = re.search(r"line (\d+)", str(error))
            raise CorpusError(_no_catalogue(self.path, line[1] if line else "1")) from None
        one, several = _forms(catalogue.metadata.get("Plural-Forms", ""))
        translated = False
        for entry in catalogue:
            if entry.obsolete or "fuzzy" in entry.flags:
                continue
            default = None if " " in entry.msgid else _DEFAULT.search(entry.comment)
            sides = {polib.unescape(default[1]) if default else entry.msgid: entry.msgstr}
            if entry.msgid_plural:
                forms = entry.msgstr_plural
                sides = {entry.msgid_plural: forms.get(several, "")}
                if one != several:
                    sides = {entry.msgid: forms.get(one, ""), **sides}
            for source, target in sides.items():
                if source and target:
                    translated = True
                    yield Pair(on_one_line(source.strip("\n")), on_one_line(target.strip("\n")))
        if not translated:
            raise CorpusError(
                f"{self.path}: none of its {len(catalogue)} strings is translated; fuzzy and obsolete ones do not count"
            )


def _check(path: Path) -> bool:
    """Return whether a catalogue is a .mo; raise CorpusError if it is missing, empty, too large, or cut off."""
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
    if not (order := _ORDERS.get(data[:4])):
        if open_line := _NOT_CLOSED.search(data):
            raise CorpusError(_no_catalogue(path, data.count(b"\n", 0, open_line.start()) + 1))
        return False
    try:
        count, *tables = struct.unpack_from(f"{order}3I", data, 8)
        strings = [struct.unpack_from(f"{order}2I", data, start + 8 * i) for start in tables for i in range(count)]
    except struct.error:
        raise CorpusError(f"{path}: is cut off; get the file again") from None
    if any(length + start > len(data) for length, start in strings):
        raise CorpusError(f"{path}: is cut off; get the file again")
    if sum(length for length, _ in strings) > 4 * len(data):
        raise CorpusError(f"{path}: its strings overlap, so that it would swell; get the file again")
    return True


def _no_catalogue(path: Path, line: int | str) -> str:
    return f"{path}, line {line}: is not as in a catalogue of gettext; is the file whole? msgfmt, gettext's own tool, says what is wrong"


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
    found = (re.sub(r"\s|\d+\$", "", match) for match in _PLACEHOLDER.findall(text))
    return Counter(match for match in found if match != "%%")
