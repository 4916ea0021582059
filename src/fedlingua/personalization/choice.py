"""Which of several models a site keeps: the best on its dev text, if that text shows that it is better than working alone.

Every comparison is paired: both models read the same sentences, and a bootstrap draws sentences (Koehn 2004).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property

import numpy as np

from fedlingua.evaluation.bootstrap import Numbers, draws, resampled
from fedlingua.evaluation.text_metrics import TEXT_METRICS, Counts

BASE, ALONE, FEDERATION, OWN = "base", "alone", "federation", "own"
OWN_FEDERATION, OWN_ALONE, BY_PART, LAST_ROUNDS = "own+federation", "own+alone", " by part", "last rounds"
CANDIDATES = (
    *(BASE, ALONE, FEDERATION, OWN, OWN_FEDERATION, OWN_ALONE),
    *(OWN_FEDERATION + BY_PART, OWN_ALONE + BY_PART, LAST_ROUNDS),
)
"""Names of what a site chooses among: the published backbone; trained from it on the site's text alone; the federation's; that, or the
mean of what the site received in the last rounds where its dev loss is less, trained on; two interpolations, of it with what it was trained
from and with alone, each with one alpha for all tensors or one for each part; that mean.
"""
LEAST_SENTENCES = 30
"""Dev sentences, of masked text sequences, from which on a choice is made. A 95 % bootstrap interval should lie above 0 for
2.5 % of equally good models; simulated (test_choice.py) it does for up to 8 % with 5 sentences, 6 % with 10 and 4 % with 30.
"""
MOST_TRANSLATED = 2
"""Candidates that the dev text is translated with under "both", those with the least loss: one takes as long as half a pass."""
CRITERIA = {"loss": ("loss",), "chrf": ("chrf",), "both": ("loss", "chrf")}
"""Value of `keep.by` -> what models are compared by; the first finds the best and has to show that it is better, others may object."""


_drawn = cache(draws)


@dataclass(frozen=True, eq=False)
class DevResult:
    """A model's results on the dev text.

    nll, tokens: of each sentence or sequence, (sentences,), nats and predicted tokens. chrf: counts of each translated sentence,
    (sentences, 18); None where nothing was translated.
    """

    nll: Numbers
    tokens: Numbers
    chrf: Counts | None = None

    @property
    def loss(self) -> float:
        """Nats a token."""
        return float(self.nll.sum() / self.tokens.sum())

    def value(self, criterion: str) -> float:
        """By a criterion, more is better; -inf where it was not measured."""
        if criterion == "loss":
            return -self.loss
        return -np.inf if self.chrf is None else TEXT_METRICS["chrf"].of(self.chrf)

    def samples(self, criterion: str) -> Numbers:
        """The value of each bootstrap sample, (samples,)."""
        return self._loss_samples if criterion == "loss" else self._chrf_samples

    @cached_property
    def _loss_samples(self) -> Numbers:
        drawn = _drawn(len(self.nll))
        return -(drawn @ self.nll) / (drawn @ self.tokens)

    @cached_property
    def _chrf_samples(self) -> Numbers:
        assert self.chrf is not None, "worth_translating says what is compared"
        return resampled(self.chrf, TEXT_METRICS["chrf"].score, _drawn(len(self.chrf)))


@dataclass(frozen=True)
class Gain:
    """By how much one model is better than another. low, high: bounds of its confidence interval."""

    value: float
    low: float
    high: float


def gain(first: DevResult, second: DevResult, criterion: str, confidence: float) -> Gain:
    """The second's gain over the first on the same sentences, in nats a token or chrF points."""
    return interval(
        second.value(criterion) - first.value(criterion), second.samples(criterion) - first.samples(criterion), confidence
    )


def interval(value: float, differences: Numbers, confidence: float = 0.95) -> Gain:
    """A difference with the interval that holds `confidence` of its bootstrap samples, cut alike at both ends."""
    ordered = np.sort(differences)
    cut = round(len(ordered) * (1 - confidence) / 2)
    return Gain(value, float(ordered[cut]), float(ordered[-cut - 1]))


def gains_on_test(
    candidate: str, values: Mapping[str, float], samples: Mapping[str, Numbers]
) -> list[tuple[float, float] | None]:
    """95 % intervals of the gain of a candidate over the better of base and alone, and over alone (None without it); more is better.

    values: candidate -> score on the test text; samples: candidate -> of each bootstrap sample.
    """
    better = max((name for name in (BASE, ALONE) if name in values), key=values.__getitem__)
    gains = [interval(0.0, samples[candidate] - samples[name]) if name in samples else None for name in (better, ALONE)]
    return [None if each is None else (each.low, each.high) for each in gains]


@dataclass(frozen=True)
class Choice:
    """candidate: what is kept. reference: the better of base and alone. gains: candidate -> criterion -> gain over the reference."""

    candidate: str
    reference: str
    gains: Mapping[str, Mapping[str, Gain]] = field(default_factory=dict)


def better_without(dev: Mapping[str, DevResult], by: str) -> str:
    """The better of base and alone, as far as they are there; of equal ones the base."""
    return max((name for name in (BASE, ALONE) if name in dev), key=lambda name: dev[name].value(CRITERIA[by][0]))


def worth_translating(dev: Mapping[str, DevResult], by: str, confidence: float) -> list[str]:
    """The candidates whose chrF the choice can depend on; the others need not be translated with."""
    if by == "loss":
        return []
    others = [name for name in dev if name not in (BASE, ALONE)]
    references = [name for name in (BASE, ALONE) if name in dev]
    if by == "both":
        references = [better_without(dev, by)]
        others = [name for name in others if gain(dev[references[0]], dev[name], "loss", confidence).low > 0]
        others = sorted(others, key=lambda name: dev[name].loss)[:MOST_TRANSLATED]
    return [*references, *others] if others else []


def choose(dev: Mapping[str, DevResult], by: str, confidence: float) -> Choice:
    """Take the best candidate only if it is shown to be better than the better of base and alone.

    dev: candidate -> results, the base's among them. by: a key of CRITERIA. Under "both" the loss has to show it, and what chrF shows to
    be worse is no candidate: a hundred sentences seldom show a gain of two points, which the loss, of thousands of tokens, does
    (results/real/grid.md). With fewer than LEAST_SENTENCES no choice is made: the better of base and alone by loss is kept.
    """
    first, *others = CRITERIA[by]
    measured = {name: each for name, each in dev.items() if by == "loss" or each.chrf is not None}
    if len(dev[BASE].nll) < LEAST_SENTENCES or not measured:
        reference = better_without(dev, "loss")
        return Choice(reference, reference)
    reference = better_without(measured, by)
    gains = {
        name: {criterion: gain(measured[reference], each, criterion, confidence) for criterion in CRITERIA[by]}
        for name, each in measured.items()
        if name not in (BASE, ALONE)
    }
    shown = [name for name in gains if gains[name][first].low > 0 and all(gains[name][other].high > 0 for other in others)]
    return Choice(max(shown, key=lambda name: gains[name][first].value, default=reference), reference, gains)
