"""What is shown of a sentence's rounds, by sentences short enough to compare by hand."""

import pytest

from fedlingua.desk.report.sentences import changes, shown_lines, shown_rounds
from fedlingua.desk.report.translations import Sentence, Text


@pytest.mark.parametrize(
    ("rounds", "best", "shown"),
    [
        ([], None, []),
        ([0], 0, [0]),
        ([0, 1, 2, 3, 4], 2, [0, 1, 2, 3, 4]),
        ([0, 1, 2, 3, 4, 5, 6, 7, 8], None, [0, 2, 4, 6, 8]),
        ([0, 1, 2, 3, 4, 5, 6, 7, 8], 7, [0, 2, 4, 6, 7, 8]),
        ([0, 1, 2, 3, 4, 5, 6, 7, 8], 99, [0, 2, 4, 6, 8]),
        ([0, 3, 4, 7, 9, 20], 0, [0, 3, 4, 7, 20]),
    ],
)
def test_first_last_some_evenly_between_and_the_best_round_are_shown(
    rounds: list[int], best: int | None, shown: list[int]
) -> None:
    assert shown_rounds(rounds, best) == shown


@pytest.mark.parametrize(
    ("before", "now", "pieces"),
    [
        ("the cat sat", "the cat sat", [("the cat sat", False)]),
        ("the cat sat", "the dog sat", [("the", False), ("dog", True), ("sat", False)]),
        ("the cat sat", "the old cat sat down", [("the", False), ("old", True), ("cat sat", False), ("down", True)]),
        ("the cat sat", "the cat", [("the cat", False)]),
        ("", "a  new\tone", [("a new one", True)]),
        ("all gone", "", []),
        ("The cat", "the cat", [("the", True), ("cat", False)]),
    ],
)
def test_words_that_the_round_before_had_not_are_marked(before: str, now: str, pieces: list[tuple[str, bool]]) -> None:
    assert changes(before, now, " ") == pieces


def test_without_spaces_characters_are_compared_with_the_marks_that_belong_to_them() -> None:
    assert changes("病人在家", "病人在花园", "") == [("病人在", False), ("花园", True)]
    # NO NU, then the vowel sign and the tone that are written over it: one unit, told from the bare letter.
    assert changes("น", "นี้", "") == [("นี้", True)]
    assert changes("a b", "a c", "") == [("a ", False), ("c", True)]


def test_each_shown_round_is_compared_with_the_one_above_it_and_the_first_with_none() -> None:
    sentence = Sentence("s", "r", {0: "a b", 1: "x x", 2: "a b", 3: "a c", 4: "a c", 5: "d", 9: "d e"})
    text = Text("court", "court", "de-fr", [sentence])
    lines = shown_lines(text, sentence, best=3)
    assert [(line.round, line.is_best, line.pieces) for line in lines] == [
        (0, False, [("a b", False)]),
        (1, False, [("x x", True)]),
        (3, True, [("a c", True)]),
        (4, False, [("a c", False)]),
        (9, False, [("d e", True)]),
    ]
    assert {line.between for line in lines} == {" "}


def test_a_sentence_that_lacks_a_shown_round_goes_without_it() -> None:
    late = Sentence("s", "r", {2: "在家", 3: "在花园"})
    text = Text("court", "court", "de-zh", [Sentence("s", "r", dict.fromkeys(range(4), "x")), late])
    lines = shown_lines(text, late, best=None)
    assert [(line.round, line.pieces) for line in lines] == [(2, [("在家", False)]), (3, [("在", False), ("花园", True)])]
    assert {line.between for line in lines} == {""}
