"""Which pairs are kept: every rule alone, at its limit, and an account that adds up."""

import gzip
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedlingua.common.errors import CorpusError
from fedlingua.common.languages import Direction, parse_direction
from fedlingua.corpora.clean import REASONS, RULES, Account, CleaningRules, clean, read_cleaning
from fedlingua.corpora.read import Pair, TsvFile

DE_EN, ZH_EN, EN_TH = Direction("de", "en"), Direction("zh", "en"), Direction("en", "th")
OFF = CleaningRules(min_words=0, max_words=0, max_ratio=0.0, drop_duplicates=False)
REAL = Path(__file__).parents[3] / "../shared/data/tatoeba"


def cleaned(
    pairs: Iterable[tuple[str, str]], rules: CleaningRules, direction: Direction = DE_EN
) -> tuple[list[Pair], dict[str, int]]:
    """(kept pairs, dropped by reason), after checking that the account adds up."""
    pairs = [Pair(*pair) for pair in pairs]
    account = Account()
    kept = list(clean(pairs, direction, rules, account))
    assert account.read == len(pairs)
    assert account.kept == len(kept)
    assert account.read == account.kept + sum(account.dropped.values())
    return kept, account.dropped


def test_accounts_add_up_failed_documents_by_type() -> None:
    both = Account(failed_documents={"ValueError": 1, "empty": 2}) + Account(failed_documents={"empty": 3, "KeyError": 1})
    assert both.failed_documents == {"ValueError": 1, "empty": 5, "KeyError": 1}


def test_with_every_rule_off_only_empty_sides_are_dropped() -> None:
    kept, dropped = cleaned([("a", "b"), ("a", "b"), ("", "b"), ("a", " \t"), ("", ""), ("a", "b " * 300)], OFF)
    assert [pair.source for pair in kept] == ["a", "a", "a"]
    assert dropped == {"empty": 3}


def test_kept_pairs_are_stripped_outside_and_left_alone_inside() -> None:
    assert cleaned([("  ein  Hund ", "\u2028a\u2028dog\xa0")], OFF)[0] == [Pair("ein  Hund", "a\u2028dog")]


def test_a_header_is_left_out_and_counted_where_it_is_the_first_pair() -> None:
    header, rows = ("Deutsch", "text_en"), [("ein Hund", "a dog"), ("der Text", "the text")]
    assert cleaned([header, *rows], OFF) == ([Pair(*row) for row in rows], {"header": 1})
    assert cleaned([*rows, header], OFF)[1] == {}


@pytest.mark.parametrize("pair", [("eins", "one two"), ("eins zwei", "one")])
def test_too_short_alone_looks_at_both_sides(pair: tuple[str, str]) -> None:
    rules = CleaningRules(min_words=2, max_words=0, max_ratio=0.0, drop_duplicates=False)
    assert cleaned([pair, ("eins zwei", "one two")], rules) == ([Pair("eins zwei", "one two")], {"too-short": 1})


@pytest.mark.parametrize("pair", [("a b c d", "a b c"), ("a b c", "a b c d")])
def test_too_long_alone_looks_at_both_sides(pair: tuple[str, str]) -> None:
    rules = CleaningRules(min_words=0, max_words=3, max_ratio=0.0, drop_duplicates=False)
    assert cleaned([pair, ("a b c", "a b c")], rules) == ([Pair("a b c", "a b c")], {"too-long": 1})


@pytest.mark.parametrize("turned", [False, True])
def test_ratio_alone_compares_characters_either_way_round(turned: bool) -> None:
    rules = CleaningRules(min_words=0, max_words=0, max_ratio=2.0, drop_duplicates=False)
    pairs = [("x" * 5, "y" * 10), ("x" * 5, "y" * 11)]
    kept, dropped = cleaned([pair[::-1] if turned else pair for pair in pairs], rules)
    assert (len(kept), dropped) == (1, {"ratio": 1})


def test_the_ratio_speaks_from_ten_characters_up() -> None:
    rules = CleaningRules(min_words=0, max_words=0, max_ratio=2.0, drop_duplicates=False)
    kept, dropped = cleaned([("x", "y" * 9), ("x", "y" * 10)], rules)
    assert kept == [Pair("x", "y" * 9)]
    assert dropped == {"ratio": 1}


