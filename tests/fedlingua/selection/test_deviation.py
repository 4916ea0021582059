"""How far tensors moved, by hand."""

from typing import Any

import numpy as np
import pytest

from fedlingua.common.errors import ExchangeError
from fedlingua.exchange.joined import BLOCK, Joined, cuts, join
from fedlingua.exchange.tensors import TensorSet, TensorSpec
from fedlingua.selection.deviation import ROW, deviations, differences, magnitudes

Array = np.ndarray[Any, Any]


def array(*numbers: float) -> Array:
    return np.array(numbers, np.float32)


def tensors(*arrays: Array) -> tuple[dict[str, Array], TensorSet]:
    named = {f"t{number}": each for number, each in enumerate(arrays)}
    return named, TensorSet("toy", tuple(TensorSpec(name, each.shape, "encoder", None) for name, each in named.items()))


def test_cuts_cover_all_numbers_once_in_order() -> None:
    assert [(cut.start, cut.stop) for cut in cuts(7, 3)] == [(0, 3), (3, 6), (6, 7)]
    assert list(cuts(0)) == []


def test_the_deviation_is_the_change_over_what_was_in_magnitudes_summed() -> None:
    """Eq. 2 with ||.|| the sum of magnitudes: (|2| + |-3|) / (|1| + |-4|) = 1; with squares it were sqrt(13 / 17)."""
    previous, chosen = tensors(array(1, -4), array(8), array(2, 2))
    new, _ = tensors(array(3, -7), array(7), array(2, 2))
    found = deviations(new, previous, chosen)
    assert found.dtype == np.float32
    assert found.tolist() == [1, 0.125, 0]
    assert differences(new, previous, chosen).tolist() == [5, 1, 0]
    assert deviations(previous, new, chosen).tolist() == [0.5, float(np.float32(1 / 7)), 0]


def test_a_tensor_of_zeros_has_no_deviation_once_it_changed() -> None:
    previous, chosen = tensors(array(0, 0), array(0, -0.0), np.empty(0, np.float32))
    new, _ = tensors(array(0, 1e-45), array(0, 0), np.empty(0, np.float32))
    assert deviations(new, previous, chosen).tolist() == [np.inf, 0, 0]


def test_only_a_tensor_of_zeros_has_no_deviation() -> None:
    """1e38 / 1e-45 is no float32; it is large, not without a value."""
    previous, chosen = tensors(array(1e-45))
    new, _ = tensors(array(1e38))
    assert deviations(new, previous, chosen).tolist() == [float(np.finfo(np.float32).max)]


def test_deviations_come_in_the_sets_order_whatever_the_mappings() -> None:
    previous, chosen = tensors(array(1), array(2), array(4))
    new, _ = tensors(array(2), array(2), array(5))
    turned = dict(reversed(new.items()))
    assert deviations(turned, Joined(join(previous, chosen), chosen), chosen).tolist() == [1, 0, 0.25]


def test_a_tensor_that_is_not_contiguous_is_read_in_its_own_order() -> None:
    previous, chosen = tensors(np.array([[1, 2], [3, 4]], np.float32))
    new, _ = tensors(np.array([[1, 3], [2, 4]], np.float32).T)
    assert deviations(new, previous, chosen).tolist() == [0]


@pytest.mark.parametrize("size", [1, ROW - 1, ROW, ROW + 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5 * ROW + 7])
def test_sums_over_rows_and_blocks_are_those_of_float64(size: int) -> None:
    rng = np.random.default_rng(size)
    before, change = rng.standard_normal((2, size), np.float32)
    # The first tensor leaves numbers behind in the scratch memory, which the second's last row must not see.
    previous, chosen = tensors(np.full(2 * BLOCK, 9, np.float32), before)
    new, _ = tensors(np.full(2 * BLOCK, 1, np.float32), before + change)
    changes = np.abs((before + change).astype(np.float64) - before).sum()
    norm = np.abs(before.astype(np.float64)).sum()
    assert differences(new, previous, chosen)[1] == pytest.approx(changes, rel=1e-6)
    assert deviations(new, previous, chosen)[1] == pytest.approx(changes / norm, rel=1e-6)


def test_sums_do_not_end_where_float32_does() -> None:
    previous, chosen = tensors(array(-3e38, 3e38))
    new, _ = tensors(array(3e38, 3e38))
    assert differences(new, previous, chosen)[0] == pytest.approx(6e38)
    assert deviations(new, previous, chosen)[0] == pytest.approx(1)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("side", ["new", "previous"])
def test_a_tensor_that_is_not_finite_is_named(wrong: float, side: str) -> None:
    good, chosen = tensors(array(1), array(1, 2))
    bad, _ = tensors(array(1), array(1, wrong))
    new, previous = (bad, good) if side == "new" else (good, bad)
    with pytest.raises(ExchangeError, match="'t1' holds NaN or infinity"):
        deviations(new, previous, chosen)


def test_a_magnitude_is_the_mean_of_a_tensors_magnitudes() -> None:
    named, chosen = tensors(array(1, -3), array(0, 0), np.empty(0, np.float32))
    assert magnitudes(named, chosen).tolist() == [2, 0, 0]
