"""Sentences in another language than theirs, as a library tells them."""

import sys

import pytest

from fedlingua.common.errors import ConfigError
from fedlingua.corpora import identify
from fedlingua.corpora.identify import is_other_language

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
    assert is_other_language(sentence, language) is other


def test_a_language_that_the_library_does_not_know_is_never_another() -> None:
    known = identify.load_identifier()[1]
    assert {"de", "en", "zh", "ar", "no", "sl"} <= known
    assert not is_other_language(GERMAN, "xx")


def test_without_the_library_the_rule_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    identify.load_identifier.cache_clear()
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    with pytest.raises(ConfigError, match=r"identify-language, off-target\) needs the library py3langid: pip install"):
        is_other_language(GERMAN, "de")
    identify.load_identifier.cache_clear()
