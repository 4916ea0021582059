"""Choose which model a site keeps: the best on its dev text, if it is shown to be better than what the site can have without a federation.

Every comparison is paired: both models are measured on the same sentences, which a bootstrap resamples (Koehn 2004).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Self

import numpy as np

from fedlingua.evaluation.bootstrap import Numbers, draws, resampled, resampled_sums
from fedlingua.evaluation.text_metrics import TEXT_METRICS, Counts

BASE, ALONE, FEDERATION, OWN = "base", "alone", "federation", "own"
OWN_FEDERATION, OWN_ALONE, FEDERATION_ALONE, LAST_ROUNDS = "own+federation", "own+alone", "federation+alone", "last rounds"
BY_PART = " by part"
ENSEMBLE, ALONE_ENSEMBLE, SECOND_ALONE = "ensemble", "alone ensemble", "second alone"
WITH_ALONE = (OWN_ALONE, OWN_ALONE + BY_PART, FEDERATION_ALONE, FEDERATION_ALONE + BY_PART)
MIXED = (OWN_FEDERATION, OWN_FEDERATION + BY_PART, *WITH_ALONE)
WITHOUT = (BASE, ALONE, ALONE_ENSEMBLE)
"""What a site can have without the federation; the best of these by dev is the reference of every gain."""
CANDIDATES = (BASE, ALONE, FEDERATION, OWN, *MIXED, LAST_ROUNDS, ENSEMBLE, ALONE_ENSEMBLE)
"""The models that a site chooses among. base: The published backbone. alone: Trained on the site's text alone. own: Trained further from
"federation" or "last rounds", whichever has the lower dev loss. own+...: Interpolations of own with the model that it started from or
with alone, by one alpha for all tensors or one per part; federation+alone: the same where no pass made own better. last rounds: The mean
of the federation's model and of those received before it in the last rounds. ensemble: Two of the others, one of them alone, whose
probabilities are averaged. alone ensemble: The same of alone and of a second model that was trained like it with other draws; only made
where a site would keep an ensemble, so that two models are compared with two."""
SHARES = tuple(tenth / 10 for tenth in range(1, 10))
"""The shares of an ensemble's second model among which the dev loss decides."""
LEAST_SENTENCES = 30
"""Fewest dev sentences (masked text: sequences) for a choice. Between equally good models a 95 % bootstrap interval should lie above 0
in 2.5 % of cases; in simulation (test_choice.py) it does in up to 8 % with 5 sentences, 6 % with 10 and 4 % with 30."""
CONFIDENCE = 0.95
"""Confidence level of the intervals of gains, by paired bootstrap over dev sentences; the usual one."""
MOST_TRANSLATED = 2
"""The most candidates that translate the dev text under "both", by lowest loss: each translation takes as long as half a pass."""
CRITERIA = {"loss": ("loss",), "chrf": ("chrf",), "both": ("loss", "chrf")}
"""Value of `keep.by` -> criteria: by the first, candidates must show a gain and are ranked; by the others, they must not show a loss."""


_drawn = lru_cache(maxsize=1)(draws)
"""The samples, 1,000 x sentences numbers. A choice compares results on one text."""


@dataclass(frozen=True, eq=False)
class DevResult:
    """A model's results on the dev text.

    Attributes:
        nll, tokens: Nats and predicted tokens of each sentence or sequence, (sentences,).
        chrf: The chrF counts of each translated sentence, (sentences, 18); None if nothing was translated.
        of_tokens: Nats of each sentence's tokens, (tokens,), from which ensembles are computed.
    """

    nll: Numbers
    tokens: Numbers
    chrf: Counts | None = None
    of_tokens: Sequence[Numbers] = ()

    @classmethod
    def of(cls, nlls: Sequence[Numbers]) -> Self:
        """Return the results of each sentence's nats per token, (tokens,)."""
        sums, tokens = np.array([each.sum() for each in nlls]), np.array([float(len(each)) for each in nlls])
        return cls(sums, tokens, of_tokens=nlls)

    @property
    def loss(self) -> float:
        """The dev loss in nats per token."""
        return float(self.nll.sum() / self.tokens.sum())

    def value(self, criterion: str) -> float:
        """Return the result by a criterion: higher is better, -inf if it was not measured."""
        if criterion == "loss":
            return -self.loss
        return -np.inf if self.chrf is None else TEXT_METRICS["chrf"].of(self.chrf)

    def samples(self, criterion: str) -> Numbers:
        """Return the result by a criterion on each bootstrap sample, (samples,)."""
        return self._loss_samples if criterion == "loss" else self._chrf_samples

    @cached_property
    def _loss_samples(self) -> Numbers:
        drawn = _drawn(len(self.nll))
        return -resampled_sums(self.nll, drawn) / resampled_sums(self.tokens, drawn)

    @cached_property
    def _chrf_samples(self) -> Numbers:
        assert self.chrf is not None, "worth_translating says what is compared"
        return resampled(self.chrf, TEXT_METRICS["chrf"].score, _drawn(len(self.chrf)))


