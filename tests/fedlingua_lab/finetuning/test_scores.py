"""Scores against counts made by hand."""

import random

import pytest

from fedlingua_lab.finetuning.scores import label_scores, tagging_scores

# Two drugs and two diseases in gold.
GOLD = [["B-Drug", "O", "B-Dis", "I-Dis", "O"], ["B-Drug", "I-Drug", "O", "B-Dis", "O"]]


def test_boundaries_count_under_strict_and_not_under_type() -> None:
    # Right; too long by one; right; another type at the right place; and one where nothing is.
    predicted = [["B-Drug", "O", "B-Dis", "I-Dis", "I-Dis"], ["B-Drug", "I-Drug", "O", "B-Drug", "B-Drug"]]
    scores = tagging_scores(GOLD, predicted)
    # Strict: 2 of 5 predicted, of 4 in gold: P 2/5, R 2/4.
    assert scores["strict_precision"] == pytest.approx(2 / 5)
    assert scores["strict_recall"] == pytest.approx(2 / 4)
    assert scores["micro_f1"] == scores["strict_f1"] == pytest.approx(2 * 2 / (5 + 4))
    # Type: the one too long counts as well.
    assert scores["type_f1"] == pytest.approx(2 * 3 / (5 + 4))


def test_macro_is_the_plain_mean_over_types_and_weighted_goes_by_support() -> None:
    gold = [["B-Drug"], ["B-Drug"], ["B-Drug"], ["B-Dis"]]
    predicted = [["B-Drug"], ["B-Drug"], ["O"], ["B-Drug"]]
    scores = tagging_scores(gold, predicted)
    # Drug: 2 right of 3 predicted, 3 in gold: F1 2/3. Disease: 0 of 0, of 1: F1 0.
    assert scores["by_label"] == {
        "Dis": {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 1},
        "Drug": {**dict.fromkeys(("precision", "recall", "f1"), pytest.approx(2 / 3)), "support": 3},
    }
    assert scores["macro_f1"] == pytest.approx((2 / 3 + 0) / 2)
    assert scores["weighted_f1"] == pytest.approx((3 * 2 / 3 + 1 * 0) / 4)
    assert scores["micro_f1"] == pytest.approx(2 * 2 / (3 + 4))


def test_with_one_type_micro_macro_and_weighted_are_one_number() -> None:
    scores = tagging_scores([["B-Dis", "I-Dis", "O"]] * 3, [["B-Dis", "I-Dis", "O"], ["B-Dis", "O", "O"], ["O", "O", "B-Dis"]])
    assert scores["micro_f1"] == scores["macro_f1"] == scores["weighted_f1"] == pytest.approx(1 / 3)


def test_an_i_without_a_b_begins_an_entity() -> None:
    assert tagging_scores([["O", "B-Dis", "I-Dis"]], [["O", "I-Dis", "I-Dis"]])["micro_f1"] == 1.0


def test_nothing_found_is_zero_and_not_an_error() -> None:
    scores = tagging_scores([["B-Dis"], ["O"]], [["O"], ["O"]])
    assert {figure for name, figure in scores.items() if name != "by_label"} == {0.0}
    assert tagging_scores([["O"]], [["O"]])["macro_f1"] == 0.0


def entities(tags: list[list[str]]) -> set[tuple[int, int, int, str]]:
    """(sentence, first, last, type) of well-formed tags, counted without nervaluate."""
    found = set()
    for number, row in enumerate(tags):
        for first, tag in enumerate(row):
            if tag.startswith("B-"):
                last = first
                while last + 1 < len(row) and row[last + 1] == f"I-{tag[2:]}":
                    last += 1
                found.add((number, first, last, tag[2:]))
    return found


def test_strict_counts_are_those_of_equal_spans_in_random_tags() -> None:
    rng = random.Random(3)

    def row() -> list[str]:
        tags: list[str] = []
        while len(tags) < 12:
            kind = rng.choice(["a", "b"])
            tags += rng.choice([["O"], [f"B-{kind}"], [f"B-{kind}", f"I-{kind}"], [f"B-{kind}", f"I-{kind}", f"I-{kind}"]])
        return tags[:12]

    gold, predicted = [row() for _ in range(60)], [row() for _ in range(60)]
    scores = tagging_scores(gold, predicted)
    wanted, got = entities(gold), entities(predicted)
    assert scores["micro_f1"] == pytest.approx(2 * len(wanted & got) / (len(wanted) + len(got)))
    for kind, score in scores["by_label"].items():
        of_gold, of_predicted = ({entity for entity in found if entity[3] == kind} for found in (wanted, got))
        assert score["support"] == len(of_gold)
        assert score["f1"] == pytest.approx(2 * len(of_gold & of_predicted) / (len(of_gold) + len(of_predicted)))


def test_labels_are_scored_by_hand() -> None:
    scores = label_scores(["x", "x", "x", "y"], ["x", "x", "y", "z"])
    # x: 2 of 2, of 3: F1 4/5. y: 0 of 1, of 1. z: 0 of 1, of 0.
    by_label = scores.pop("by_label")
    assert by_label["x"] == {"precision": 1.0, "recall": pytest.approx(2 / 3), "f1": pytest.approx(4 / 5), "support": 3}
    assert scores == {
        "micro_f1": pytest.approx(2 / 4),
        "macro_f1": pytest.approx(4 / 5 / 3),
        "weighted_f1": pytest.approx(3 * 4 / 5 / 4),
        "accuracy": pytest.approx(2 / 4),
    }
