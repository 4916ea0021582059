"""Top-k beside a sort."""

from typing import Any

import numpy as np
import pytest

from fedlingua.exchange.joined import join
from fedlingua.exchange.tensors import TensorSet, TensorSpec
from fedlingua.selection.rules import top_k

Array = np.ndarray[Any, Any]
CHOSEN = TensorSet(
    "toy",
    (TensorSpec("s", (40,), "shared", None), TensorSpec("d", (30, 3), "decoder", None), TensorSpec("e", (71,), "encoder", None)),
)


def marked(tensors: dict[str, Array], share: float, chosen: TensorSet = CHOSEN) -> list[int]:
    """Places of the numbers sent, encoder, decoder, shared end to end."""
    masks = top_k(tensors, chosen, share).numbers
    assert masks is not None
    return np.flatnonzero(np.concatenate(list(masks.values()))).tolist()


def sorted_out(tensors: dict[str, Array], share: float) -> list[int]:
    """The same by a stable sort."""
    numbers = np.concatenate(list(join(tensors, CHOSEN).values()))
    order = np.argsort(-np.abs(numbers.astype(np.float64)), kind="stable")
    return sorted(order[: int(share * len(numbers) + 0.5)].tolist())


def test_the_largest_magnitudes_are_sent_whatever_their_sign() -> None:
    chosen = TensorSet("toy", (TensorSpec("w", (6,), "shared", None),))
    numbers = {"w": np.array([1, -5, 0.5, 4, -0.1, 0], np.float32)}
    assert marked(numbers, 0.5, chosen) == [0, 1, 3]
    assert marked(numbers, 2 / 6, chosen) == [1, 3]


def test_k_is_taken_over_the_whole_set() -> None:
    """The shared part has the largest numbers, the others send next to none."""
    tensors = {spec.name: np.full(spec.shape, 9 if spec.name == "s" else 1, np.float32) for spec in CHOSEN.specs}
    assert marked(tensors, 40 / 201) == list(range(161, 201))
    assert marked(tensors, 42 / 201) == [0, 1, *range(161, 201)]  # ties: the encoder's first


@pytest.mark.parametrize("share", [0, 0.005, 0.25, 0.5, 0.75, 0.999, 1])
@pytest.mark.parametrize("kind", ["smooth", "ties", "equal", "zeros", "wide", "near"])
def test_exactly_k_as_a_stable_sort_would_take_them(share: float, kind: str) -> None:
    rng = np.random.default_rng(11)
    tensors = {}
    for spec in CHOSEN.specs:
        drawn = rng.standard_normal(spec.shape, np.float32)
        tensors[spec.name] = {
            "smooth": drawn,
            "ties": np.round(drawn),
            "equal": np.where(drawn > 0, np.float32(0.3), np.float32(-0.3)),
            "zeros": drawn * np.float32(0),  # of both signs
            "wide": np.sign(drawn) * np.exp(30 * drawn.astype(np.float64)).clip(1e-44, 3e38),  # subnormal to the end of float32
            "near": np.float32(1) + np.float32(2**-23) * rng.integers(0, 9, spec.shape).astype(np.float32),  # the last bits
        }[kind].astype(np.float32)
    assert marked(tensors, share) == sorted_out(tensors, share)


def test_what_is_no_number_is_sent_so_that_the_server_refuses_it() -> None:
    chosen = TensorSet("toy", (TensorSpec("w", (4,), "shared", None),))
    assert marked({"w": np.array([1, np.nan, 2, 0.5], np.float32)}, 0.5, chosen) == [1, 2]
