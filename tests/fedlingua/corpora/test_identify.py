"""Sentences in another language than theirs, as a library tells them."""

from itertools import pairwise

import pytest

from fedlingua.common.errors import CorpusError
from fedlingua.common.languages import Direction, parse_direction
from fedlingua.corpora import identify
from fedlingua.corpora.identify import check_columns, other_language
from fedlingua_demo import phrasebook

GERMAN = "Der Hund schläft heute auf dem Sofa."


@pytest.mark.parametrize(
    ("sentence", "language", "other"),
    [
        (GERMAN, "de", False),
        (GERMAN, "en", True),
        ("Der Hund.", "en", False),
        ("今天狗在沙发上睡觉", "zh", False),
        ("Beth je čudné dievča, ktoré má rado hady.", "sl", True),
        ("Knjige so čebele, ki prenašajo cvetni prah.", "sl", False),
    ],
)
def test_only_what_is_long_enough_and_sure_is_another_language(sentence: str, language: str, other: bool) -> None:
    assert bool(other_language(sentence, language)) is other


def test_a_language_that_the_library_does_not_know_is_never_another() -> None:
    known = identify.load_identifier()[1]
    assert {"de", "en", "zh", "ar", "no", "sl"} <= known.keys()
    assert not other_language(GERMAN, "xx")


CYRILLIC = "Овај лекар је јуче прегледао болесника који лежи у малој соби наше болнице и чека ђака."
SHAHMUKHI = "ایہ پنجابی زبان وچ لکھیا ہویا اک جملہ اے جیہڑا پاکستان وچ بولی جاندی اے۔"


@pytest.mark.parametrize(
    ("sentence", "language", "other"),
    [
        (SHAHMUKHI, "ur", ""),
        (SHAHMUKHI, "pa", ""),
        (SHAHMUKHI, "pa-Arab", ""),
        (SHAHMUKHI, "pa-PK", ""),
        (SHAHMUKHI, "pa-Guru", "ur"),
        (SHAHMUKHI, "de", "ur"),
        (GERMAN, "pa", "de"),
        (GERMAN, "pa-Arab", ""),
        (CYRILLIC, "bs", ""),
        (CYRILLIC, "bs-Latn", "sr"),
        (GERMAN, "bs", "de"),
        (GERMAN, "zh-Hant", "de"),
        (GERMAN, "uz-Cyrl", "de"),
    ],
)
def test_a_language_in_a_script_that_the_library_lacks_is_never_another(sentence: str, language: str, other: str) -> None:
    assert other_language(sentence, language) == other


def test_the_scripts_that_the_library_knows_are_those_of_its_text() -> None:
    identifier, known = identify.load_identifier()
    of_text = {"Привет, как дела": "Cyrl", "Хокимият бошланди": "Cyrl", "ਪੰਜਾਬੀ": "Guru", "日本語です": "Hira", "한국어": "Hang"}
    assert all(script in known[identifier.classify(text)[0]] for text, script in of_text.items())
    assert known["pa"] == {"Guru"}
    assert known["sr"] == {"Cyrl", "Latn"}
    assert known["bs"] == {"Latn"}
    assert {"Hani"} <= known["zh"]


SPANISH = "El médico examina al paciente en la sala pequeña."
PAIRS = [(f"{GERMAN} Nummer {number}.", f"{SPANISH} Número {number}.") for number in range(300)]


def test_swapped_columns_are_refused_with_their_share_and_what_to_do() -> None:
    assert check_columns(PAIRS, parse_direction("de-es"), "a.tsv") == ""
    with pytest.raises(
        CorpusError, match=r"^a\.tsv: the columns are swapped: in 100% of 100 pairs the es text is German and the de text Spanish"
    ) as told:
        check_columns(PAIRS, parse_direction("es-de"), "a.tsv")
    assert "give the direction de-es, or columns = [1, 0]" in str(told.value)


def test_a_column_in_another_language_is_told() -> None:
    words = check_columns(PAIRS, parse_direction("de-en"), "a.tsv")
    assert words.startswith("a.tsv: 98% of the en lines are Spanish; check the file's columns")
    mixed = [*PAIRS[:180], *((GERMAN, "The doctor sees the patient in the small room."),) * 120]
    assert "60% of the en lines are Spanish" in check_columns(mixed, parse_direction("de-en"), "a.tsv")
    assert check_columns([*mixed, *mixed[180:]], parse_direction("de-en"), "a.tsv") == ""


@pytest.mark.parametrize("register", phrasebook.REGISTERS[::3])
def test_the_phrasebook_is_in_its_languages_and_told_when_swapped(register: str) -> None:
    text = phrasebook.register_corpus(register, 30, 5)
    for source, target in pairwise([*phrasebook.LANGUAGES, "de"]):
        direction, pairs = Direction(source, target), [*zip(text[source], text[target], strict=True)]
        assert check_columns(pairs, direction, "x") == ""
        with pytest.raises(CorpusError, match="swapped"):
            check_columns(pairs, direction.reverse, "x")
    assert check_columns([(line, line) for line in text["de"]], Direction("de", "de"), "x") == ""
