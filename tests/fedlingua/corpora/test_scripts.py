"""Which script a sentence is in, beside names, numbers and marks of others."""

import pytest

from fedlingua.common.errors import CorpusError
from fedlingua.common.languages import Direction
from fedlingua.corpora.read import Pair
from fedlingua.corpora.scripts import in_order, script_share, scripts_of

SIMPLIFIED, TRADITIONAL = "这是一个简单的句子，我们学习汉语", "這是一個簡單的句子，我們學習漢語"


@pytest.mark.parametrize(
    ("code", "scripts"),
    [
        ("fr", ("Latn",)),
        ("ja", ("Jpan",)),
        ("sr", ("Cyrl", "Latn")),
        ("sr-Latn", ("Latn",)),
        ("zh", ("Hani", "Bopo")),
        ("yue", ("Hani", "Bopo")),
        ("zh-Hant", ("Hant",)),
        ("zh-CN", ("Hans",)),
        ("ckb", ("Arab",)),
        ("de-Latf", ("Latf",)),
        ("en-Blis", ("Blis",)),
    ],
)
def test_a_code_says_which_scripts_are_expected(code: str, scripts: tuple[str, ...]) -> None:
    assert scripts_of(code) == scripts
    assert script_share("", code) is None  # whatever the script, Unicode knows it


def test_simplified_and_traditional_chinese_are_told_apart_by_the_characters_that_only_one_has() -> None:
    for sentence, own, other in ((SIMPLIFIED, "zh-Hans", "zh-Hant"), (TRADITIONAL, "zh-Hant", "zh-Hans")):
        assert (script_share(sentence, own), script_share(sentence, other)) == (1.0, 0.0)
        assert script_share(sentence, "zh") == 1.0
    assert script_share("大家好", "zh-Hant") == script_share("大家好", "zh-Hans") == 1.0
    # One character of each: half of the five Han characters count as foreign, and six letters with them.
    assert script_share("大家好医醫 abcdef", "zh-Hant") == pytest.approx(7.5 / 21)


def test_swapped_columns_of_the_two_are_refused_and_others_with_the_same_characters_are_not() -> None:
    pairs = [Pair(SIMPLIFIED, TRADITIONAL)] * 3
    assert list(in_order(pairs, Direction("zh-Hans", "zh-Hant"), "x")) == pairs
    with pytest.raises(CorpusError, match="the two sides are swapped"):
        in_order(pairs, Direction("zh-Hant", "zh-Hans"), "x")
    traditional = [Pair(TRADITIONAL, TRADITIONAL)] * 3
    assert list(in_order(traditional, Direction("zh", "zh-Hant"), "x")) == traditional
    assert list(in_order([Pair(TRADITIONAL, "日本語")] * 3, Direction("zh-Hant", "ja"), "x"))


@pytest.mark.parametrize(
    ("sentence", "language", "share"),
    [
        ("Straße", "de-Latf", 1.0),
        ("Straße", "en-Blis", 1.0),
        ("Good day", "en", 1.0),
        ("Добрый", "ru", 1.0),
        ("Добрый", "en", 0.0),
        ("abc абв", "ru", 0.5),
        ("Straße, naïve; 12 €!", "de", 1.0),
        ("ДНК-тест 2.0", "bg", 1.0),
        ("नमस्ते दुनिया", "hi", 1.0),
        ("สวัสดีชาวโลก", "th", 1.0),
        ("カタカナーとひらがな", "ja", 1.0),
        ("안녕하세요", "ko", 1.0),
        ("大家好", "zh", 1.0),
        ("大家abc", "zh", 6 / 9),
        ("Zdravo свете", "sr", 1.0),
        ("1234 !?", "en", None),
        ("", "en", None),
        ("Да", "en", None),
        ("大", "zh", None),
        ("大大", "zh", 1.0),
    ],
)
def test_the_share_of_letters_in_a_languages_own_scripts(sentence: str, language: str, share: float | None) -> None:
    assert script_share(sentence, language) == share
