"""Adaptive freezing by hand, and beside a loop over single numbers."""

from typing import Any

import numpy as np
import pytest

from fedlingua.common.errors import RunError
from fedlingua.exchange.selected import Selection
from fedlingua.exchange.tensors import Tensors, TensorSet, TensorSpec
from fedlingua.selection.freezing import apf_start, apf_step, check_state
from tests.selected import mask_of

Array = np.ndarray[Any, Any]
ONE = TensorSet("toy", (TensorSpec("w", (5,), "shared", None),))


def step(state: Tensors, *update: float) -> tuple[list[bool], Tensors]:
    zeros = np.zeros(5, np.float32)
    sent, after = apf_step(state, ONE, {"w": np.array(update, np.float32)}, {"w": zeros})
    return mask_of(sent, "shared").tolist(), after


def test_moving_averages_tell_swinging_from_moving_one_way() -> None:
    """Window 2: alpha = 1/2. Updates 4, then 2: E = 2 + ... = 1 + 1 = 2, E_abs = 2; 4, then -2: E = 1 - 1 = 0, E_abs = 2."""
    _, state = step(apf_start(ONE, window=2), 4, 4, -4, 1, 1)
    assert state["shared.update_mean"].tolist() == [2, 2, -2, 0.5, 0.5]
    assert state["shared.magnitude_mean"].tolist() == [2, 2, 2, 0.5, 0.5]
    _, state = step(state, 2, -2, 2, 1, 1)
    assert state["shared.update_mean"].tolist() == [2, 0, 0, 0.75, 0.75]
    assert state["shared.magnitude_mean"].tolist() == [2, 2, 2, 0.75, 0.75]
    assert state["shared.rounds_left"].tolist() == [0, 1, 1, 0, 0]


def test_the_window_is_a_mean_of_four_rounds_unless_told() -> None:
    _, state = step(apf_start(ONE), 4, 4, 4, 4, 4)
    assert state["shared.update_mean"].tolist() == [1] * 5


def test_a_number_is_stable_up_to_the_threshold() -> None:
    """Window 2: after 1 and x, |E| / E_abs = |1/4 + x/2| / (1/4 + |x|/2); for x = -0.375: 0.0625 / 0.4375 = 1/7."""
    update = [-0.375] * 5
    for threshold, left in ((0.142, 0), (0.143, 1)):
        _, state = step(apf_start(ONE, 2, threshold), 1, 1, 1, 1, 1)
        assert step(state, *update)[1]["shared.rounds_left"].tolist() == [left] * 5


def test_a_frozen_number_is_not_sent_and_its_period_grows_by_a_round_while_it_is_stable() -> None:
    """The first never moves: sent in round 1, then 1 round frozen, sent, 2 frozen, sent, 3 frozen, sent."""
    state, sent = apf_start(ONE), []
    for _ in range(10):
        mask, state = step(state, 0, 1, 1, 1, 1)
        sent.append(mask[0])
        assert mask[1:] == [True] * 4
    assert sent == [True, False, True, False, False, True, False, False, False, True]
    assert state["shared.period"].tolist() == [4, 0, 0, 0, 0]


def test_a_period_is_halved_and_served_once_the_number_moves() -> None:
    state = apf_start(ONE)
    for _ in range(6):  # periods 1, 2 and 3, the last of them begun in round 6
        _, state = step(state, 0, 1, 1, 1, 1)
    assert state["shared.period"][0] == 3
    sent = []
    for _ in range(7):
        mask, state = step(state, 1, 1, 1, 1, 1)
        sent.append(mask[0])
    # Three rounds frozen; sent, and unstable: 3 // 2 = 1 more frozen; sent, and unstable: 0.
    assert sent == [False, False, False, True, False, True, True]


def test_what_a_site_trained_of_a_frozen_number_is_not_counted() -> None:
    _, state = step(apf_start(ONE), 0, 1, 1, 1, 1)
    mask, after = step(state, 8, 1, 1, 1, 1)
    assert not mask[0]
    assert (after["shared.update_mean"][0], after["shared.magnitude_mean"][0]) == (0, 0)


def test_the_threshold_is_halved_whenever_four_fifths_are_frozen() -> None:
    _, state = step(apf_start(ONE), 0, 0, 0, 1, 1)
    assert state["settings"][1] == 0.05
    _, state = step(apf_start(ONE), 0, 0, 0, 0, 1)
    assert state["settings"][1] == 0.025
    _, state = step(state, 0, 0, 0, 0, 1)  # all five are sent in the round to come
    assert state["settings"][1] == 0.025
    _, state = step(state, 0, 0, 0, 0, 1)
    assert state["settings"][1] == 0.0125


def test_a_step_leaves_the_state_before_as_it_was() -> None:
    state = apf_start(ONE)
    step(state, 0, 1, 2, 3, 4)
    assert all(not array.any() for name, array in state.items() if name != "settings")


