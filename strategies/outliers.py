"""Which updates no honest site can have made, and which are longer than the other sites lead to expect of the steps behind them.

`change` is the root mean square of what an update changed over the numbers that it sends: of the whole update, or of one tensor.

- Reach. Adam made anew moves a number by at most rate x c_t in step t (`adam_bounds`), so no site moves one further than the sum over its
  steps. What did is left out, whatever others did.
- Growth. Under Adam change = rate x steps^e: e = 1 where all steps go one way, 1/2 where they go any way, a random walk. e is a
  matter of the run, its text and its rate, and falls a little as steps grow: from 0.60 to 0.47 at sites of 100 to 3,000
  sentences in one run, and 0.75 to 0.82 in another. So the upper median of the others' e says how far a site goes in its own
  steps. SGD has no scale of its own: the others' changes are taken to have grown by e = 1 up to a site's steps, and by e = 1/2
  down to them, the one or other that allows more.
- An update of more than `robust.max-ratio` times that is left out; beyond CLIP of it, it is scaled down to there.

Measured over federations and methods of the committed suites and sites of 30 to 3,000 sentences (adapters, LoRA, controllers, full models,
selections): honest updates changed 0.5 to 1.4 times what was expected, sign-flipped ones x 5 2.6 to 4.8 times that. Honest tensors
changed at most 1.7 times what was expected of them (2.5 under SGD), but in models of random weights up to rate x steps (see STRAIGHT).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from fedlingua.exchange.joined import Numbers
from fedlingua.settings.config import Settings
from fedlingua.settings.schedules import rate_share
from strategies.norms import Change

CLIP = 0.8
"""Of robust.max-ratio: where an update is scaled down to."""
TENSORS = {True: 1.25, False: 2.0}
"""A single tensor's ratio under Adam and under SGD, as a multiple of robust.max-ratio."""
STRAIGHT = 2.0
"""Of rate x steps: so far a single tensor may go under Adam wherever the others' went, since one whose gradients are as small as Adam's
epsilon stands still at some sites and goes straight on at others. Honest ones went 1.3 at most."""
BETA1, BETA2 = 0.9, 0.999
"""Of a site's Adam: torch's own."""
MOST_BEND = -0.06
"""e falls by at most so much for each e-fold of steps; it was 0.05."""
MOST_STEPS = 5000
"""After which c_t hardly rises any more."""
SLACK, ROUNDING = 1.01, 2.0**-23
"""What float32 adds to the sum of all steps; and to each of them, as a share of the number's size."""


@dataclass(frozen=True, eq=False)
class Distance:
    """How far a site went in a round. rate: mean of its steps. change: (1 + tensors,), the whole update first; NaN where unsent."""

    steps: int
    rate: float
    change: Numbers

    def values(self) -> dict[str, Any]:
        """As JSON holds it, which knows no NaN."""
        return {**vars(self), "change": [None if math.isnan(change) else change for change in self.change.tolist()]}


@dataclass(frozen=True, eq=False)
class Verdict:
    """Verdict on a changed update. factors: (tensors,) the part of each tensor's change that stays; None if left out."""

    reason: str
    factors: Numbers | None = None


def learning_rates(settings: Settings, number: int, steps: int) -> Numbers:
    """(steps,) rates of a site's steps in round `number`, by its schedule."""
    if settings.schedule == "constant" and not settings.warmup_steps:
        return np.full(steps, settings.step_learning_rate)
    places = range((number - 1) * steps, number * steps)
    shares = [rate_share(settings.schedule, place, settings.rounds * steps, settings.warmup_steps) for place in places]
    return settings.step_learning_rate * np.array(shares)


def highest_rate_before(settings: Settings, number: int, steps: int) -> float:
    """Highest rate of a site's steps before round `number`: that of the warm-up's last step, once it is over."""
    return settings.step_learning_rate * min(1.0, (number - 1) * steps / max(settings.warmup_steps, 1))


def adam_bounds(steps: int) -> Numbers:
    """(steps,) c_t: step t of Adam (Kingma & Ba 2015, algorithm 1), made anew before step 1, moves a number by at most rate x c_t.

    With b1, b2 its betas and q = b1^2 / b2, Cauchy and Schwarz give over the gradients up to t
        |m_t| <= (1 - b1) / sqrt(1 - b2) x sqrt((1 - q^t) / (1 - q)) x sqrt(v_t),
    and c_t is that factor times the bias corrections, sqrt(1 - b2^t) / (1 - b1^t): 1 at t = 1, 7.3 at most.
    """
    t, q = np.arange(1, steps + 1), BETA1**2 / BETA2
    factor: Numbers = (1 - BETA1) / math.sqrt(1 - BETA2) * np.sqrt((1 - q**t) / (1 - q))
    factor *= np.sqrt(1 - BETA2**t) / (1 - BETA1**t)
    return factor


