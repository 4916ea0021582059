"""Every bad input that a site may hand in, read as a run reads it: an account of each pair, or an error with its place.

Twelve good pairs stand before what is bad, so that a site has enough to be split. What single readers do is in their own tests.
"""

import gzip
from collections.abc import Sequence
from pathlib import Path

import pytest

from fedlingua.common.errors import CorpusError
from fedlingua.corpora.split import SPLITS
from fedlingua.corpora.texts import read_sites
from tests.federations import federation

NUMBERS = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf"]
GOOD = [(f"der Hund {word}", f"the dog {number}") for number, word in enumerate(NUMBERS)]
RUSSIAN = [(f"собака спит здесь {number}", f"the dog sleeps here {number}") for number in range(12)]
SPLIT = "[split]\ntrain = 0.4\ndev = 0.3\ntest = 0.3\n"
TSV, TMX, MOSES = 'tsv = "x.tsv"', 'tmx = "x.tmx"', 'moses = "x"'


def tsv(*rows: Sequence[str], end: str = "\n", good: Sequence[Sequence[str]] = GOOD) -> str:
    return "".join("\t".join(row) + end for row in [*good, *rows])


def tmx(*units: str, before: str = "", good: Sequence[tuple[str, str]] = GOOD) -> str:
    return f"{before}<tmx><body>\n{''.join(map(variants, good))}{''.join(units)}</body></tmx>"


def variants(pair: tuple[str, str], codes: tuple[str, str] = ("de-DE", "en")) -> str:
    sides = zip(codes, pair, strict=True)
    return "<tu>" + "".join(f'<tuv xml:lang="{code}"><seg>{side}</seg></tuv>' for code, side in sides) + "</tu>\n"


def account(
    folder: Path, files: dict[str, str | bytes], corpus: str, rules: str = "", direction: str = "de-en"
) -> tuple[int, int, dict[str, int]]:
    """(read, kept, dropped) of a site with these files, after a look at all of its splits."""
    (folder / "data").mkdir()
    for name, content in files.items():
        (folder / "data" / name).write_bytes(content.encode() if isinstance(content, str) else content)
    text = f'{SPLIT}[cleaning]\n{rules}\n[[site]]\nname = "court"\ndirection = "{direction}"\n{corpus}\n'
    found = read_sites(federation(folder, text), frozenset())["court"]
    assert sum(len(found.splits[split]) for split in SPLITS) == found.account.kept
    return found.account.read, found.account.kept, found.account.dropped


CONTROL = "drop-control-characters = true"


@pytest.mark.parametrize(
    ("files", "corpus", "rules", "expected"),
    [
        ({"x.tsv": tsv(end="\r\n")}, TSV, "", (12, 12, {})),
        ({"x.tsv": tsv()[:-1]}, TSV, "", (12, 12, {})),
        ({"x.tsv": "\ufeff" + tsv()}, TSV, 'min-words = 3\nnormalize = "NFC"', (12, 12, {})),
        ({"x.tsv": tsv(("a\u2028b c\x85d", "e\x0bf g\x0ch"))}, TSV, "", (13, 13, {})),
        (
            {"x.tsv": tsv(("a\u2028b c\x85d", "e\x0bf g\x0ch"), ("a\u2028b c", "d e"))},
            TSV,
            CONTROL,
            (14, 13, {"control-characters": 1}),
        ),
        ({"x.tsv": tsv(("a\0b c", "d e"))}, TSV, "", (13, 13, {})),
        ({"x.tsv": tsv(("a\0b c", "d e"))}, TSV, CONTROL, (13, 12, {"control-characters": 1})),
        ({"x.tsv": tsv(("", "nobody there"), ("niemand da", " "))}, TSV, "", (14, 12, {"empty": 2})),
        ({"x.tsv": tsv(("w " * 2**19, "a word"), ("x" * 2**20, "a word"))}, TSV, "", (14, 12, {"too-long": 1, "too-short": 1})),
        ({"x.tsv": tsv(("ein Hund", "ein Hund"))}, TSV, "drop-identical = true", (13, 12, {"identical": 1})),
        ({"x.tsv": tsv(("the dog 3", "der Hund drei"))}, TSV, "", (13, 13, {})),
        ({"x.tmx": tmx(variants(("nur das", "seul"), ("de", "fr")), "<tu/>")}, TMX, "", (14, 12, {"empty": 2})),
        ({"x.tmx": tmx(variants(("a b", "c d"), ("tlh", "en")))}, TMX, "", (13, 12, {"empty": 1})),
        ({"x.tmx": tmx(before='<!DOCTYPE tmx SYSTEM "tmx14.dtd">')}, TMX, "", (12, 12, {})),
        ({"x.tmx": tmx().encode("utf-16")}, TMX, "", (12, 12, {})),
    ],
    ids=[
        *(
            "CRLF",
            "no final newline",
            "mark of UTF-8",
            "marks in lines",
            "marks, ruled out",
            "NUL",
            "NUL, ruled out",
            "empty side",
        ),
        *(
            "a megabyte",
            "identical",
            "one pair swapped",
            "no variant",
            "a unit in another language",
            "document type",
            "UTF-16 TMX",
        ),
    ],
)
def test_it_is_accounted_for(
    tmp_path: Path, files: dict[str, str | bytes], corpus: str, rules: str, expected: tuple[int, int, dict[str, int]]
) -> None:
    assert account(tmp_path, files, corpus, rules) == expected