@pytest.mark.parametrize(("direction", "limit"), [("zh-en", 30), ("en-zh", 30), ("de-en", 10), ("zh-ja", 10)])
def test_the_ratio_is_three_times_as_wide_when_one_side_has_no_spaces(direction: str, limit: int) -> None:
    rules = CleaningRules(min_words=0, max_words=0, max_ratio=2.0, drop_duplicates=False)
    pairs = [("字" * 5, "y" * limit), ("字" * 5, "y" * (limit + 1))]
    if direction == "en-zh":
        pairs = [pair[::-1] for pair in pairs]
    kept, dropped = cleaned(pairs, rules, parse_direction(direction))
    assert kept == [Pair(*pairs[0])]
    assert dropped == {"ratio": 1}


def test_duplicate_alone_drops_what_is_equal_on_both_sides_after_stripping() -> None:
    rules = CleaningRules(min_words=0, max_words=0, max_ratio=0.0, drop_duplicates=True)
    kept, dropped = cleaned([("a", "b"), ("a", "c"), (" a ", "b\t"), ("c", "b"), ("a", "b")], rules)
    assert kept == [Pair("a", "b"), Pair("a", "c"), Pair("c", "b")]
    assert dropped == {"duplicate": 2}


@pytest.mark.parametrize(
    ("pair", "direction", "reason"),
    [
        (("好", "one two"), ZH_EN, "too-short"),
        (("你好", "one two"), ZH_EN, None),
        (("你 好", "one two"), ZH_EN, None),
        (("你好吗", "one two three"), ZH_EN, None),
        (("你好吗好", "one two three"), ZH_EN, "too-long"),
        (("你 好 吗", "one two three"), ZH_EN, None),
        (("one two", "ก"), EN_TH, "too-short"),
        (("one two", "กา"), EN_TH, None),
        (("one two", "กากา"), EN_TH, "too-long"),
        (("Hund", "one two"), DE_EN, "too-short"),
    ],
)
def test_chinese_and_thai_are_measured_in_characters(pair: tuple[str, str], direction: Direction, reason: str | None) -> None:
    rules = CleaningRules(min_words=2, max_words=3, max_ratio=0.0)
    kept, dropped = cleaned([pair], rules, direction)
    assert (kept, dropped) == (([Pair(*pair)], {}) if reason is None else ([], {reason: 1}))


def test_a_pair_is_counted_once_under_the_first_reason_that_holds() -> None:
    rules = CleaningRules(min_words=2, max_words=3, max_ratio=2.0)
    pairs = [
        ("", "one two three four"),  # also too long
        ("x", "one two three four"),  # also too long, ratio
        ("x y", "one two three four"),  # also ratio
        ("x y", "one two three"),
        ("x y", "one two three"),  # no duplicate: the first was not kept
        ("eins zwei", "one two"),
        ("eins zwei", "one two"),
    ]
    kept, dropped = cleaned(pairs, rules)
    assert kept == [Pair("eins zwei", "one two")]
    assert dropped == {"empty": 1, "too-short": 1, "too-long": 1, "ratio": 2, "duplicate": 1}
    assert tuple(dropped) == ("empty", "too-short", "too-long", "ratio", "duplicate")
    assert REASONS[: len(RULES)] == RULES


def only(**rules: Any) -> CleaningRules:
    """No rule but the one under test."""
    return replace(OFF, **rules)


@pytest.mark.parametrize("character", ["\0", "\x07", "\x0b", "\x0c", "\x1b", "\x7f", "\x85", "\r"])
def test_control_characters_alone_are_looked_for_on_both_sides(character: str) -> None:
    pairs = [(f"a{character}b", "c"), ("a", f"b{character}c"), ("a\tb", "c\u2028d\u200be\xadf\u202bg")]
    assert cleaned(pairs, only(drop_control_characters=True)) == ([Pair(*pairs[2])], {"control-characters": 2})
    assert len(cleaned(pairs, OFF)[0]) == 3


def test_identical_alone_drops_what_was_left_untranslated_but_not_text_in_one_language() -> None:
    pairs = [("Paris", "Paris"), ("Paris", "paris"), (" a ", "a")]
    assert cleaned(pairs, only(drop_identical=True)) == ([Pair("Paris", "paris")], {"identical": 2})
    assert cleaned(pairs, only(drop_identical=True), Direction("de", "de"))[1] == {}


