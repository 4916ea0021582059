"""Chooses which of several models a site keeps: the best on its dev text, if that shows it to be better than working alone.

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
"""The models that a site chooses among: the published backbone; that trained on the site's text alone; the federation's; own,
trained on from the federation's or from "last rounds", whichever has less dev loss; interpolations of own with what it was
trained from and with alone, by one alpha for all tensors or one a part; the mean of what the site received in the last rounds.
"""
LEAST_SENTENCES = 30
"""Fewest dev sentences (masked text: sequences) with which a choice is made. A 95 % bootstrap interval should lie above 0 for
2.5 % of equally good models; simulated (test_choice.py) it does for up to 8 % with 5 sentences, 6 % with 10 and 4 % with 30.
"""
MOST_TRANSLATED = 2
"""Under "both", how many candidates translate the dev text, those with the least loss: one takes as long as half a pass."""
CRITERIA = {"loss": ("loss",), "chrf": ("chrf",), "both": ("loss", "chrf")}
"""Value of `keep.by` -> criteria: the first ranks the candidates and must show a gain, the others must not show a loss."""


_drawn = cache(draws)


@dataclass(frozen=True, eq=False)
class DevResult:
    """A model's results on the dev text.

    nll, tokens: nats and predicted tokens of each sentence or sequence, (sentences,). chrf: counts of each translated sentence,
    (sentences, 18); None if nothing was translated.
    """

    nll: Numbers
    tokens: Numbers
    chrf: Counts | None = None

    @property
    def loss(self) -> float:
        """The dev loss in nats a token."""
        return float(self.nll.sum() / self.tokens.sum())

    def value(self, criterion: str) -> float:
        """Return the result by a criterion: more is better, -inf if it was not measured."""
        if criterion == "loss":
            return -self.loss
        return -np.inf if self.chrf is None else TEXT_METRICS["chrf"].of(self.chrf)

    def samples(self, criterion: str) -> Numbers:
        """Return the value by a criterion of each bootstrap sample, (samples,)."""
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
    """The gain of one model over another. low, high: bounds of its confidence interval."""

    value: float
    low: float
    high: float


def gain(first: DevResult, second: DevResult, criterion: str, confidence: float) -> Gain:
    """Return the second's gain over the first on the same sentences, in nats a token or chrF points."""
    return interval(
        second.value(criterion) - first.value(criterion), second.samples(criterion) - first.samples(criterion), confidence
    )


def interval(value: float, differences: Numbers, confidence: float = 0.95) -> Gain:
    """Return a difference with the interval that holds `confidence` of its bootstrap samples, cut equally at both ends."""
    ordered = np.sort(differences)
    cut = round(len(ordered) * (1 - confidence) / 2)
    return Gain(value, float(ordered[cut]), float(ordered[-cut - 1]))


def gains_on_test(
    candidate: str, values: Mapping[str, float], samples: Mapping[str, Numbers]
) -> list[tuple[float, float] | None]:
    """Return 95 % intervals of a candidate's gain over the better of base and alone, and over alone (None without it).

    values: candidate -> score on the test text, more is better; samples: candidate -> score of each bootstrap sample.
    """
    better = max((name for name in (BASE, ALONE) if name in values), key=values.__getitem__)
    gains = [interval(0.0, samples[candidate] - samples[name]) if name in samples else None for name in (better, ALONE)]
    return [None if each is None else (each.low, each.high) for each in gains]


@dataclass(frozen=True)
class Choice:
    """A choice. candidate: the kept one; reference: better of base and alone; gains: candidate -> criterion -> gain over it."""

    candidate: str
    reference: str
    gains: Mapping[str, Mapping[str, Gain]] = field(default_factory=dict)


def better_without(dev: Mapping[str, DevResult], by: str) -> str:
    """Return the better of base and alone, or the only one present; on a tie the base."""
    return max((name for name in (BASE, ALONE) if name in dev), key=lambda name: dev[name].value(CRITERIA[by][0]))


def worth_translating(dev: Mapping[str, DevResult], by: str, confidence: float) -> list[str]:
    """Return the candidates whose chrF the choice can depend on; only these need to translate the dev text."""
    if by == "loss":
        return []
    others = [name for name in dev if name not in (BASE, ALONE)]
    references = [name for name in (BASE, ALONE) if name in dev]
    if by == "both":
        references = [better_without(dev, by)]
        others = [name for name in others if gain(dev[references[0]], dev[name], "loss", confidence).low > 0]
        others = sorted(others, key=lambda name: dev[name].loss)[:MOST_TRANSLATED]
    return [*references, *others] if others else []


def next_to_translate(dev: Mapping[str, DevResult], by: str, confidence: float) -> str:
    """Return the next of these candidates to translate with; "" once no other translation can change the choice.

    Under "both" they are asked in the order of their loss, and the first that chrF does not refute is chosen.
    """
    if by == "both" and choose(dev, by, confidence).candidate not in (BASE, ALONE):
        return ""
    return next((name for name in worth_translating(dev, by, confidence) if dev[name].chrf is None), "")


def choose(dev: Mapping[str, DevResult], by: str, confidence: float) -> Choice:
    """Choose the best candidate that is shown to be better than the better of base and alone; without one, keep the latter.

    dev: candidate -> results, including the base's. by: a key of CRITERIA. Under "both" the loss must show the gain, and what
    chrF shows to be worse is no candidate: a hundred sentences seldom show a gain of two points, but the loss over thousands of
    tokens does (results/real/grid.md). With fewer than LEAST_SENTENCES the better of base and alone by loss is kept.
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
