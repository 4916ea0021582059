"""Text that was decoded wrongly before it came, and headers: told with their share, and real text is not mistaken for either."""

import pytest

from fedlingua.common.languages import parse_direction
from fedlingua.corpora.damage import Damage, doubts_about, is_decoded_twice, is_header
from fedlingua.corpora.read import Pair

DE_EN = parse_direction("de-en")
REAL = [
    "Grüße aus München",
    "SÃO PAULO, NÃO É AMANHÃ",
    "VOLTO AMANHÃ…",
    "A IRMÃ”",
    "Volto amanhã…”",
    "Et le voilà\xa0»",
    "Le « Ã » est une lettre",
    "CORAÇÃO”",
    "VŠETKO O PARÍŽI",
    "NEMÔŽEM, HOVORÍŠ",
    "ÂN GIANG, Ấn Độ, Â",
    "Đà Nẵng là thành phố của Việt Nam",
    "ÎLE DE RÉ, ÂGE D’OR",
    "Привет",
    "20 °C",
    "ascii",
    "",
]


@pytest.mark.parametrize("sentence", REAL)
def test_real_text_is_not_taken_for_damaged(sentence: str) -> None:
    assert not is_decoded_twice(sentence)


def sloppy(raw: bytes) -> str:
    return "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in raw)


@pytest.mark.parametrize("sentence", [each for each in REAL if not each.isascii()])
def test_the_same_text_decoded_twice_is(sentence: str) -> None:
    assert is_decoded_twice(sentence.encode().decode("latin-1"))
    assert is_decoded_twice(sloppy(sentence.encode()))


def test_damage_is_told_with_its_share_and_without_the_text() -> None:
    good = [(f"Der Hund läuft heute zum {number}. Mal.", f"The dog runs for time {number} today.") for number in range(96)]
    pairs = [*good, ("GrÃ¼ÃŸe", "x"), ("x", "naÃ¯f"), ("x", "na\ufffdf"), ("Gr\ufffd", "\ufffd")]
    assert doubts_about([Pair(*pair) for pair in pairs], DE_EN, "a.tsv") == [
        "a.tsv: 2 of 100 lines (2.0%) have UTF-8 that was read as Windows-1252 or Latin-1 (Ã¼ for ü); export the text anew as UTF-8, or "
        "mend it",
        "a.tsv: 2 of 100 lines (2.0%) have U+FFFD in place of lost characters; export the text anew as UTF-8, since they cannot be "
        "restored",
    ]
    assert doubts_about([Pair(*pair) for pair in good], DE_EN, "a.tsv") == []


@pytest.mark.parametrize(
    ("source", "target", "direction"),
    [
        ("source", "target", "de-en"),
        ("SRC", "Tgt", "de-en"),
        ("Source sentence", "Translation", "de-en"),
        ("de", "en", "de-en"),
        ("de_AT", "en-GB", "de-en"),
        ("text_de", "text_en", "de-en"),
        ("German", "English", "de-en"),
        ("Deutsch", "Englisch", "de-en"),
        ("中文", "русский", "zh-ru"),
        ("zh-Hant", "en", "zh-Hant--en"),
    ],
)
def test_a_header_is_noticed_in_the_first_row_alone(source: str, target: str, direction: str) -> None:
    languages, header, row = parse_direction(direction), Pair(source, target), Pair("der Hund", "the dog")
    assert is_header(header, languages)
    damage = Damage(languages)
    assert list(damage.over([header, row])) == [header, row]
    assert damage.warnings("a.tsv") == ["a.tsv: the first row looks like a header; a run leaves it out"]
    damage = Damage(languages)
    assert list(damage.over([row, header])) == [row, header]
    assert damage.warnings("a.tsv") == []


@pytest.mark.parametrize(
    "pair", [("", ""), ("Ja", "no"), ("der Text", "the text"), ("source", "x"), ("Quelle", "source"), ("en", "de")]
)
def test_short_text_is_no_header(pair: tuple[str, str]) -> None:
    assert not is_header(Pair(*pair), DE_EN)
