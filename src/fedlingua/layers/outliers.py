"""Check an update's length against what an honest site can have made, and against the length that the other sites' updates suggest.

`change` is the root mean square of an update's changes, over the numbers that it sends: of the whole update, or of one tensor.

- Reach. In its step t a new Adam moves a number by at most rate x c_t (`adam_bounds`), so a site moves no number further than the sum
  of these bounds over its steps. An update that exceeds it is left out, whatever the others sent.
- Growth. Under Adam, change = rate x steps^e. If all steps go one way, e is 1; if they are a random walk, e is 1/2. e depends on the run,
  its text and its rate, and falls a little with more steps: from 0.60 to 0.47 at sites of 100 to 3,000 sentences in one run, within
  0.75 to 0.82 in another. So the upper median of the others' e says how much a site should change in its own steps. SGD has no such
  scale. There the others' changes are multiplied by (steps / their steps)^e, with e = 1 for a site that takes more steps than the
  other and e = 1/2 for one that takes fewer, because this allows more.
- Verdict. An update longer than `robust.max-ratio` times what is expected is left out. One longer than CLIP times that bound is
  scaled down to CLIP times it.

Measured over federations and methods of the committed suites, at sites of 30 to 3,000 sentences (adapters, LoRA, controllers, full models,
selections): honest updates changed 0.3 to 1.46 times what was expected, 1.4 times at most under Adam; updates with the sign flipped,
times 5, changed 2.6 to 4.8 times that. Honest tensors changed at most 1.7 times what was expected, but in models of random weights up to
rate x steps; under SGD 3.9 times, and those that hardly move 9 times.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.measured_change import Change
from fedlingua.settings.config import Settings
from fedlingua.settings.schedules import rate_share

CLIP = 0.8
"""Share of robust.max-ratio to which an update is scaled down."""
TENSORS = {True: 1.25, False: 2.65}
"""Largest ratio of a single tensor, as a multiple of robust.max-ratio: under Adam (True) and under SGD (False)."""
FURTHER = 1.3
"""How many times wider the bounds are for a site whose number of steps is more than twice, or less than half, that of every other, because
what is expected of it is a guess: honest ones of 300 sentences changed 1.83 times that beside 30 and 60, and beside 30, 60 and 3,000."""
SHORT = 0.05
"""Least share of its expected change by which an update may change the tensors: honest ones changed 0.29 times that at least."""
OPPOSING = 1.25
"""Under Adam, the multiple of its expected change to which an update that opposes the others is scaled down; honest ones of sites of about
one size changed 1.21 times that at most."""
STRAIGHT = 2.0
"""Under Adam a single tensor may always change by this times rate x steps: where gradients are as small as Adam's epsilon, a tensor
stands still at some sites and moves in one direction at others. Honest ones changed by 1.3 times that at most."""
BETA1, BETA2 = 0.9, 0.999
"""Betas of a site's Adam: torch's defaults."""
MOST_BEND = -0.06
"""Steepest slope of e by ln(steps) that is believed; -0.05 was measured."""
MOST_POINTS = 100
"""Number of sites, evenly spread in the order of their steps, from which that slope is taken: time grows with its square."""
SLACK, ROUNDING = 1.01, 2.0**-23
"""Allowance for rounding in float32: a factor for the sum of all steps, and in each step a share of the number's size."""


@dataclass(frozen=True, eq=False)
class Distance:
    """How far a site went in a round. rate: mean over its steps. change: (1 + tensors,), the whole update's first; NaN where unsent."""

    steps: int
    rate: float
    change: Numbers

    def values(self) -> dict[str, Any]:
        """Return the fields in JSON's types, with None for NaN."""
        return {**vars(self), "change": [None if math.isnan(change) else change for change in self.change.tolist()]}


@dataclass(frozen=True, eq=False)
class Verdict:
    """Verdict on an update to leave out or scale down. factors: (tensors,) share of each tensor's change that stays; None: left out."""

    reason: str
    factors: Numbers | None = None


def learning_rates(settings: Settings, number: int, steps: int) -> Numbers:
    """Return the learning rate of each of a site's steps in round `number`, by the run's schedule: (steps,)."""
    if settings.schedule == "constant" and not settings.warmup_steps:
        return np.full(steps, settings.step_learning_rate)
    places = range((number - 1) * steps, number * steps)
    shares = [rate_share(settings.schedule, place, settings.rounds * steps, settings.warmup_steps) for place in places]
    return settings.step_learning_rate * np.array(shares)


def highest_rate_before(settings: Settings, number: int, steps: int) -> float:
    """Return the highest rate of a site's steps before round `number`: the full rate once the warm-up is over; 0 in round 1."""
    return settings.step_learning_rate * min(1.0, (number - 1) * steps / max(settings.warmup_steps, 1))


