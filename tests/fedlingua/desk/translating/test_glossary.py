"""Glossaries: what is read of TSV and TBX, which way round, and every mistake by its line."""

import gzip
from pathlib import Path

import pytest

from fedlingua.common.errors import ConfigError, CorpusError
from fedlingua.common.languages import Direction
from fedlingua.desk.translating.glossary import folded, named_direction, pattern, read_glossary

DE_EN = Direction("de", "en")
TBX = """<?xml version="1.0"?>
<martif type="TBX" xml:lang="en"><text><body>
<termEntry id="1"><langSet xml:lang="de"><tig><term>Fieber</term></tig><tig><term>erhöhte
 Temperatur</term></tig></langSet>
<langSet xml:lang="en-GB"><ntig><termGrp><term>fever</term></termGrp></ntig><tig><term>pyrexia</term></tig></langSet></termEntry>
<termEntry id="2"><langSet xml:lang="de"><tig><term>Husten</term></tig></langSet></termEntry>
</body></text></martif>"""
TBX_3 = """<tbx xmlns="urn:iso:std:iso:30042:ed-2" type="TBX-Basic"><text><body><conceptEntry>
<langSec xml:lang="en"><termSec><term>fever</term></termSec></langSec>
<langSec xml:lang="de"><termSec><term>Fieber</term></termSec></langSec></conceptEntry></body></text></tbx>"""


def pairs_of(path: Path, direction: Direction = DE_EN) -> list[tuple[str, str, int]]:
    return [(term.source, term.target, term.line) for term in read_glossary(path, direction)[0]]


def written(folder: Path, text: str, name: str = "terms.tsv") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_a_tsv_is_read_line_by_line(tmp_path: Path) -> None:
    file = written(tmp_path, "Fieber\tfever\n\n akute Bronchitis \tacute bronchitis\nFIEBER\tFever\n")
    assert pairs_of(file) == [("Fieber", "fever", 1), ("akute Bronchitis", "acute bronchitis", 3)]
    assert read_glossary(file, DE_EN)[1] == []


def test_a_name_that_tells_a_direction_turns_the_columns(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "en-de.tsv.gz", "wt", encoding="utf-8") as file:
        file.write("fever\tFieber\n")
    assert pairs_of(tmp_path / "en-de.tsv.gz") == [("Fieber", "fever", 1)]
    assert pairs_of(tmp_path / "en-de.tsv.gz", DE_EN.reverse) == [("fever", "Fieber", 1)]
    assert pairs_of(written(tmp_path, "Fieber\tfever\n", "x.de-en.tsv")) == [("Fieber", "fever", 1)]
    with pytest.raises(ConfigError, match="holds terms of en and de, and fr-en is translated"):
        read_glossary(tmp_path / "en-de.tsv.gz", Direction("fr", "en"))


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("x.de-en.tsv", "de-en"),
        ("x.DE-EN.tsv", "de-en"),
        ("x.de-en.TSV", "de-en"),
        ("x.de--en.tsv", "de-en"),
        ("de-en.TSV.gz", "de-en"),
        ("x.zh-Hant--en.tsv", "zh-Hant--en"),
        ("x.zh-Hant-en.tsv", "zh-Hant--en"),
        ("x.pt-BR--en.tsv", "pt-BR--en"),
        ("x.sr-Latn--de.tbx", "sr-Latn--de"),
        ("my-terms.tsv", "None"),
        ("terms.v1-2.tsv", "None"),
        ("terms.en-US.tsv", "None"),
        ("terms.2024-05-01.tsv", "None"),
        ("med-de-en.tsv", "None"),
        ("x.de-en.v2.tsv", "None"),
        ("x.de-en.csv", "None"),
    ],
)
def test_a_name_tells_a_direction_by_its_last_part(name: str, direction: str) -> None:
    assert str(named_direction(Path(name))) == direction


def test_a_name_with_a_code_of_no_language_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--terms x\.cz-en\.tsv: direction = 'cz-en': language = 'cz' is not known"):
        named_direction(Path("x.cz-en.tsv"))


def test_an_ending_in_capitals_is_the_same_ending(tmp_path: Path) -> None:
    assert pairs_of(written(tmp_path, TBX_3, "T.TBX")) == [("Fieber", "fever", 3)]


@pytest.mark.parametrize("line", ["alone", "a\tb\tc", "\tb", "a\t "])
def test_a_line_that_is_no_pair_is_refused_by_its_number(tmp_path: Path, line: str) -> None:
    with pytest.raises(CorpusError, match=r"terms.tsv, line 2: got \d of \d column\(s\) with text; wanted a term, TAB"):
        read_glossary(written(tmp_path, f"a\tb\n{line}\n"), DE_EN)


