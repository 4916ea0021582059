"""Bounds that a reply has to keep, by hand."""

from typing import Any

import pytest

from fedlingua.common.errors import ExchangeError
from fedlingua.exchange.tensors import TensorSet, TensorSpec
from strategies.checks import check_about, size_limit


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
