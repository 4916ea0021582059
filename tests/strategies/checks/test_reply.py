"""Bounds that a reply has to keep, by hand."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import MetricRecord

from fedlingua.common.errors import ExchangeError
from fedlingua.evaluation.scores import ScoreSums, score_sums
from fedlingua.exchange.checks import check_array, size_limit
from fedlingua.exchange.records import to_record
from fedlingua.exchange.tensors import TensorSet, TensorSpec
from fedlingua.personalization.choice import CANDIDATES
from strategies.checks.reply import check_about, check_choice


def test_a_reply_may_have_four_bytes_a_number_a_hundredth_more_and_64_kib() -> None:
    specs = (TensorSpec("x", (1000, 50), "encoder", 0), TensorSpec("y", (50,), "shared", None))
    assert size_limit(TensorSet("adapters", specs)) == 65536 + int(1.01 * 4 * 50050)
    assert size_limit(None) == 65536


@pytest.mark.parametrize("share", [0.5, 0.99, 0.9999])
def test_single_numbers_may_have_a_bit_each_besides(share: float) -> None:
    chosen = TensorSet("adapters", (TensorSpec("x", (8_000_000,), "encoder", 0),))
    packed = int(4 * share * 8_000_000) + 8_000_000 // 8
    assert packed < size_limit(chosen, more_bits=1)
    assert (packed < size_limit(chosen)) == (share == 0.5)


ABOUT = {"directions": ["de-fr"], "read": 10, "kept": 8, "reasons": ["empty"], "dropped": [2], "train": 5, "dev": 1, "test": 2}


def test_what_a_site_tells_of_itself_is_taken_when_it_adds_up() -> None:
    check_about(ABOUT, ["de-fr"])
    check_about({**ABOUT, "failures": ["ValueError", "empty"], "failed_documents": [1, 2]}, ["de-fr"])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"directions": 5}, "has the directions 5"),
        ({"directions": ["fr-de"]}, "the federation file says"),
        ({"reasons": []}, "two lists of one length"),
        ({"reasons": ["a sentence"]}, "reasons that are not known"),
        ({"read": b"\0"}, "read = b'.x00'; wanted a count"),
        ({"train": 10**12}, "do not add up"),
        ({"train": -1}, "train = -1"),
        ({"dev": 1.0}, "dev = 1.0"),
        ({"dropped": [3]}, "do not add up"),
        ({"test": 3}, "do not add up"),  # 5 + 1 + 3 of 8
        ({"words": "a sentence"}, "unknown 'words'"),
        ({"failures": ["ValueError"]}, "does not tell its failed_documents"),
        ({"failures": ["ValueError"], "failed_documents": []}, "two lists of one length"),
        ({"failures": ["a sentence"], "failed_documents": [1]}, "type of failure that is not one word"),
        ({"failures": ["ValueError"], "failed_documents": [-1]}, "failed_documents = -1; wanted a count"),
    ],
)
def test_what_does_not_add_up_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ExchangeError, match=reason):
        check_about({**ABOUT, **changes}, ["de-fr"])


def sums(hypothesis: str, **more: Any) -> ScoreSums:
    return replace(score_sums([hypothesis], ["der Hund ist alt und lieb"], "de"), **more)


CHOSEN = {
    # The result is measured by more than what it was chosen from.
    "result": sums("der Hund ist alt", more={"ter": (1.0, 6.0)}),
    "base": sums("der Hut"),
    "alone": sums("der Hund"),
    "federated": sums("der Hund ist alt"),
    "single": sums("der Hund ist alt"),
}
CHOICE = {"kept": CANDIDATES.index("federation"), "reference": CANDIDATES.index("alone"), "over-reference": [1.0, 2.5]}


def test_what_a_site_says_of_its_choice_is_taken_as_it_is() -> None:
    told = check_choice(MetricRecord(CHOICE), CHOSEN, 100.0)
    of_reference = {"reference_name": "alone", "reference": CHOSEN["alone"], "over_reference": (1.0, 2.5)}
    assert told == {"candidate": "federation", **of_reference}
    two = {**CHOSEN, "result": sums("der Hund"), "alone_ensemble": sums("ein Hund")}
    over = {"kept": CANDIDATES.index("ensemble"), "reference": CANDIDATES.index("alone ensemble"), "over-reference": [0.0, 0.0]}
    told = check_choice(MetricRecord(over), two, 100.0)
    assert (told["candidate"], told["reference"]) == ("ensemble", sums("ein Hund"))
    assert check_choice(None, {name: CHOSEN[name] for name in ("result", "base")}, 100.0) == {}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kept": len(CANDIDATES)}, "wanted the number of a candidate, 0 to 12"),
        ({"kept": -1}, "the number of a candidate"),
        ({"kept": 1.0}, "the number of a candidate"),
        ({"kept": [2]}, "the number of a candidate"),
        ({"kept": CANDIDATES.index("alone")}, "keeps alone, and the scores of what it keeps are not those of alone"),
        ({"kept": CANDIDATES.index("base")}, "keeps base, and"),
        ({"reference": CANDIDATES.index("own")}, "compares with own; wanted one of base, alone, alone ensemble"),
        ({"reference": CANDIDATES.index("alone ensemble")}, "compares with alone ensemble"),
        ({"over-reference": [2.5, 1.0]}, "the lower one first"),
        ({"over-reference": [1.0]}, "wanted two numbers"),
        ({"over-reference": 1.0}, "wanted two numbers"),
        ({"over-reference": [-1e300, 0.0]}, "from -100 to 100"),
        ({"over-reference": [float("nan"), 0.0]}, "wanted two numbers"),
        ({"bleu": 100.0}, "the choice holds"),
    ],
)
def test_a_choice_that_cannot_be_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ExchangeError, match=reason):
        check_choice(MetricRecord({**CHOICE, **changes}), CHOSEN, 100.0)


def test_a_single_model_is_its_own_best_single_model_and_an_ensemble_need_not_be() -> None:
    other = {**CHOSEN, "single": sums("der Hut")}
    with pytest.raises(ExchangeError, match="keeps own, and"):
        check_choice(MetricRecord({**CHOICE, "kept": CANDIDATES.index("own")}), other, 100.0)
    assert check_choice(MetricRecord({**CHOICE, "kept": CANDIDATES.index("ensemble")}), other, 100.0)


def test_a_part_of_a_choice_is_refused() -> None:
    some = {name: CHOSEN[name] for name in ("result", "base")}
    with pytest.raises(ExchangeError, match="a part of a choice"):
        check_choice(MetricRecord(CHOICE), some, 100.0)
    with pytest.raises(ExchangeError, match="a part of a choice"):
        check_choice(None, CHOSEN, 100.0)
    with pytest.raises(ExchangeError, match="the choice holds kept, over-reference"):
        check_choice(MetricRecord({key: CHOICE[key] for key in ("kept", "over-reference")}), CHOSEN, 100.0)


# --- Arrays ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "array", [np.zeros((1, 16), np.float32), np.zeros((2, 15), np.float32), np.zeros((2, 16)), np.zeros(32, np.float32)]
)
def test_an_array_of_another_form_is_refused(array: np.ndarray[Any, Any]) -> None:
    with pytest.raises(ExchangeError, match=re.escape("wanted float32 (2, 16)")):
        check_array(to_record({"deviations": array}), "deviations", (2, 16))
    for record in (None, to_record({"moves": array}), to_record({"deviations": array, "more": array})):
        with pytest.raises(ExchangeError, match=r"the reply has the deviations .*; wanted deviations"):
            check_array(record, "deviations", (2, 16))