def out_of_reach(change: Change, rates: Numbers, settings: Settings, names: Sequence[str], steps_before: int = 0) -> str | None:
    """Why no honest site can have come so far in steps at these rates; None where one can have, as always under SGD without clip-norm.

    steps_before: that an Adam which is not made anew each round may have behind it, at most: c_t rises with t.

    SGD that clips moves a number by at most rate x clip-norm in a step. Weight decay takes rate x weight-decay of it besides, but
    for that of Adam, which is part of the gradient. A matrix that travels as two factors is no longer than it was, but single numbers of
    it may be larger, so there the root mean square is held to that bound.
    """
    sgd = settings.optimizer == "sgd"
    reach = (
        float(rates.sum()) * (settings.clip_norm or math.inf)
        if sgd
        else float(rates @ adam_bounds(steps_before + len(rates))[steps_before:])
    )
    decay = 0.0 if settings.optimizer == "adam" else float(rates.sum()) * settings.weight_decay
    most = SLACK * reach + (decay + len(rates) * ROUNDING) * (change.sizes + reach)
    in_factors = settings.code_up.method == "rank"
    moved = np.nan_to_num(change.rms[1:]) if in_factors else change.largest
    worst = int((moved - most).argmax())
    if moved[worst] <= most[worst]:
        return None
    what = f"the numbers of {names[worst]} by {{}} (root mean square)" if in_factors else f"a number of {names[worst]} by {{}}"
    return (
        f"it moves {what.format(f'{moved[worst]:.4g}')}, and {len(rates)} steps of {settings.optimizer} at a rate of "
        f"{rates.mean():.4g} move none further than {most[worst]:.4g}"
    )


def expected(steps: int, rate: float, others: Sequence[Distance], adam: bool) -> Numbers:
    """(1 + tensors,) change that the others lead to expect of a site; not a number, or of no use, where none of them sent."""
    changes = np.array([other.change for other in others])
    theirs = np.array([[float(other.steps)] for other in others])
    if not adam:
        return _upper_median(changes * (steps / theirs) ** np.where(steps > theirs, 1.0, 0.5))
    with np.errstate(divide="ignore", invalid="ignore"):
        growth: Numbers = np.log(changes / [[other.rate] for other in others]) / np.log(theirs)
    growth[theirs[:, 0] == 1] = np.nan  # a single step goes one way, whatever the run
    growth[:, 0] += _bend(theirs[:, 0], growth[:, 0]) * np.log(steps / theirs[:, 0])  # single tensors bend either way
    line: Numbers = rate * steps ** np.clip(np.nan_to_num(_upper_median(growth), nan=1.0), 0.5, 1.0)
    return line


def judge(
    distances: Mapping[str, Distance],
    earlier: Iterable[Distance],
    adam: bool,
    most_ratio: float,
    names: Sequence[str],
    stretch: float = 1.0,
) -> dict[str, Verdict]:
    """site -> verdict, of updates that are longer than they should be, or say that they took steps and change nothing.

    earlier: of each site the last that was taken whole, which count where fewer than two others answered. Where there is but one to compare
    with, nobody can say which of the two is the odd one: then what is too long is scaled down, not left out. names: of the tensors.
    stretch: by how much further than its steps a single tensor may go, since a code had left some of it out before.
    """
    verdicts = {}
    for site, own in distances.items():
        others = [other for name, other in distances.items() if name != site]
        others += [] if len(others) > 1 else list(earlier)
        if not others:
            continue
        wanted, sent = expected(own.steps, own.rate, others, adam), (~np.isnan([other.change for other in others])).sum(axis=0)
        if own.change[0] == 0 and median(other.change[0] for other in others) > 0:
            verdicts[site] = Verdict(f"it says that it took {own.steps} steps, and changes nothing")
            continue
        limits = wanted * ([most_ratio] + [most_ratio * TENSORS[adam]] * len(names))
        if adam:
            limits[1:] = np.maximum(limits[1:], stretch * STRAIGHT / CLIP * own.rate * own.steps)
        compared = (sent > 1) & (wanted > 0)  # where the others changed nothing, there is nothing to compare with
        compared[0] |= len(others) == 1 and wanted[0] > 0
        over = np.divide(own.change, limits, out=np.zeros_like(wanted), where=compared & (own.change > 0))
        limit = CLIP if len(others) > 1 else 1.0
        if over.max() > limit:
            worst = 0 if over[0] > limit else int(over.argmax())
            what = names[worst - 1] if worst else "what it sends"
            reason = (
                f"it changes {what} by {own.change[worst]:.4g} (root mean square) in {own.steps} steps, where the other sites lead to "
                f"expect {wanted[worst]:.4g}; up to {limit * limits[worst]:.4g} is taken (robust.max-ratio = {most_ratio:g})"
            )
            scales = np.minimum(1.0, limit / np.maximum(over[1:], max(over[0], limit)))
            verdicts[site] = Verdict(reason, scales if over.max() <= 1 or len(others) == 1 else None)
    return verdicts


def _bend(steps: Numbers, growth: Numbers) -> float:
    """How e falls with the logarithm of the steps: repeated median (Siegel 1982), over sites whose steps differ by half or more."""
    points = [(math.log(count), e) for count, e in zip(steps.tolist(), growth.tolist(), strict=True) if math.isfinite(e)]
    slopes = [[(e - f) / (x - y) for y, f in points if abs(x - y) > math.log(1.5)] for x, e in points]
    return float(np.clip(median([median(of_one) for of_one in slopes if of_one] or [0.0]), MOST_BEND, 0.0))


def _upper_median(values: Numbers) -> Numbers:
    """Of each column, of what is a number in it. The upper one keeps half of the sites from making the other half look long."""
    at = np.minimum((~np.isnan(values)).sum(axis=0) // 2, len(values) - 1)
    middle: Numbers = np.take_along_axis(np.sort(values, axis=0), at[None], axis=0)[0]
    return middle
