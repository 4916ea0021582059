"""What can be seen of a text, and what is the same sentence."""

import unicodedata

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from fedlingua.common.visible import as_seen, is_blank, trimmed
from fedlingua.corpora.overlap import normalised

UNSEEN = "\u200b\u200c\u200d\u200e\u200f\u2060\ufeff\xad\u061c\u202a\u2066\ufe0f\u034f\u180e\x07\U000e0041"
TEXTS = st.text(
    alphabet=st.one_of(st.characters(max_codepoint=0x3FF), st.sampled_from(UNSEEN + " \xa0\u3000\u0301Ａ가ｱｶﾞ")), max_size=20
)


@pytest.mark.parametrize(
    "text", ["", " \t", *UNSEEN, "\u3164", "\uffa0", "\u2800", "\u2028\x85", "\u0301", "\u093f", "\ue000", UNSEEN]
)
def test_nothing_is_to_be_seen_of_it(text: str) -> None:
    assert is_blank(text)
    assert trimmed(text) == ""


@pytest.mark.parametrize("text", ["a", "?", "…", "0", "♥\ufe0f", "e\u0301", "\ufffd", "ﷺ", "ि क", "\u200bא\u200f"])
def test_a_single_sign_is_to_be_seen(text: str) -> None:
    assert not is_blank(text)
    assert trimmed(f" {text}\n") == text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The gate.", "\ufeffThe gate.\u200b"),
        ("The gate.", " The\u2009\xa0gate.\u200e "),
        ("été", "e\u0301te\u0301"),
        ("été", "e\u200d\u0301te\u0301"),
        ("①你好？", "1你好?"),
        ("می\u200cخواهم", "میخواهم"),
        ("♥", "♥\ufe0f"),
        ("co\xadoperate", "cooperate"),
    ],
)
def test_sentences_that_show_no_difference_are_the_same(one: str, other: str) -> None:
    assert as_seen(one) == as_seen(other)
    assert normalised(one) == normalised(other)


@pytest.mark.parametrize(("one", "other"), [("Er kommt.", "Er kommt?"), ("Mai", "mai"), ("a b", "ab"), ("1.5", "15")])
def test_sentences_that_show_a_difference_are_two(one: str, other: str) -> None:
    assert as_seen(one) != as_seen(other)


def test_each_character_that_unicode_calls_ignorable_makes_no_other_sentence() -> None:
    ignorable = regex.findall(r"[\p{Cf}\p{DI}]", "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)])))
    assert len(ignorable) > 4000
    assert {as_seen(f"a{character}b") for character in ignorable} == {"ab"}


@given(TEXTS, TEXTS)
def test_the_form_is_the_same_however_often_it_is_made(one: str, other: str) -> None:
    seen = as_seen(one + other)
    assert as_seen(seen) == seen
    assert as_seen(unicodedata.normalize("NFD", one + other)) == seen
    assert as_seen(f"\ufeff{one}\u200b{other} ") == seen
