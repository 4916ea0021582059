"""Dev perplexity by round for the rows of a suite, of all sites' text and of each site's: figure 2 of Manoel et al. 2022.

Losses are kept as sums, so that the perplexity of all text is the same whether sites were measured one by one or pooled.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from fedlingua.desk.report.read import Round

ALL = "all text"
"""Name of all sites' text, also in a run that pools it; no site's name holds a space."""
DECIMALS = 3
MOST_ROUNDS = 64
"""Most rounds that a line is drawn through, besides the last one."""

Losses = dict[int, dict[str, tuple[float, int]]]
"""round -> text -> (nats, tokens) of its dev text. A text is a site's, or what a run pools: ALL or a part of it."""
Curve = dict[int, float]
"""round -> perplexity"""


def dev_losses(rounds: Sequence[Round], pooled: str | None = None) -> Losses:
    """Return the losses of the measured rounds. pooled: the text on which a run that pools measures its one pseudo-site."""
    by_round = {
        each.number: {
            pooled or name: (round(site.dev_loss * site.dev_tokens, DECIMALS), site.dev_tokens)
            for name, site in each.sites.items()
            if site.dev_loss is not None and site.dev_tokens
        }
        for each in rounds
    }
    return {index: texts for index, texts in by_round.items() if texts}


def thinned(losses: Losses) -> Losses:
    """Keep every round, every second, every fourth ..., at most MOST_ROUNDS, and the last.

    Apart from the last, a longer run keeps rounds that a shorter one keeps, too.
    """
    rounds, step = sorted(losses), 1
    while len(rounds) > step * MOST_ROUNDS:
        step *= 2
    return {index: losses[index] for index in dict.fromkeys([*rounds[::step], *rounds[-1:]])}


def perplexities(losses: Losses, text: str, sites: Sequence[str]) -> Curve:
    """Return a text's perplexity in each round that measured it; ALL is measured as one text or as all sites together."""
    curve = {}
    for index, texts in sorted(losses.items()):
        parts = [texts[name] for name in ([text] if text in texts else sites if text == ALL else []) if name in texts]
        if parts and (text in texts or len(parts) == len(sites)):
            curve[index] = perplexity(sum(nats for nats, _ in parts), sum(tokens for _, tokens in parts))
    return {index: value for index, value in curve.items() if value is not None}


def perplexity(nats: float, tokens: float) -> float | None:
    """Return exp of the mean loss; None if no float can hold it."""
    try:
        return math.exp(nats / tokens)
    except OverflowError:
        return None


def mean_curve(curves: Sequence[Mapping[int, float]]) -> Curve:
    """Return the mean over seeds, in the rounds that all non-empty curves have."""
    known = [curve for curve in curves if curve]
    common = sorted(set.intersection(*(set(curve) for curve in known))) if known else []
    return {index: fmean(curve[index] for curve in known) for index in common}
