"""Perplexity and accuracy of masked pieces as sums that add up over sites: no text has to travel (Manoel et al. 2022, §2.1, app. A.1)."""

import math
from dataclasses import dataclass
from statistics import fmean, stdev

PARTS = 4
"""Of a text, for a mean and a standard deviation: appendix A.1, table 7."""


@dataclass(frozen=True)
class MaskedScores:
    """Of one text: sentences; and for each of its parts the sum of minus the log probabilities of masked pieces (nats), how many there
    were, and how many of them were guessed. A part may be empty. masks: 48 bits of what was shown and asked.
    """

    sentences: int
    nll: tuple[float, ...]
    tokens: tuple[int, ...]
    correct: tuple[int, ...]
    masks: int

    def record(self) -> dict[str, int | float | list[int] | list[float]]:
        """As a MetricRecord holds them."""
        return {
            "sentences": self.sentences,
            "nll": list(self.nll),
            "tokens": list(self.tokens),
            "correct": list(self.correct),
            "masks": self.masks,
        }

    def __add__(self, other: "MaskedScores") -> "MaskedScores":
        return MaskedScores(
            self.sentences + other.sentences,
            tuple(a + b for a, b in zip(self.nll, other.nll, strict=True)),
            tuple(a + b for a, b in zip(self.tokens, other.tokens, strict=True)),
            tuple(a + b for a, b in zip(self.correct, other.correct, strict=True)),
            self.masks ^ other.masks,
        )


def perplexity(scores: MaskedScores) -> float:
    """exp of the mean nll a masked piece, over the whole text."""
    return math.exp(sum(scores.nll) / sum(scores.tokens))


def accuracy(scores: MaskedScores) -> float:
    """Share of the masked pieces that were guessed, 0-1."""
    return sum(scores.correct) / sum(scores.tokens)


def split_perplexity(scores: MaskedScores) -> tuple[float, float]:
    """(mean, sample standard deviation) of the perplexities of the parts, as in table 7; of one part the deviation is 0."""
    values = [math.exp(nll / tokens) for nll, tokens in zip(scores.nll, scores.tokens, strict=True) if tokens]
    return fmean(values), stdev(values) if len(values) > 1 else 0.0
