"""Bounds that a reply has to keep, by hand."""

import math
from typing import Any

import numpy as np
import pytest

from fedlingua.errors import ExchangeError
from fedlingua.exchange.tensors import TensorSet, TensorSpec
from fedlingua.selection.masks import Selection
from strategies.aggregation import Update
from strategies.checks import check_about, over_ratio, size_limit
from strategies.readings import Training


def test_of_one_or_two_updates_nothing_can_be_said() -> None:
    assert over_ratio({}, 2) == {}
    assert over_ratio({"a": 1e30}, 2) == over_ratio({"a": 1.0}, 0.5) == over_ratio({"a": 1e-9, "b": 1.0}, 2) == {}


def test_an_update_over_the_ratio_is_told_with_the_median() -> None:
    assert over_ratio({"a": 1.0, "b": 2.0, "c": 1.0}, 2) == {}
    found = over_ratio({"a": 1.0, "b": 2.001, "c": 1.0}, 2)
    assert list(found) == ["b"]
    assert found["b"].endswith("by 2.001 (root mean square); the round's median is 1 and max-update-ratio = 2")


def test_an_update_is_measured_by_what_it_sends() -> None:
    """A site that sends a few small tensors is as loud as one that sends all, when each number moved as far."""
    specs = (
        TensorSpec("small", (2, 2), "encoder", 0),
        TensorSpec("large", (50, 40), "encoder", 0),
        TensorSpec("other", (3,), "decoder", 0),
    )
    tensor_set = TensorSet("set", specs)
    changes = []
    for names in ([], ["small"], ["small", "large"], ["small", "large", "other"]):
        moved = {spec.name: np.full(spec.shape, 0.5 * (spec.name in names), np.float32) for spec in specs}
        norm = math.sqrt(sum(float(np.square(tensor).sum()) for tensor in moved.values()))
        selection = Selection.of_names(tensor_set, names)
        changes.append(Training(Update("a", moved, 1, selection), {}, norm, "").change)
    assert changes == [0.0, *[pytest.approx(0.5)] * 3]


def test_of_three_updates_the_middle_one_is_the_measure() -> None:
    assert over_ratio({"a": 1.0, "b": 7.0, "c": 3.0}, 2).keys() == {"b"}
    assert over_ratio({"a": 0.001, "b": 6.0, "c": 3.0}, 2) == {}


def test_of_four_updates_the_upper_middle_one_is_the_measure() -> None:
    """So two that hardly change anything cannot make the other two look long."""
    assert over_ratio({"a": 1.0, "b": 2.0, "c": 9.0, "d": 4.0}, 2).keys() == {"c"}
    assert over_ratio({"a": 1e-9, "b": 1e-9, "c": 5.0, "d": 4.0}, 2) == {}


def test_a_ratio_of_zero_sets_no_bound() -> None:
    assert over_ratio({"a": 1.0, "b": 1e30}, 0) == {}


def test_a_reply_may_have_four_bytes_a_number_a_hundredth_more_and_64_kib() -> None:
    specs = (TensorSpec("x", (1000, 50), "encoder", 0), TensorSpec("y", (50,), "shared", None))
    assert size_limit(TensorSet("adapters", specs)) == 65536 + int(1.01 * 4 * 50050)
    assert size_limit(None) == 65536


@pytest.mark.parametrize("share", [0.5, 0.99, 0.9999])
def test_single_numbers_may_have_a_bit_each_besides(share: float) -> None:
    chosen = TensorSet("adapters", (TensorSpec("x", (8_000_000,), "encoder", 0),))
    packed = int(4 * share * 8_000_000) + 8_000_000 // 8
    assert packed < size_limit(chosen, selects_numbers=True)
    assert (packed < size_limit(chosen)) == (share == 0.5)


def test_where_most_changed_nothing_there_is_nothing_to_compare_with():
    assert over_ratio({"a": 0.0, "b": 0.0, "c": 1.0}, 5.0) == {}


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
