"""What can be read from an update, as pure functions: membership, words, tokens and sentences by subspace, exposure of canaries."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import mannwhitneyu, norm
from sklearn.metrics import roc_auc_score

Numbers = np.ndarray[Any, Any]


def step_of(gradient: Numbers, optimizer: str) -> Numbers:
    """Return the direction of an optimizer's first step on a gradient, (d,): Adam divides each number by its own size.

    Kingma & Ba 2015, algorithm 1: after one step, m / sqrt(v) is the gradient's sign. SGD's direction is the gradient itself.
    """
    return -gradient if optimizer == "sgd" else -np.sign(gradient)


def cosine(update: Numbers, direction: Numbers) -> float:
    """Return the cosine of an update with a candidate's direction, both (d,); 0 if either is 0."""
    length = float(np.linalg.norm(update)) * float(np.linalg.norm(direction))
    return float(update @ direction) / length if length else 0.0


def auc(trials: Sequence[tuple[Numbers, Numbers]], samples: int = 1000) -> tuple[float, float, float]:
    """Return the mean area under the ROC curve over trials, and the ends of its 95 % bootstrap interval (Efron 1979).

    Trials are drawn with replacement, and members and others inside each trial. 0.5 is chance.

    Args:
        trials: (scores of members, scores of others) of each trial, neither empty; a higher score says "member".
    """
    areas = [roc_auc_score(np.repeat([1, 0], [len(each) for each in trial]), np.concatenate(trial)) for trial in trials]
    rng = np.random.default_rng(0)
    drawn = []
    for trial in trials:  # Mann and Whitney's U is the same area, of all samples at once
        members, others = (rng.choice(side, (samples, len(side))) for side in trial)
        drawn.append(mannwhitneyu(members, others, axis=1, method="asymptotic").statistic / (members.shape[1] * others.shape[1]))
    chosen = rng.integers(len(trials), size=(len(trials), samples))
    low, high = np.quantile(np.array(drawn)[chosen, np.arange(samples)].mean(axis=0), [0.025, 0.975])
    return float(np.mean(areas)), float(low), float(high)


def auc_bound(noise: float, steps: int) -> float:
    """Return the greatest AUC that any attack on sums with Gaussian noise can have: Dong et al. 2022, Gaussian differential privacy.

    One sentence moves each sum by one clip at most, so members' scores are at best N(mu, 1) and others' N(0, 1), mu = sqrt(steps) / noise.

    Args:
        noise: Standard deviation of the noise on a sum, in clips.
        steps: Sums over all sentences that the attacker sees.
    """
    return float(norm.cdf(math.sqrt(steps) / noise / math.sqrt(2)))


def word_scores(change: Numbers) -> Numbers:
    """Return how far each embedding row's change is from that of most rows, (vocabulary,). change: (vocabulary, d).

    If the embedding is also the output head, the softmax moves every row; rows of words in the text move differently.
    """
    scores: Numbers = np.linalg.norm(change - np.median(change, axis=0), axis=1)
    return scores


def recall_at(scores: Numbers, present: Numbers) -> float:
    """Return the share of the present among the |present| highest scores, which is both recall and precision (R-precision).

    Chance is the share of the present. scores: (n,), higher says "present". present: (n,) bool, at least one.
    """
    number = int(present.sum())
    return float(present[np.argsort(-scores, kind="stable")[:number]].sum() / number)


def span_distances(vectors: Numbers, gradient: Numbers, rank: int) -> Numbers:
    """Return the relative distance of each vector from the gradient's row space, (n,), 0 to 1: DAGER, Petrov et al. 2024, section 4.

    The gradient of a linear layer's weight is the sum over tokens of slope x input, so its rows span the inputs if there are fewer tokens
    than numbers in an input. At full rank every vector lies in the span, and the test says nothing. A vector of zeros has the distance 1.

    Args:
        vectors: (n, inputs), candidates for the layer's inputs.
        gradient: (outputs, inputs), or an update that is a multiple of it.
        rank: Most directions to take, such as the number of tokens, which the server knows.
    """
    _, values, rows = np.linalg.svd(gradient.astype(np.float64), full_matrices=False)
    basis = rows[: min(rank, int((values > 1e-6 * values.max(initial=0.0)).sum()))]
    rest = vectors - (vectors @ basis.T) @ basis
    lengths = np.linalg.norm(vectors, axis=1)
    distances: Numbers = np.where(lengths > 0, np.linalg.norm(rest, axis=1) / np.maximum(lengths, 1e-12), 1.0)
    return distances


def exposure(score: float, alternatives: Numbers) -> float:
    """Return a canary's exposure in bits: log2 of the number of sentences minus log2 of its rank; Carlini et al. 2019, definition 2.

    Chance is about 1.44 bits, log2 e; the most is log2(n + 1).

    Args:
        score: The canary's score; a higher one says "in the text".
        alternatives: (n,) scores of sentences that were not planted; a tie counts against the canary.
    """
    return math.log2(len(alternatives) + 1) - math.log2(1 + int((alternatives >= score).sum()))
