"""Soft gates by hand, by finite differences, and against the step that they stand for."""

import math

import numpy as np
import pytest

from fedlingua.selection.meta_gradient import gate_slope
from fedlingua.selection.rules import Keep
from tests.soft_gates import gate

DEVIATIONS = np.array([0.0, 0.3, 0.5, 0.52, 2.0])
KEEPS: list[Keep] = ["g", "l"]


@pytest.mark.parametrize("keep", KEEPS)
def test_the_slope_is_that_of_finite_differences(keep: Keep) -> None:
    step = 1e-6
    difference = (gate(DEVIATIONS, 0.5 + step, 0.1, keep) - gate(DEVIATIONS, 0.5 - step, 0.1, keep)) / (2 * step)
    assert gate_slope(DEVIATIONS, 0.5, 0.1, keep) == pytest.approx(difference, rel=1e-6, abs=1e-9)


def test_a_higher_theta_closes_the_gates_of_g_and_opens_those_of_l() -> None:
    assert (gate_slope(DEVIATIONS, 0.5, 0.1, "g") < 0).all()
    assert (gate_slope(DEVIATIONS, 0.5, 0.1, "l") > 0).all()


def test_a_tensor_that_was_zero_is_always_or_never_sent_and_tells_nothing_of_theta() -> None:
    assert gate(math.inf, 0.5, 0.1, "g") == 1
    assert gate(math.inf, 0.5, 0.1, "l") == 0
    assert gate_slope(math.inf, 0.5, 0.1, "g") == gate_slope(math.inf, 0.5, 0.1, "l") == 0


@pytest.mark.parametrize("keep", KEEPS)
def test_a_narrow_gate_is_the_step_and_overflows_nowhere(keep: Keep) -> None:
    deviations = np.array([0.0, 0.49, 0.51, 1e30])
    with np.errstate(all="raise", under="ignore"):
        sent = gate(deviations, 0.5, 1e-9, keep)
        gate_slope(deviations, 0.5, 1e-9, keep)
    assert (sent.round() == (deviations >= 0.5 if keep == "g" else deviations < 0.5)).all()
    assert sent.dtype == np.float64