def test_a_period_ends_at_255_rounds() -> None:
    arrays = apf_start(ONE)
    arrays["shared.period"] = np.array([254, 255, 255, 0, 1], np.uint8)
    _, state = step(arrays, 0, 0, 1, 1, 1)
    assert state["shared.period"].tolist() == [255, 255, 127, 0, 0]
    assert state["shared.rounds_left"].tolist() == [255, 255, 127, 0, 0]


CHOSEN = TensorSet(
    "toy",
    (TensorSpec("d.w", (3, 4), "decoder", 0), TensorSpec("e.w", (7,), "encoder", 0), TensorSpec("d.b", (5,), "decoder", None)),
)


class Single:
    """One number's freezing, as the papers tell it."""

    def __init__(self) -> None:
        self.mean = self.magnitude = np.float32(0)
        self.period = self.frozen_until = 0

    def step(self, number: int, update: np.float32, alpha: np.float32, threshold: np.float32) -> bool:
        if number < self.frozen_until:
            return False
        self.mean = alpha * self.mean + (np.float32(1) - alpha) * update
        self.magnitude = alpha * self.magnitude + (np.float32(1) - alpha) * abs(update)
        stable = self.magnitude == 0 or abs(self.mean) / self.magnitude <= threshold
        self.period = self.period + 1 if stable else self.period // 2
        self.frozen_until = number + 1 + self.period
        return True


def test_all_numbers_fare_as_in_a_loop_over_each() -> None:
    rng = np.random.default_rng(9)
    # Some never move, some swing around nothing, some drift.
    drift = {spec.name: rng.choice([0.0, 0.0, 0.3, 2.0], spec.shape) for spec in CHOSEN.specs}
    moves = {spec.name: rng.choice([0.0, 0.0, 0.0, 1.0], spec.shape) for spec in CHOSEN.specs}
    singles = {spec.name: [Single() for _ in range(int(np.prod(spec.shape)))] for spec in CHOSEN.specs}
    state, threshold, sent_in_all, thresholds = apf_start(CHOSEN, 4, 0.4), 0.4, 0, set()
    for number in range(40):
        previous = {spec.name: rng.standard_normal(spec.shape, np.float32) for spec in CHOSEN.specs}
        new = {
            name: (start + moves[name] * (drift[name] + rng.standard_normal(start.shape))).astype(np.float32)
            for name, start in previous.items()
        }
        before = state
        selection, state = apf_step(before, CHOSEN, new, previous)
        sent = named(selection)
        for name, each in singles.items():
            updates = np.ravel(new[name] - previous[name])
            wanted = [
                one.step(number, update, np.float32(0.75), np.float32(threshold))
                for one, update in zip(each, updates, strict=True)
            ]
            assert sent[name] == wanted
        frozen = sum(one.frozen_until > number + 1 for each in singles.values() for one in each)
        threshold = threshold / 2 if frozen >= 0.8 * CHOSEN.num_parameters else threshold
        assert state["settings"][1] == threshold
        sent_in_all += sum(map(sum, sent.values()))
        thresholds.add(threshold)
    assert 0.2 < sent_in_all / (40 * CHOSEN.num_parameters) < 0.8
    assert len(thresholds) > 1


def named(selection: Selection) -> dict[str, list[bool]]:
    """Each tensor's mask; the decoder's are joined as d.w, d.b."""
    decoder, encoder = mask_of(selection, "decoder").tolist(), mask_of(selection, "encoder").tolist()
    return {"d.w": decoder[:12], "d.b": decoder[12:], "e.w": encoder}


def test_a_state_takes_ten_bytes_a_number() -> None:
    _, state = step(apf_start(ONE, window=3, threshold=0.1), 0, 0, 0, 0, 1)
    names = [f"shared.{what}" for what in ("update_mean", "magnitude_mean", "period", "rounds_left")]
    assert list(state) == [*names, "settings"]
    assert [array.nbytes for array in state.values()] == [20, 20, 5, 5, 16]
    assert state["settings"].tolist() == [3, 0.05]
    check_state(state, ONE)


@pytest.mark.parametrize("name", ["shared.period", "settings", "shared.update_mean"])
def test_a_state_of_another_set_is_refused(name: str) -> None:
    arrays = apf_start(ONE)
    with pytest.raises(RunError, match=f"has '{name}' as nothing; wanted .* of shape"):
        check_state({other: array for other, array in arrays.items() if other != name}, ONE)
    with pytest.raises(RunError, match=f"has '{name}' as int16 of shape"):
        check_state({**arrays, name: arrays[name].astype(np.int16)}, ONE)
    with pytest.raises(RunError, match=r"has 'encoder.period' as uint8 of shape \(5,\); wanted nothing"):
        check_state({**arrays, "encoder.period": np.zeros(5, np.uint8)}, ONE)
