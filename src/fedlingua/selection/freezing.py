"""Adaptive parameter freezing (Chen et al., ICDCS 2021, IEEE TPDS 2024): numbers that only oscillate are not sent for a while.

A number's effective perturbation is |E| / E_abs, with moving averages E of its updates and E_abs of their magnitudes: 1 if it
moves one way, near 0 if it oscillates. If it is at most a threshold, the number is stable and its freezing period grows by a
round; if not, the period is halved. The number is frozen for that many rounds, then it is sent and judged again. When 80 % are
frozen the threshold is halved.

The papers leave open, and we chose: a number is judged in every round in which it is sent, the first included. A number that
never moved (E_abs = 0: embeddings of unseen words) counts as stable. A period is 255 rounds at most, to fit a byte. A site's
training of a frozen number does not count, as it is not sent.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedlingua.common.errors import RunError
from fedlingua.exchange.joined import Numbers, cuts
from fedlingua.exchange.selected import Selection, part_sizes
from fedlingua.exchange.tensors import NamedTensors, Tensors, TensorSet

FROZEN_TO_TIGHTEN = 0.8
"""Share of numbers frozen at which the threshold is halved."""
_LONGEST = 255
_HISTORY = {"update_mean": np.float32, "magnitude_mean": np.float32, "period": np.uint8, "rounds_left": np.uint8}
"""What a state holds of each number, 10 bytes: E, E_abs, and two numbers of rounds; with 0 left a number is sent. Each is an array of a
part's numbers in joined order, named `<part>.<what>`."""
_SETTINGS = "settings"
"""A state's array of two numbers: the rounds that the moving averages span, by alpha = 1 - 1 / window, and the threshold."""
_Form = tuple[np.dtype[Any], tuple[int, ...]]


def apf_start(chosen: TensorSet, window: float = 4, threshold: float = 0.05) -> Tensors:
    """Return the first state, nothing frozen. window: 4 in MetaSend's journal, §V-A; threshold: 0.05 in Chen et al."""
    empty = {name: np.zeros(shape, dtype) for name, (dtype, shape) in _forms(chosen).items()}
    return empty | {_SETTINGS: np.array([window, threshold])}


def apf_step(state: NamedTensors, chosen: TensorSet, new: NamedTensors, previous: NamedTensors) -> tuple[Selection, Tensors]:
    """Return what is sent in this round, and the state after it; the round's update is new - previous.

    The caller decides whose update it is: Chen et al. take the aggregated model's, so that all sites freeze alike. Needs memory
    for a second copy of the state.
    """
    window, threshold = state[_SETTINGS].tolist()
    after = apf_start(chosen, window, threshold)
    for name, (part, first, _) in zip(chosen.names, chosen.places, strict=True):
        end, start = np.ravel(new[name]), np.ravel(previous[name])
        for cut in cuts(end.size):
            place = slice(first + cut.start, first + cut.stop)
            before = {what: state[f"{part}.{what}"][place] for what in _HISTORY}
            for what, numbers in _judged(before, end[cut] - start[cut], window, threshold).items():
                after[f"{part}.{what}"][place] = numbers
    sent = Selection(chosen, numbers={part: state[f"{part}.rounds_left"] == 0 for part in part_sizes(chosen)})
    frozen = sum(int(np.count_nonzero(after[f"{part}.rounds_left"])) for part in part_sizes(chosen))
    if frozen >= FROZEN_TO_TIGHTEN * chosen.num_parameters:
        after[_SETTINGS][1] = threshold / 2
    return sent, after


def _judged(before: Mapping[str, Numbers], update: Numbers, window: float, threshold: float) -> dict[str, Numbers]:
    """Return a block of a part after a round: a number that was sent is judged, a frozen one has a round less to wait."""
    mean, magnitude, period, left = before.values()
    sent, alpha = left == 0, np.float32(1 - 1 / window)
    mean = np.where(sent, alpha * mean + (1 - alpha) * update, mean)
    magnitude = np.where(sent, alpha * magnitude + (1 - alpha) * np.abs(update), magnitude)
    stable = np.abs(mean) <= np.float32(threshold) * magnitude  # no quotient, so that 0 / 0 is stable, too
    judged = np.where(stable, np.minimum(period, _LONGEST - 1) + 1, period // 2)
    after = mean, magnitude, np.where(sent, judged, period), np.where(sent, judged, left - 1)
    return dict(zip(_HISTORY, after, strict=True))


def check_state(state: NamedTensors, chosen: TensorSet) -> None:
    """Raise RunError if the arrays of a stored state do not fit this tensor set."""
    wanted = _forms(chosen)
    got = {name: (array.dtype, array.shape) for name, array in state.items()}
    if wrong := sorted(name for name in {*got, *wanted} if got.get(name) != wanted.get(name)):
        raise RunError(
            f"the state of adaptive freezing has {wrong[0]!r} as {_told(got, wrong[0])}; wanted {_told(wanted, wrong[0])}: "
            "it is of another tensor set"
        )


def _told(forms: Mapping[str, _Form], name: str) -> str:
    return "{} of shape {}".format(*forms[name]) if name in forms else "nothing"


def _forms(chosen: TensorSet) -> dict[str, _Form]:
    """Return the dtype and the shape of each array of a state."""
    sizes = part_sizes(chosen).items()
    forms: dict[str, _Form] = {
        f"{part}.{what}": (np.dtype(dtype), (size,)) for part, size in sizes for what, dtype in _HISTORY.items()
    }
    return {**forms, _SETTINGS: (np.dtype(np.float64), (2,))}