BOMB = '<!DOCTYPE tmx [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]>'


@pytest.mark.parametrize(
    ("files", "corpus", "told"),
    [
        ({"x.tsv": tsv().encode() + b"dr\xfcben\tover there\n"}, TSV, "x.tsv, line 13: byte 3 of the line is not UTF-8"),
        ({"x.tsv": tsv().encode("utf-16")}, TSV, "x.tsv, line 1: this is UTF-16"),
        ({"x.tsv": tsv(end="\r")}, TSV, "x.tsv, line 1: the file has 12 carriage returns and no line feed"),
        ({"x.de": "a\n" * 12, "x.en": "b\n" * 13}, MOSES, "x.de ends after line 12, but"),
        ({"x.de": "a\n" * 12, "x.en": ""}, MOSES, "x.en is empty"),
        ({"x.tsv": tsv(("ein Hund", "a dog", "and a TAB"))}, TSV, "x.tsv, line 13: got 3 columns, and line 1 has 2"),
        ({"x.tsv": tsv(("ein Hund",))}, TSV, "x.tsv, line 13: got 1 column(s), wanted 2"),
        ({"x.tsv": ""}, TSV, "x.tsv is empty"),
        ({"x.tmx": ""}, TMX, "x.tmx is empty"),
        ({"x.tmx": tmx(variants(("a\0b", "c")))}, TMX, "x.tmx, line 14: is not well-formed XML (INVALID_CHAR), after 12 units"),
        ({"x.tmx": tmx(before=BOMB)}, TMX, "x.tmx: its document type declares entities"),
        ({"x.tmx": tmx(variants(("&b;", "c")), before='<!DOCTYPE tmx SYSTEM "x.dtd">')}, TMX, "x.tmx, line 14: uses an entity"),
        ({"x.tmx": tmx().replace('"en"', '"tlh"')}, TMX, "x.tmx: none of 12 units has 'en'; got de-DE 12, tlh 12"),
        ({"x.tmx": tmx()[:-40]}, TMX, "x.tmx, line 13: is not well-formed XML"),
        ({"x.tsv.gz": gzip.compress(tsv().encode() * 999)[:-9]}, 'tsv = "x.tsv.gz"', "x.tsv.gz, after line"),
        ({"x.tsv": "ein Hund\ta dog\n"}, TSV, "site court: no "),
        ({"x.tsv": "Hund\tdog\n"}, TSV, "site court: none of 1 pairs was kept (too-short 1)"),
    ],
    ids=[
        *(
            "UTF-8",
            "UTF-16",
            "CR",
            "unequal",
            "one file empty",
            "extra TAB",
            "no TAB",
            "zero length",
            "zero length TMX",
            "NUL in TMX",
        ),
        *("bomb", "entity", "unknown language", "cut TMX", "cut gzip", "one pair", "one pair, dropped"),
    ],
)
def test_it_is_refused_with_its_place(tmp_path: Path, files: dict[str, str | bytes], corpus: str, told: str) -> None:
    with pytest.raises(CorpusError) as caught:
        account(tmp_path, files, corpus)
    assert told in str(caught.value)


def test_swapped_columns_are_refused_with_what_to_do(tmp_path: Path) -> None:
    swapped = [pair[::-1] for pair in RUSSIAN]
    with pytest.raises(CorpusError, match=r"site court: of the first 12 pairs 12 have ru written as en is.*columns = \[1, 0\]"):
        account(tmp_path, {"x.tsv": tsv(good=swapped)}, TSV, direction="ru-en")
    (tmp_path / "turned").mkdir()
    turned = account(tmp_path / "turned", {"x.tsv": tsv(good=swapped)}, f"{TSV}\ncolumns = [1, 0]", direction="ru-en")
    assert turned == (12, 12, {})


def test_strict_cleaning_refuses_the_first_pair_that_it_would_drop(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"site court: pair 13 would be dropped \(empty\), and cleaning is strict"):
        account(tmp_path, {"x.tsv": tsv(("", "nobody there"))}, TSV, "strict = true")
    (tmp_path / "good").mkdir()
    assert account(tmp_path / "good", {"x.tsv": tsv()}, TSV, "strict = true") == (12, 12, {})