def test_script_alone_allows_for_names_numbers_and_short_text() -> None:
    rules, ru_en = only(min_script_share=0.25), Direction("ru", "en")
    kept = [
        ("Он купил iPhone 15 Pro.", "He bought an iPhone 15 Pro."),
        ("12.05.2021, 5 %", "12.05.2021, 5 %"),
        ("OK", "OK"),
        ("Да", "Да"),
        ("Пётр сказал «да».", "Пётр said yes, and so did we."),
    ]
    dropped = [("He bought it.", "He bought it."), ("Он купил.", "Он купил."), ("Buy iPhone now да", "x y")]
    assert cleaned([*kept, *dropped], rules, ru_en) == ([Pair(*pair) for pair in kept], {"script": 3})


def test_language_alone_drops_what_is_surely_another() -> None:
    rules = only(identify_language=True)
    pairs = [
        ("Der Hund schläft heute auf dem Sofa.", "The dog is sleeping on the sofa today."),
        ("The dog is sleeping on the sofa today.", "The dog is sleeping on the sofa today."),
        ("Der Hund schläft heute auf dem Sofa.", "Le chien dort aujourd'hui sur le canapé."),
        ("The dog.", "Le chien."),
    ]
    assert cleaned(pairs, rules) == ([Pair(*pairs[0]), Pair(*pairs[3])], {"language": 2})


def test_normalization_goes_before_all_rules() -> None:
    pairs = [("Mu\u0308nchen", "ﬁne"), ("M\xfcnchen", "ﬁne"), ("M\xfcnchen", "fine")]
    pairs.append(("ﬁne", "fine"))
    assert cleaned(pairs, only(drop_identical=True)) == ([Pair(*pair) for pair in pairs], {})
    composed = [Pair("M\xfcnchen", "ﬁne"), Pair("M\xfcnchen", "ﬁne"), Pair("M\xfcnchen", "fine"), Pair("ﬁne", "fine")]
    assert cleaned(pairs, only(drop_identical=True, normalize="NFC")) == (composed, {})
    assert cleaned(pairs, only(drop_identical=True, normalize="NFKC")) == ([Pair("M\xfcnchen", "fine")] * 3, {"identical": 1})


EDITIONS = ["Wir sehen uns im M\xfcnchner Caf\xe9.", "\ufeffWir sehen uns\xa0im  Mu\u0308nchner Cafe\u0301.\u200b"]
"""One sentence, twice."""


def test_a_pair_is_repeated_that_shows_no_difference() -> None:
    pairs = [
        (EDITIONS[0], "See you."),
        (EDITIONS[1], "See\u2060 you."),
        (EDITIONS[0], "See you"),
        (EDITIONS[0].upper(), "See you."),
    ]
    assert cleaned(pairs, only(drop_duplicates=True)) == ([Pair(*pairs[0]), Pair(*pairs[2]), Pair(*pairs[3])], {"duplicate": 1})


def test_a_side_without_a_visible_character_is_empty_whatever_the_rules() -> None:
    pairs = [("\u200b", "a"), ("a", "\ufeff \u3164"), ("\u0301", "a"), ("a", "a\u0301")]
    assert cleaned(pairs, only()) == ([Pair("a", "a\u0301")], {"empty": 3})


@pytest.mark.parametrize(
    ("pair", "reason"), [(("x", ""), "empty"), (("a b", "a b"), "duplicate"), (("a", "b " * 300), "too-long")]
)
def test_strict_cleaning_fails_on_the_first_pair_that_it_would_drop(pair: tuple[str, str], reason: str) -> None:
    rules = CleaningRules(min_words=0, max_ratio=0.0, strict=True)
    pairs = [Pair("a b", "a b"), Pair("c", "d"), Pair(*pair), Pair("e", "")]
    with pytest.raises(CorpusError) as caught:
        list(clean(pairs, DE_EN, rules, Account(), "court.tsv"))
    assert f"court.tsv: pair 3 would be dropped ({reason}), and cleaning is strict" in str(caught.value)
    assert cleaned(pairs[:2], rules) == (pairs[:2], {})


