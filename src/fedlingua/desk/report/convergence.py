"""Dev perplexity by round, row beside row: figure 2 of Manoel et al. 2022, of all sites' text and of each site's.

What a run tells are sums, so that the perplexity of all text is that of its pieces at once, whether sites were measured one by one or
pooled.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from fedlingua.desk.report.read import Round

ALL = "all text"
"""Of all sites, and what a run that pools it calls it; no site's name holds a space."""
DECIMALS = 3
MOST_ROUNDS = 64
"""That a line is drawn through, and the last one."""

Losses = dict[int, dict[str, tuple[float, int]]]
"""round -> text -> (nats, tokens) of its dev text. A text is a site's, or the one that a run pools: ALL, or less."""
Curve = dict[int, float]
"""round -> perplexity"""


def dev_losses(rounds: Sequence[Round], pooled: str | None = None) -> Losses:
    """Of the rounds that were measured. pooled: what text a run that pools is measured on, as it has one pseudo-site alone."""
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
    """Every round, every second, every fourth ..., few enough to keep, and the last. Apart from the last, a longer run keeps
    rounds that a shorter one keeps, too.
    """
    rounds, step = sorted(losses), 1
    while len(rounds) > step * MOST_ROUNDS:
        step *= 2
    return {index: losses[index] for index in dict.fromkeys([*rounds[::step], *rounds[-1:]])}


def perplexities(losses: Losses, text: str, sites: Sequence[str]) -> Curve:
    """Of one text, in the rounds that measured it; of ALL where a run measured every one of the sites, or all of them as one."""
    curve = {}
    for index, texts in sorted(losses.items()):
        parts = [texts[name] for name in ([text] if text in texts else sites if text == ALL else []) if name in texts]
        if parts and (text in texts or len(parts) == len(sites)):
            curve[index] = perplexity(sum(nats for nats, _ in parts), sum(tokens for _, tokens in parts))
    return {index: value for index, value in curve.items() if value is not None}


def perplexity(nats: float, tokens: float) -> float | None:
    """exp of the mean; None of a loss so high that no float holds it."""
    try:
        return math.exp(nats / tokens)
    except OverflowError:
        return None


def mean_curve(curves: Sequence[Mapping[int, float]]) -> Curve:
    """Mean over seeds, in the rounds that all of them measured."""
    known = [curve for curve in curves if curve]
    common = sorted(set.intersection(*(set(curve) for curve in known))) if known else []
    return {index: fmean(curve[index] for curve in known) for index in common}