def test_two_translations_of_a_term_are_told_by_their_lines_and_the_first_is_taken(tmp_path: Path) -> None:
    file = written(tmp_path, "Grippe\tflu\nFieber\tfever\ngrippe\tinfluenza\n")
    terms, remarks = read_glossary(file, DE_EN)
    assert [term.target for term in terms] == ["flu", "fever"]
    assert remarks == [f"{file}, line 3: translates the term of line 1 differently; line 1 is used"]


def test_tbx_of_either_edition_gives_every_source_term_the_first_target_term(tmp_path: Path) -> None:
    assert pairs_of(written(tmp_path, TBX, "t.tbx")) == [("Fieber", "fever", 3), ("erhöhte Temperatur", "fever", 3)]
    assert [pair[:2] for pair in pairs_of(written(tmp_path, TBX_3, "t3.tbx"))] == [("Fieber", "fever")]


def admn(status: str) -> str:
    return f'<termNote type="administrativeStatus">{status}-admn-sts</termNote>' if status else ""


EITHER_EDITION = {
    "2, tig": ("termEntry", "langSet", "<tig><term>{}</term>{}</tig>", admn),
    "2, ntig": ("termEntry", "langSet", "<ntig><termGrp><term>{}</term><termNoteGrp>{}</termNoteGrp></termGrp></ntig>", admn),
    "2, norm": (
        "termEntry",
        "langSet",
        "<tig><term>{}</term>{}</tig>",
        lambda status: f'<termNote type="normativeAuthorization">{status}</termNote>',
    ),
    "3, DCA": ("conceptEntry", "langSec", "<termSec><term>{}</term>{}</termSec>", admn),
    "3, DCT": (
        "conceptEntry",
        "langSec",
        "<termSec><term>{}</term>{}</termSec>",
        lambda status: (
            f'<m:administrativeStatus xmlns:m="http://www.tbxinfo.net/ns/min">{status}-admn-sts</m:administrativeStatus>'
        ),
    ),
    "tool": (
        "termEntry",
        "langSet",
        "<tig>{1}<term>{0}</term></tig>",
        lambda status: f'<admin type="Usage status">{status}</admin>',
    ),
}


@pytest.mark.parametrize("edition", EITHER_EDITION)
def test_the_status_of_a_term_in_tbx_decides(tmp_path: Path, edition: str) -> None:
    entry, section, term, note = EITHER_EDITION[edition]

    def concept(sources: list[tuple[str, str]], targets: list[tuple[str, str]]) -> str:
        languages = {"de": sources, "en": targets}
        inside = "".join(
            f'<{section} xml:lang="{code}">{"".join(term.format(text, note(status)) for text, status in terms)}</{section}>'
            for code, terms in languages.items()
        )
        return f"<{entry}>{inside}</{entry}>"

    concepts = [
        concept([("Buch", ""), ("Schmöker", "deprecatedTerm")], [("tome", "deprecatedTerm"), ("book", ""), ("reader", "")]),
        concept([("Fieber", "")], [("heat", "admittedTerm"), ("fever", "preferredTerm")]),
        concept([("Lunge", "")], [("lights", "supersededTerm"), ("lung", "admittedTerm")]),
        concept([("Herz", "")], [("ticker", "forbiddenTerm")]),
        concept([("Arzt", "obsoleteTerm"), ("Medikus", "")], [("leech", "")]),
        concept([("Arzt", "")], [("doctor", "")]),
    ]
    file = written(tmp_path, f"<x>{''.join(concepts)}</x>", "t.tbx")
    assert {source: target for source, target, _ in pairs_of(file)} == {
        "Buch": "book",
        "Schmöker": "book",
        "Fieber": "fever",
        "Lunge": "lung",
        "Medikus": "leech",
        "Arzt": "doctor",
    }
    with pytest.raises(CorpusError, match="holds no term of de-en but deprecated or forbidden ones"):
        read_glossary(written(tmp_path, f"<x>{concepts[3]}</x>", "t.tbx"), DE_EN)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (TBX[:-20], "line .*: is not well-formed XML"),
        (TBX.replace("<martif", '<!DOCTYPE martif [<!ENTITY a "b">]><martif'), "declares entities"),
        (TBX.replace("Fieber", "&unknown;"), "is not well-formed XML"),
        (TBX.replace('"en-GB"', '"fr"'), "holds no term of de-en"),
    ],
)
def test_a_tbx_that_is_none_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(CorpusError, match=told):
        read_glossary(written(tmp_path, text, "t.tbx"), DE_EN)


def test_terms_are_whole_words_where_there_are_spaces() -> None:
    found = pattern(["akute bronchitis", "bronchitis", "arm"], "de")
    assert found.findall(folded("Akute  Bronchitis, warm; BRONCHITIS. Armut, Arm-")) == ["akute bronchitis", "bronchitis", "arm"]
    assert pattern(["支气管炎"], "zh").findall("急性支气管炎了") == ["支气管炎"]