def test_the_new_rules_are_off_unless_asked_for() -> None:
    """Committed results were made with the first four alone."""
    first = CleaningRules(2, 200, 6.0, True)
    odd = [("a\0b c", "d e"), ("ab cd", "ab cd"), ("Он купил это", "Он купил это"), ("u\u0308 b", "a b")]
    assert first == CleaningRules()
    assert cleaned(odd, first) == ([Pair(*pair) for pair in odd], {})


@pytest.mark.parametrize("direction", ["ru-en", "en-zh", "he-ru"])
def test_swapped_sides_are_told_where_the_scripts_differ(direction: str) -> None:
    text = {"ru": "Добрый день всем", "en": "Good day to you", "zh": "大家下午好", "he": "צהריים טובים לכולם"}
    code = parse_direction(direction)
    right = Pair(text[code.source], text[code.target])
    number = Pair("12", "12")
    mostly = [right[::-1], number, right[::-1], right[::-1]]
    with pytest.raises(CorpusError, match=r"site court: of the first 4 pairs 3 have .* the two sides are swapped"):
        list(clean([Pair(*pair) for pair in mostly], code, OFF, Account(), "site court"))
    half = [right, Pair(*right[::-1])] * 150
    assert cleaned(half, OFF, code)[0] == half
    assert cleaned([right] * 200 + [Pair(*right[::-1])] * 300, OFF, code)[1] == {}  # the first 200 are looked at


def test_sides_in_one_script_are_never_called_swapped() -> None:
    pairs = [("the dog sleeps here", "der Hund schläft hier")] * 3
    assert len(cleaned(pairs, OFF)[0]) == 3
    assert cleaned([("this is Latin", "das ist es")] * 3, OFF, Direction("ru", "de"))[1] == {}


def test_the_papers_rule_is_the_default() -> None:
    kept, dropped = cleaned([("Ja .", "Yes ."), ("Ja.", "Yes .")], CleaningRules())
    assert (kept, dropped) == ([Pair("Ja .", "Yes .")], {"too-short": 1})


def test_a_corpus_of_which_nothing_is_kept_is_refused_with_the_reasons() -> None:
    account = Account()
    assert not list(clean([Pair("eins", "one"), Pair("", "two")], DE_EN, CleaningRules(), account))
    with pytest.raises(CorpusError, match=r"site harbour: none of 2 pairs was kept \(too-short 1, empty 1\)"):
        account.check("site harbour")


def test_a_corpus_with_nothing_in_it_is_not_blamed_on_the_rules() -> None:
    with pytest.raises(CorpusError, match="site harbour: got no pairs: the text, or its share, is empty; give a file with text"):
        Account().check("site harbour")
    with pytest.raises(CorpusError, match=r"site harbour: got no sentences from a\.txt and 2 more: the text"):
        Account().check("site harbour", "sentences", ["a.txt", "b.txt", "c.txt"])


def test_what_is_taken_back_still_adds_up() -> None:
    account = Account(read=3, kept=2, dropped={"empty": 1})
    account.take_back("in-train", 1)
    account.take_back("in-train", 0)
    assert account == Account(read=3, kept=1, dropped={"empty": 1, "in-train": 1})
    account.check("site harbour")


def test_an_account_that_does_not_add_up_is_noticed() -> None:
    with pytest.raises(AssertionError, match="site harbour"):
        Account(read=3, kept=1, dropped={"empty": 1}).check("site harbour")


@pytest.mark.parametrize("name", ["th-en", "sl-en", "fi-en"])
def test_on_real_text_every_line_is_kept_or_dropped_for_a_reason(name: str) -> None:
    path = REAL / f"{name}.tsv.gz"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    kept, dropped = cleaned(TsvFile(path).read(), CleaningRules(), parse_direction(name))
    lines = gzip.decompress(path.read_bytes()).count(b"\n")
    assert len(kept) + sum(dropped.values()) == lines
    assert set(dropped) <= set(REASONS)
    assert len(kept) > 0.9 * lines


def test_a_rule_may_be_off_or_at_its_bound() -> None:
    off = {"min-words": 0, "max-words": 0, "max-ratio": 0, "min-script-share": 0}
    assert read_cleaning(off, "x") == CleaningRules(min_words=0, max_words=0, max_ratio=0.0)
    bound = {"min-words": 3, "max-words": 3, "max-ratio": 1, "min-script-share": 1}
    assert read_cleaning(bound, "x") == CleaningRules(min_words=3, max_words=3, max_ratio=1.0, min_script_share=1.0)
