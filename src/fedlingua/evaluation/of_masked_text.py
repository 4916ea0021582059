"""Scores of a pre-training run: perplexity and accuracy of masked pieces, computed from the sums that its sites sent."""

import math
from collections import defaultdict
from collections.abc import Mapping
from functools import reduce
from operator import add
from statistics import fmean
from typing import Any, cast

from flwr.app import MetricRecord

from fedlingua.common.errors import ExchangeError
from fedlingua.common.languages import Direction
from fedlingua.evaluation.of_choice import choice_means, choice_scores
from fedlingua.evaluation.perplexity import PARTS, MaskedScores, accuracy, perplexity, split_perplexity
from fedlingua.evaluation.scores import averages
from fedlingua.evaluation.sums import Scores
from fedlingua.settings.config import Settings

MOST_NATS = 700.0
"""Largest accepted loss per masked piece: the exp of a larger one overflows float64."""
MOST_GAIN = math.exp(MOST_NATS)
"""Largest magnitude of a gain in perplexity that a site may report."""
LEAST_NATS = 0.99 * math.log(2)
"""Least loss of a piece that was not guessed, since another piece was at least as probable; a hundredth is allowed for rounding."""


def check_sums(record: MetricRecord, most: int, most_loss: float = MOST_NATS) -> MaskedScores:
    """Check and return a site's score sums. most: Its sentences. most_loss: Nats a masked piece."""
    wanted = {"sentences", "nll", "tokens", "correct", "masks"}
    if set(record) != wanted:
        raise ExchangeError(f"scores hold {', '.join(sorted(record))}; wanted {', '.join(sorted(wanted))}")
    sentences, masks = record["sentences"], record["masks"]
    lists = [record[key] for key in ("nll", "tokens", "correct")]
    if not all(isinstance(one, list) and len(one) == PARTS for one in lists):
        raise ExchangeError(f"scores are not {PARTS} losses, {PARTS} numbers of masked pieces and {PARTS} of those guessed")
    nll, tokens, correct = ([*one] if isinstance(one, list) else [] for one in lists)
    counts = [count for count in (*tokens, *correct) if type(count) is int and count >= 0]
    losses = [float(loss) for loss in nll if isinstance(loss, int | float) and math.isfinite(loss) and loss >= 0]
    if type(sentences) is not int or not 1 <= sentences <= most or type(masks) is not int or not 0 <= masks < 2**48:
        raise ExchangeError(f"scores are of {sentences!r} sentences, masked as {masks!r}; the site has {most} sentences")
    if len(counts) != 2 * PARTS or len(losses) != PARTS or not sum(counts[:PARTS]):
        raise ExchangeError("scores hold something else than finite losses and counts, or nothing was masked")
    if any(guessed > asked for guessed, asked in zip(counts[PARTS:], counts[:PARTS], strict=True)):
        raise ExchangeError("scores hold more pieces guessed than masked")
    most_loss = min(most_loss, MOST_NATS)
    if any(loss > most_loss * asked for loss, asked in zip(losses, counts[:PARTS], strict=True)):
        raise ExchangeError(f"scores hold a loss of more than {most_loss:.4g} nats a masked piece, or one of no piece")
    missed = [asked - guessed for guessed, asked in zip(counts[PARTS:], counts[:PARTS], strict=True)]
    if any(loss < LEAST_NATS * number for loss, number in zip(losses, missed, strict=True)):
        raise ExchangeError(
            "scores hold a loss too low for what was not guessed: half a chance at most a piece, so ln 2 nats or more"
        )
    return MaskedScores(sentences, tuple(losses), tuple(counts[:PARTS]), tuple(counts[PARTS:]), masks)


def measured_on(sums: MaskedScores) -> tuple[object, ...]:
    """Return what identifies the measured text and its masks."""
    return sums.sentences, sums.tokens, sums.masks


def site_scores(settings: Settings, direction: Direction, scores: Scores) -> dict[str, Any]:
    """Return one site's entry in scores.json. Its `masks` is a hash, equal for two runs measured on the same masks."""
    result, base = cast(MaskedScores, scores.result), cast(MaskedScores, scores.base)
    mean, deviation = split_perplexity(result)
    return {
        "direction": str(direction),
        "perplexity": perplexity(result),
        "accuracy": accuracy(result),
        "perplexity_of_parts": mean,
        "perplexity_of_parts_sd": deviation,
        "sentences": result.sentences,
        "masked": sum(result.tokens),
        "masks": f"{result.masks:012x}",
        "base_perplexity": perplexity(base),
        "base_accuracy": accuracy(base),
        **choice_scores(scores, {"perplexity": perplexity, "accuracy": accuracy}),
    }


def all_scores(
    settings: Settings, sites: Mapping[str, Mapping[str, Any]], sums: Mapping[str, tuple[MaskedScores, MaskedScores]]
) -> dict[str, Any]:
    """Return the scores over all sites: mean over languages (macro), mean weighted by masked pieces (micro), all pieces pooled.

    A language that several sites hold counts once, with their plain mean.
    """
    sizes = {site: entry["masked"] for site, entry in sites.items()}
    return {
        "macro_perplexity": _macro(sites, "perplexity"),
        "micro_perplexity": averages({site: entry["perplexity"] for site, entry in sites.items()}, sizes)[1],
        "pooled_perplexity": perplexity(reduce(add, (result for result, _ in sums.values()))),
        "base_macro_perplexity": _macro(sites, "base_perplexity"),
        "macro_accuracy": _macro(sites, "accuracy"),
        "base_macro_accuracy": _macro(sites, "base_accuracy"),
        **choice_means(sites, ("perplexity", "accuracy"), _macro),
    }


def _macro(sites: Mapping[str, Mapping[str, Any]], name: str) -> float:
    by_language = defaultdict(list)
    for entry in sites.values():
        by_language[entry["direction"]].append(entry[name])
    return fmean(fmean(of_language) for of_language in by_language.values())
