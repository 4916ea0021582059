"""Languages and directions: what is known, and what a mistyped one is answered with."""

import pytest
from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES as M2M
from transformers.models.mbart50.tokenization_mbart50 import FAIRSEQ_LANGUAGE_CODES as MBART_50

from fedlingua.errors import ConfigError
from fedlingua.languages import (
    LANGUAGES,
    RIGHT_TO_LEFT,
    WITHOUT_SPACES,
    Direction,
    nearest,
    parse_direction,
    parse_language,
    parse_written,
    plain_code,
)


def test_the_table_holds_exactly_the_languages_of_m2m_100_and_mbart_50() -> None:
    m2m_100, mbart_50 = M2M["m2m100"], {code.split("_")[0] for code in MBART_50}
    assert sorted(LANGUAGES) == sorted({*m2m_100, *mbart_50})


def test_every_language_knows_its_own_code() -> None:
    assert all(code == language.code for code, language in LANGUAGES.items())


def test_no_group_name_stands_in_two_families() -> None:
    families: dict[str, set[str]] = {}
    for language in LANGUAGES.values():
        families.setdefault(language.group, set()).add(language.family)
    assert all(len(names) == 1 for names in families.values())


@pytest.mark.parametrize(
    ("code", "name", "family", "group"),
    [
        ("de", "German", "Indo-European", "Germanic"),
        ("en", "English", "Indo-European", "Germanic"),
        ("ast", "Asturian", "Indo-European", "Romance"),
        ("sl", "Slovene", "Indo-European", "Slavic"),
        ("lv", "Latvian", "Indo-European", "Baltic"),
        ("fi", "Finnish", "Uralic", "Finnic"),
        ("hu", "Hungarian", "Uralic", "Ugric"),
        ("he", "Hebrew", "Afro-Asiatic", "Semitic"),
        ("zh", "Chinese", "Sino-Tibetan", "Sinitic"),
        ("ns", "Northern Sotho", "Niger-Congo", "Bantu"),
        ("ht", "Haitian Creole", "French Creole", "French Creole"),
    ],
)
def test_a_language_stands_in_its_family_and_group(code: str, name: str, family: str, group: str) -> None:
    language = LANGUAGES[code]
    assert (language.name, language.family, language.group) == (name, family, group)


def test_thai_stands_with_chinese_as_in_the_paper() -> None:
    assert LANGUAGES["th"].family == LANGUAGES["zh"].family
    assert LANGUAGES["th"].group != LANGUAGES["zh"].group


def test_chinese_and_thai_are_written_without_spaces_and_korean_is_not() -> None:
    assert {"zh", "th", "ja"} <= WITHOUT_SPACES <= set(LANGUAGES)
    assert "ko" not in WITHOUT_SPACES


def test_hebrew_and_persian_are_written_from_right_to_left_and_turkish_is_not() -> None:
    assert {"ar", "fa", "he", "ur"} <= RIGHT_TO_LEFT <= set(LANGUAGES)
    assert "tr" not in RIGHT_TO_LEFT


def test_a_direction_reads_and_writes_itself() -> None:
    assert parse_direction("de-fr") == Direction("de", "fr")
    assert str(Direction("de", "fr")) == "de-fr"


@pytest.mark.parametrize("text", ["", "de", "de-", "-de", "de-fr-it", "de_fr", "de fr"])
def test_what_is_no_two_codes_is_no_direction(text: str) -> None:
    with pytest.raises(ConfigError, match="write source-target") as caught:
        parse_direction(text, "site 3: direction")
    assert repr(text) in str(caught.value)
    assert "site 3: direction" in str(caught.value)


@pytest.mark.parametrize(("text", "unknown"), [("qq-fr", "qq"), ("fr-qq", "qq"), ("DE-fr", "DE")])
def test_an_unknown_language_is_named_on_either_side(text: str, unknown: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_direction(text)
    assert f"{text!r}: language {unknown!r} is not known" in str(caught.value)
    assert ", zh, zu" in str(caught.value)


def test_an_unknown_language_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"language 'fra' is not known; did you mean 'fr'\?"):
        parse_direction("de-fra")


def test_the_same_language_twice_is_no_direction() -> None:
    with pytest.raises(ConfigError, match="'de-de' has the same language on both sides"):
        parse_direction("de-de")


def test_the_language_of_a_text_reads_and_writes_itself_and_is_no_direction() -> None:
    assert parse_language("es") == Direction("es", "es")
    assert str(Direction("es", "es")) == "es"
    assert Direction("es", "es").is_one_language
    assert not Direction("es", "en").is_one_language
    with pytest.raises(ConfigError, match=r"site 2: language = 'spa' is not known; did you mean"):
        parse_language("spa", "site 2: language")


def test_both_are_read_as_they_were_written() -> None:
    for written in (Direction("de", "fr"), Direction("es", "es")):
        assert parse_written(str(written)) == written


def test_the_nearest_name_is_offered_and_a_far_one_is_not() -> None:
    assert nearest("round", ["seed", "rounds", "beam"]) == "; did you mean 'rounds'?"
    assert nearest("xyz", ["seed", "rounds", "beam"]) == ""


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        ("en", "en"),
        ("en-GB", "en"),
        ("PT_br", "pt"),
        ("zh-Hant-TW", "zh"),
        ("nb-NO", "no"),
        ("iw", "he"),
        ("nso", "ns"),
        ("nso-ZA", "ns"),
        ("tlh", "tlh"),
        ("", ""),
    ],
)
def test_a_language_tag_is_told_by_its_first_part(tag: str, code: str) -> None:
    assert plain_code(tag) == code
