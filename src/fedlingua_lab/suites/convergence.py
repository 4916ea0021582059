"""Dev perplexity by round for the rows of a suite, on all sites' text and on each site's (Manoel et al. 2022, figure 2).

Losses are stored as sums, so that the perplexity of all text is the same whether sites were measured separately or pooled.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from statistics import fmean

from fedlingua.desk.report.read import Round

ALL = "all text"
"""Name of all sites' text together, also in runs that pool it; a site's name has no space."""
DECIMALS = 3
MOST_ROUNDS = 64
"""The most rounds that a curve shows, besides the last one."""

Losses = dict[int, dict[str, tuple[float, int]]]
"""round -> text -> (nats, tokens) of its dev split. A text is one site's or the pooled text of a run: ALL or a part of it."""
Curve = dict[int, float]
"""round -> perplexity"""


def dev_losses(rounds: Sequence[Round], pooled: str | None = None) -> Losses:
    """Return the losses of the measured rounds. pooled: The text on which a pooled run measures its pseudo-site."""
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
    """Keep every 2^k-th round, with the least k that leaves at most MOST_ROUNDS, and the last round.

    Powers of two make longer runs keep rounds that shorter runs also keep, apart from the last.
    """
    rounds, step = sorted(losses), 1
    while len(rounds) > step * MOST_ROUNDS:
        step *= 2
    return {index: losses[index] for index in dict.fromkeys([*rounds[::step], *rounds[-1:]])}


def perplexities(losses: Losses, text: str, sites: Sequence[str]) -> Curve:
    """Return a text's perplexity, exp of the mean loss, in each round that measured it; ALL may be measured as one text or at all sites.

    A round of which it is too large for a float is left out."""
    curve = {}
    for index, texts in sorted(losses.items()):
        parts = [texts[name] for name in ([text] if text in texts else sites if text == ALL else []) if name in texts]
        if parts and (text in texts or len(parts) == len(sites)):
            with suppress(OverflowError):
                curve[index] = math.exp(sum(nats for nats, _ in parts) / sum(tokens for _, tokens in parts))
    return curve


def mean_curve(curves: Sequence[Mapping[int, float]]) -> Curve:
    """Return the mean over seeds in the rounds common to all non-empty curves."""
    known = [curve for curve in curves if curve]
    common = sorted(set.intersection(*(set(curve) for curve in known))) if known else []
    return {index: fmean(curve[index] for curve in known) for index in common}
