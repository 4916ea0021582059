"""Perplexity and accuracy of masked pieces, from sums over sites; no text travels (Manoel et al. 2022, §2.1, app. A.1)."""

import math
from dataclasses import dataclass
from statistics import fmean, stdev

PARTS = 4
"""Parts of a text, for a mean and a standard deviation: appendix A.1, table 7."""


@dataclass(frozen=True)
class MaskedScores:
    """The sums of one text. nll, tokens, correct: for each part, which may be empty, the negative log-likelihood of its masked
    pieces (nats), their number, and the number of correct guesses. masks: 48 bits of a hash of the masked text and its targets.
    """

    sentences: int
    nll: tuple[float, ...]
    tokens: tuple[int, ...]
    correct: tuple[int, ...]
    masks: int

    def record(self) -> dict[str, int | float | list[int] | list[float]]:
        """Return the content of a MetricRecord."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}

    def __add__(self, other: "MaskedScores") -> "MaskedScores":
        return MaskedScores(
            self.sentences + other.sentences,
            tuple(a + b for a, b in zip(self.nll, other.nll, strict=True)),
            tuple(a + b for a, b in zip(self.tokens, other.tokens, strict=True)),
            tuple(a + b for a, b in zip(self.correct, other.correct, strict=True)),
            self.masks ^ other.masks,
        )


@dataclass(frozen=True)
class SequenceScores:
    """The sums of each sequence of one text, (sequences,), and its masks: see MaskedScores."""

    nll: list[float]
    tokens: list[int]
    correct: list[int]
    masks: int

    def summed(self, sentences: int) -> MaskedScores:
        """Return the text's sums. Sequence i belongs to part i mod 4, so that each part is spread over the text."""
        parts = [slice(part, None, PARTS) for part in range(PARTS)]
        return MaskedScores(
            sentences,
            tuple(math.fsum(self.nll[part]) for part in parts),
            tuple(sum(self.tokens[part]) for part in parts),
            tuple(sum(self.correct[part]) for part in parts),
            self.masks,
        )


def perplexity(scores: MaskedScores) -> float:
    """Return the perplexity of the whole text: exp of the mean nll of a masked piece."""
    return math.exp(sum(scores.nll) / sum(scores.tokens))


def accuracy(scores: MaskedScores) -> float:
    """Return the share of masked pieces that were guessed correctly, 0-1."""
    return sum(scores.correct) / sum(scores.tokens)


def split_perplexity(scores: MaskedScores) -> tuple[float, float]:
    """Return (mean, sample standard deviation) of the parts' perplexities, as in table 7; for a single part the deviation is 0."""
    values = [math.exp(nll / tokens) for nll, tokens in zip(scores.nll, scores.tokens, strict=True) if tokens]
    return fmean(values), stdev(values) if len(values) > 1 else 0.0
