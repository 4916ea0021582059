"""Norm and finiteness of an update, by hand, and the same however its numbers are cut."""

import math
from typing import Any

import numpy as np
import pytest

from fedlingua.common.errors import ExchangeError
from fedlingua.exchange import measured_change as norms
from fedlingua.exchange.joined import EndToEnd, Joined
from fedlingua.exchange.measured_change import SPAN, change_of
from fedlingua.exchange.selected import Selection, everything
from fedlingua.exchange.tensors import TensorSet, TensorSpec
from tests.selected import mask_of

Array = np.ndarray[Any, Any]


def change_norm(parts: dict[str, Array], sent: dict[str, list[Array]]) -> float:
    """L2, of parts that are one tensor each."""
    chosen = TensorSet("toy", tuple(TensorSpec(f"{part}.w", flat.shape, part, 0) for part, flat in parts.items()))  # type: ignore[arg-type]
    starts = {part: EndToEnd(pieces) for part, pieces in sent.items()}
    return change_of(Joined(parts, chosen), starts, everything(chosen)).norm


def array(*numbers: float) -> Array:
    return np.array(numbers, dtype=np.float32)


def test_the_norm_of_a_change_is_that_of_all_parts_together() -> None:
    sent = {"encoder": [array(1), array(1)], "decoder": [array(5)]}
    assert change_norm({"encoder": array(3, 4), "decoder": array(11)}, sent) == pytest.approx(math.sqrt(4 + 9 + 36))
    assert change_norm({"encoder": array(1, 1), "decoder": array(5)}, sent) == 0


def test_the_norm_does_not_overflow_where_float32_would() -> None:
    """(3e38 - -3e38) is no float32, and its square no float32 either."""
    assert change_norm({"encoder": array(3e38, 0)}, {"encoder": [array(-3e38, 0)]}) == pytest.approx(6e38)
    assert change_norm({"encoder": array(1e30, 0)}, {"encoder": [array(0, 0)]}) == pytest.approx(1e30)


def test_the_norm_does_not_vanish_where_float32_would() -> None:
    assert change_norm({"encoder": array(3e-30, 4e-30)}, {"encoder": [array(0, 0)]}) == pytest.approx(5e-30, rel=1e-6, abs=0)


def test_a_small_change_of_large_numbers_is_not_lost() -> None:
    assert change_norm({"encoder": array(16777216)}, {"encoder": [array(16777218)]}) == 2


def test_the_norm_of_many_numbers_is_that_of_float64() -> None:
    rng = np.random.default_rng(1)
    update, sent = rng.standard_normal((2, 2 * SPAN + 777), np.float32)
    exact = np.linalg.norm(update.astype(np.float64) - sent)
    assert change_norm({"encoder": update}, {"encoder": [sent]}) == pytest.approx(exact, rel=1e-7)


def test_where_the_numbers_are_cut_does_not_change_the_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    update, sent = rng.standard_normal((2, SPAN + 5000), np.float32)
    whole = change_norm({"encoder": update}, {"encoder": [sent]})
    pieces = [sent[:3], sent[3:70_000], sent[70_000 : SPAN + 1], sent[SPAN + 1 :]]
    assert change_norm({"encoder": update}, {"encoder": pieces}) == whole
    one_core = norms.on_cores
    monkeypatch.setattr(norms, "on_cores", lambda work, spans: one_core(work, spans, cores=1))
    assert change_norm({"encoder": update}, {"encoder": [sent]}) == whole


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 40_000, SPAN + 3])
def test_one_number_that_is_none_is_found_and_its_part_named(wrong: float, place: int) -> None:
    update, sent = np.zeros(SPAN + 4, np.float32), np.zeros(SPAN + 4, np.float32)
    update[place] = wrong
    with pytest.raises(ExchangeError, match="tensor 'decoder' holds NaN or infinity"):
        change_norm({"encoder": sent[:2], "decoder": update}, {"encoder": [sent[:2]], "decoder": [sent]})


TWO = TensorSet(
    "two",
    (TensorSpec("e.a", (3,), "encoder", 0), TensorSpec("d", (2, 2), "decoder", 0), TensorSpec("e.b", (SPAN + 5,), "encoder", 0)),
)


def test_every_tensor_is_measured_by_itself() -> None:
    update = {"encoder": np.zeros(SPAN + 8, np.float32), "decoder": array(1, 1, 1, 5)}
    sent = {"encoder": np.zeros(SPAN + 8, np.float32), "decoder": array(1, 1, 1, 1)}
    update["encoder"][[0, 1]] = [3, -4]
    update["encoder"][-1], sent["encoder"][-2] = 2, -7
    found = change_of(Joined(update, TWO), {part: EndToEnd([flat]) for part, flat in sent.items()}, everything(TWO))
    assert found.squares.tolist() == [25, 16, 53]
    assert found.largest.tolist() == [4, 4, 7]
    assert found.sizes.tolist() == [0, 1, 7]
    assert found.sent.tolist() == [3, 4, SPAN + 5]
    np.testing.assert_allclose(found.rms, np.sqrt([94 / (SPAN + 12), 25 / 3, 16 / 4, 53 / (SPAN + 5)]))


def test_the_largest_number_of_a_long_tensor_may_lie_in_any_span() -> None:
    long = TensorSet("long", (TensorSpec("w", (SPAN + 9,), "encoder", 0),))
    sent = np.zeros(SPAN + 9, np.float32)
    sent[1] = -7
    update = sent.copy()
    update[0] = 5
    change = change_of(Joined({"encoder": update}, long), {"encoder": EndToEnd([sent])}, everything(long))
    assert (change.largest.tolist(), change.sizes.tolist(), change.squares.tolist()) == ([5], [7], [25])


def test_a_change_is_measured_over_what_was_sent() -> None:
    """A site that sends a few small tensors is as loud as one that sends all, when each number moved as far."""
    for names in ([], ["d"], ["d", "e.b"], TWO.names):
        selection = Selection(TWO, np.isin(TWO.names, names))
        start = {"encoder": np.zeros(SPAN + 8, np.float32), "decoder": np.zeros(4, np.float32)}
        update = {part: np.where(mask_of(selection, part), np.float32(0.5), flat) for part, flat in start.items()}
        found = change_of(Joined(update, TWO), {part: EndToEnd([flat]) for part, flat in start.items()}, selection)
        assert found.rms[1:].tolist() == pytest.approx([0.5 if name in names else np.nan for name in TWO.names], nan_ok=True)
        assert found.rms[0] == pytest.approx(0.5 if names else np.nan, nan_ok=True)


def test_of_single_numbers_those_that_were_sent_count() -> None:
    masks = {"encoder": np.zeros(SPAN + 8, np.bool_), "decoder": np.array([True, False, False, True])}
    start = {"encoder": np.zeros(SPAN + 8, np.float32), "decoder": np.zeros(4, np.float32)}
    update = {**start, "decoder": array(3, 0, 0, 4)}
    chosen = Selection(TWO, numbers=masks)
    found = change_of(Joined(update, TWO), {part: EndToEnd([flat]) for part, flat in start.items()}, chosen)
    assert found.sent.tolist() == [0, 2, 0]
    assert found.rms[[0, 2]].tolist() == [math.sqrt(12.5)] * 2