def adam_bounds(steps: int) -> Numbers:
    """Return c_t of each step, (steps,): step t of a new Adam (Kingma & Ba 2015, algorithm 1) moves a number by at most rate x c_t.

    With b1, b2 its betas and q = b1^2 / b2, the inequality of Cauchy and Schwarz, over the gradients up to t, gives
        |m_t| <= (1 - b1) / sqrt(1 - b2) x sqrt((1 - q^t) / (1 - q)) x sqrt(v_t).
    c_t is that factor times the bias corrections, sqrt(1 - b2^t) / (1 - b1^t). It is 1 at t = 1, and 7.3 at most.
    """
    t, q = np.arange(1, steps + 1), BETA1**2 / BETA2
    factor: Numbers = (1 - BETA1) / math.sqrt(1 - BETA2) * np.sqrt((1 - q**t) / (1 - q))
    factor *= np.sqrt(1 - BETA2**t) / (1 - BETA1**t)
    return factor


def out_of_reach(change: Change, rates: Numbers, settings: Settings, names: Sequence[str], steps_before: int = 0) -> str | None:
    """Return why no honest site can have moved so far in steps at these rates, or None; always None under SGD without `clip-norm`.

    steps_before: The most steps that an Adam with a state from earlier rounds may have taken before, since c_t rises with t.

    SGD that clips moves a number by at most rate x clip-norm in a step. Weight decay moves it by another rate x weight-decay of its size,
    except under Adam, where decay is part of the gradient. A matrix that travels as two factors is no longer than before, but single
    numbers of it may be larger, so the bound is compared with its root mean square.
    """
    if settings.optimizer == "sgd":
        reach = float(rates.sum()) * (settings.clip_norm or math.inf)
    else:
        reach = float(rates @ adam_bounds(steps_before + len(rates))[steps_before:])
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
        f"{rates.mean():.4g} move none further than {most[worst]:.4g}; robust.max-ratio = 0 takes it all the same"
    )


def expected(steps: int, rate: float, others: Sequence[Distance], adam: bool) -> Numbers:
    """Return a site's expected change, judged by the others: (1 + tensors,); NaN or meaningless for a tensor that none sent."""
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
    opposing: Collection[str] = (),
) -> dict[str, Verdict]:
    """Return site -> verdict, for updates that are too long, or that change nothing although their sites took steps.

    If there is only one update to compare with, nobody can say which of the two is wrong, so the longer one is scaled down, not left out.
    earlier: Each site's last update that was accepted unscaled; these count if fewer than two others answered. stretch: How many times
    further than its steps a single tensor may go, because a code had left part of its change out before. opposing: The sites whose change
    opposes that of the others, which under Adam get a bound of their own.
    """
    verdicts = {}
    for site, own in distances.items():
        others = [other for name, other in distances.items() if name != site]
        others += [] if len(others) > 1 else list(earlier)
        if not others:
            continue
        wanted, sent = expected(own.steps, own.rate, others, adam), (~np.isnan([other.change for other in others])).sum(axis=0)
        longer = sum(other.change[0] > own.change[0] / SHORT for other in others)
        # Half of the sites cannot make the other half look short.
        if own.change[0] < SHORT * wanted[0] and 2 * longer > len(others) + (len(others) > 1):
            changes = f"next to nothing, {own.change[0]:.4g} (root mean square)" if own.change[0] else "nothing"
            verdicts[site] = Verdict(f"it says that it took {own.steps} steps, and changes {changes}")
            continue
        unlike = all(max(own.steps, other.steps) > 2 * min(own.steps, other.steps) for other in others)
        ratio = most_ratio * (FURTHER if unlike else 1.0)
        limits = wanted * ([ratio] + [ratio * TENSORS[adam]] * len(names))
        # Under SGD a tensor that hardly moves anywhere, such as a bias without a gradient, may change as much as the whole update.
        floor = stretch * STRAIGHT / CLIP * own.rate * own.steps if adam else limits[0]
        limits[1:] = np.maximum(limits[1:], floor)
        if adam and site in opposing:
            limits[0] = min(limits[0], OPPOSING / CLIP * wanted[0])
        compared = (sent > 1) & (wanted > 0)  # needs two that sent it, and others that changed it
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
    """Return the slope of e by ln(steps): repeated median (Siegel 1982), over pairs of sites whose steps differ by half or more."""
    logs, e = np.log(steps[np.isfinite(growth)]), growth[np.isfinite(growth)]
    if len(e) > MOST_POINTS:
        spread = np.lexsort((e, logs))[np.linspace(0, len(e) - 1, MOST_POINTS).astype(int)]
        logs, e = logs[spread], e[spread]
    apart = logs[:, None] - logs
    differ = np.abs(apart) > math.log(1.5)
    slopes = np.divide(e[:, None] - e, apart, out=np.full_like(apart, np.nan), where=differ)[differ.any(axis=1)]
    return float(np.clip(np.median(np.nanmedian(slopes, axis=1)), MOST_BEND, 0.0)) if len(slopes) else 0.0


def _upper_median(values: Numbers) -> Numbers:
    """Return each column's upper median, without NaN. With the lower one, half of the sites could make the others look too long."""
    at = np.minimum((~np.isnan(values)).sum(axis=0) // 2, len(values) - 1)
    middle: Numbers = np.take_along_axis(np.sort(values, axis=0), at[None], axis=0)[0]
    return middle