def averaged(first: DevResult, second: DevResult, share: float) -> DevResult:
    """Return an ensemble's results from its models'. share: The second model's share of the mean of both models' probabilities."""
    pairs = zip(first.of_tokens, second.of_tokens, strict=True)
    return DevResult.of([-np.logaddexp(math.log1p(-share) - one, math.log(share) - other) for one, other in pairs])


@dataclass(frozen=True)
class Gain:
    """The gain of one model over another. low, high: Bounds of its confidence interval."""

    value: float
    low: float
    high: float


def gain(first: DevResult, second: DevResult, criterion: str) -> Gain:
    """Return the second model's gain over the first on the same sentences, in nats per token or chrF points."""
    differences = second.samples(criterion) - first.samples(criterion)
    return interval(second.value(criterion) - first.value(criterion), differences)


def interval(value: float, differences: Numbers) -> Gain:
    """Return a difference with the central interval that holds the share `CONFIDENCE` of its bootstrap samples."""
    ordered = np.sort(differences)
    cut = round(len(ordered) * (1 - CONFIDENCE) / 2)
    return Gain(value, float(ordered[cut]), float(ordered[-cut - 1]))


def gain_on_test(candidate: str, reference: str, samples: Mapping[str, Numbers]) -> tuple[float, float]:
    """Return the 95 % interval of a candidate's gain over the reference on the test text.

    samples: Candidate -> its scores on the bootstrap samples, higher is better.
    """
    ends = interval(0.0, samples[candidate] - samples[reference])
    return ends.low, ends.high


@dataclass(frozen=True)
class Choice:
    """A choice. reference: The best of `WITHOUT`. gains: Candidate -> criterion -> gain over the reference."""

    candidate: str
    reference: str
    gains: Mapping[str, Mapping[str, Gain]] = field(default_factory=dict)


def better_without(dev: Mapping[str, DevResult], by: str) -> str:
    """Return the best of `WITHOUT` that is there, by the first criterion; on a tie the first."""
    return max((name for name in WITHOUT if name in dev), key=lambda name: dev[name].value(CRITERIA[by][0]))


def worth_translating(dev: Mapping[str, DevResult], by: str) -> list[str]:
    """Return the candidates whose chrF the choice can depend on; only these need to translate the dev text."""
    if by == "loss":
        return []
    others = [name for name in dev if name not in WITHOUT]
    references = [name for name in WITHOUT if name in dev]
    if by != "chrf":
        references = [better_without(dev, by)]
        others = [name for name in others if gain(dev[references[0]], dev[name], "loss").low > 0]
        others = sorted(others, key=lambda name: dev[name].loss)[:MOST_TRANSLATED]
    return [*references, *others] if others else []


def next_to_translate(dev: Mapping[str, DevResult], by: str) -> str:
    """Return the next candidate that should translate the dev text; "" once no further translation can change the choice.

    Under "both" the candidates translate in order of their loss, and the first that chrF does not refute is chosen.
    """
    if by == "both" and choose(dev, by).candidate not in WITHOUT:
        return ""
    return next((name for name in worth_translating(dev, by) if dev[name].chrf is None), "")


def choose(dev: Mapping[str, DevResult], by: str) -> Choice:
    """Choose the best candidate that shows a gain over the better of base and alone; if none does, keep the better of these two.

    Under "both" the loss must show the gain, and a candidate that chrF shows to be worse is refused: a hundred sentences seldom show a
    gain of two chrF points, but their loss, over thousands of tokens, shows smaller gains. With fewer than LEAST_SENTENCES the better
    of base and alone by loss is kept. dev: Candidate -> results, including the base's. by: A key of CRITERIA.
    """
    measured = {name: each for name, each in dev.items() if by == "loss" or each.chrf is not None}
    if len(dev[BASE].nll) < LEAST_SENTENCES or not measured:
        reference = better_without(dev, "loss")
        return Choice(reference, reference)
    reference = better_without(measured, by)
    gains = {name: gains_over(measured[reference], each, by) for name, each in measured.items() if name not in WITHOUT}
    shown = [name for name in gains if is_shown(gains[name])]
    first = CRITERIA[by][0]
    return Choice(max(shown, key=lambda name: gains[name][first].value, default=reference), reference, gains)


def gains_over(first: DevResult, second: DevResult, by: str) -> dict[str, Gain]:
    """Return the second model's gain over the first by each criterion of `by`."""
    return {criterion: gain(first, second, criterion) for criterion in CRITERIA[by]}


def is_shown(gains: Mapping[str, Gain]) -> bool:
    """Return whether the first criterion shows a gain, and no other a loss."""
    first, *others = gains.values()
    return first.low > 0 and all(other.high >= 0 for other in others)
