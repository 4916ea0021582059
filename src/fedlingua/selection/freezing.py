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
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedlingua.backbones.parts import PARTS
from fedlingua.common.errors import RunError
from fedlingua.exchange.joined import Numbers, cuts
from fedlingua.exchange.tensors import Tensors, TensorSet
from fedlingua.selection.masks import Selection, part_sizes

FROZEN_TO_TIGHTEN = 0.8
"""Share of numbers frozen at which the threshold is halved."""
_LONGEST = 255
_HISTORY = {"update_mean": np.float32, "magnitude_mean": np.float32, "period": np.uint8, "rounds_left": np.uint8}
_SETTINGS = "settings"
_Form = tuple[np.dtype[Any], tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class PartHistory:
    """The history of one part's numbers, each array in joined order: 10 bytes a number.

    update_mean: E, magnitude_mean: E_abs, float32. period, rounds_left: rounds, uint8; at 0 left a number is sent.
    """

    update_mean: Numbers
    magnitude_mean: Numbers
    period: Numbers
    rounds_left: Numbers


@dataclass(frozen=True, eq=False)
class Freezing:
    """The state of freezing between two rounds. window: rounds that the moving averages span, by alpha = 1 - 1 / window."""

    chosen: TensorSet
    window: int
    threshold: float
    parts: Mapping[str, PartHistory]


def apf_start(chosen: TensorSet, window: int = 4, threshold: float = 0.05) -> Freezing:
    """Return the first state, nothing frozen. window: 4 in MetaSend's journal, §V-A; threshold: 0.05 in Chen et al."""
    return Freezing(chosen, window, threshold, _empty(chosen))


def apf_step(state: Freezing, new: Mapping[str, Numbers], previous: Mapping[str, Numbers]) -> tuple[Selection, Freezing]:
    """Return what is sent in this round, and the state after it; the round's update is new - previous.

    The caller decides whose update it is: Chen et al. take the aggregated model's, so that all sites freeze alike. Needs memory
    for a second copy of the state.
    """
    parts, offsets = _empty(state.chosen), dict.fromkeys(PARTS, 0)
    for spec in state.chosen.specs:
        end, start, first = np.ravel(new[spec.name]), np.ravel(previous[spec.name]), offsets[spec.part]
        for cut in cuts(end.size):
            place = slice(first + cut.start, first + cut.stop)
            _judge(state, state.parts[spec.part], parts[spec.part], place, end[cut] - start[cut])
        offsets[spec.part] += end.size
    sent = Selection(state.chosen, numbers={part: history.rounds_left == 0 for part, history in state.parts.items()})
    frozen = sum(int(np.count_nonzero(history.rounds_left)) for history in parts.values())
    tighten = frozen >= FROZEN_TO_TIGHTEN * state.chosen.num_parameters
    return sent, Freezing(state.chosen, state.window, state.threshold / 2 if tighten else state.threshold, parts)


def _judge(state: Freezing, before: PartHistory, after: PartHistory, place: slice, update: Numbers) -> None:
    """Advance one block of a part by a round: a number that was sent is judged, a frozen one has a round less to wait."""
    alpha, threshold = np.float32(1 - 1 / state.window), np.float32(state.threshold)
    sent = before.rounds_left[place] == 0
    mean, magnitude, period = before.update_mean[place], before.magnitude_mean[place], before.period[place]
    mean = np.where(sent, alpha * mean + (1 - alpha) * update, mean)
    magnitude = np.where(sent, alpha * magnitude + (1 - alpha) * np.abs(update), magnitude)
    stable = np.abs(mean) <= threshold * magnitude  # no quotient, so that 0 / 0 is stable, too
    judged = np.where(stable, np.minimum(period, _LONGEST - 1) + 1, period // 2)
    after.update_mean[place], after.magnitude_mean[place] = mean, magnitude
    after.period[place] = np.where(sent, judged, period)
    after.rounds_left[place] = np.where(sent, judged, before.rounds_left[place] - 1)


def to_arrays(state: Freezing) -> Tensors:
    """Return the state as named arrays for a file: `<part>.<field>`, and `settings` with window and threshold."""
    arrays = {f"{part}.{what}": getattr(history, what) for part, history in state.parts.items() for what in _HISTORY}
    return arrays | {_SETTINGS: np.array([state.window, state.threshold], np.float64)}


def from_arrays(arrays: Mapping[str, Numbers], chosen: TensorSet) -> Freezing:
    """Return the state that `to_arrays` wrote; raise RunError for arrays that do not fit this tensor set."""
    wanted: dict[str, _Form] = {_SETTINGS: (np.dtype(np.float64), (2,))}
    for part, size in part_sizes(chosen).items():
        wanted |= {f"{part}.{what}": (np.dtype(dtype), (size,)) for what, dtype in _HISTORY.items()}
    got = {name: (array.dtype, array.shape) for name, array in arrays.items()}
    if wrong := sorted(name for name in {*got, *wanted} if got.get(name) != wanted.get(name)):
        raise RunError(
            f"the state of adaptive freezing has {wrong[0]!r} as {_told(got, wrong[0])}; wanted {_told(wanted, wrong[0])}: "
            "it is of another tensor set"
        )
    parts = {part: PartHistory(**{what: arrays[f"{part}.{what}"] for what in _HISTORY}) for part in part_sizes(chosen)}
    return Freezing(chosen, int(arrays[_SETTINGS][0]), float(arrays[_SETTINGS][1]), parts)


def _told(forms: Mapping[str, _Form], name: str) -> str:
    return "{} of shape {}".format(*forms[name]) if name in forms else "nothing"


def _empty(chosen: TensorSet) -> dict[str, PartHistory]:
    return {
        part: PartHistory(**{what: np.zeros(size, dtype) for what, dtype in _HISTORY.items()})
        for part, size in part_sizes(chosen).items()
    }
