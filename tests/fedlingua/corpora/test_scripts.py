"""Which script a sentence is in, beside names, numbers and marks of others."""

import pytest
import regex

from fedlingua.corpora.scripts import SCRIPTS, script_share, scripts_of
from fedlingua.languages import LANGUAGES


def test_every_language_with_a_script_of_its_own_is_known_and_unicode_knows_its_script() -> None:
    assert set(SCRIPTS) <= set(LANGUAGES)
    for scripts in SCRIPTS.values():
        for script in scripts:
            assert regex.compile(rf"\p{{Script={script}}}")
    assert scripts_of("fr") == ("Latin",)
    assert scripts_of("ja") == ("Han", "Hiragana", "Katakana")


@pytest.mark.parametrize(
    ("sentence", "language", "share"),
    [
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
