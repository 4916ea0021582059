"""Scores of a translation run: BLEU, chrF and additional metrics, computed from the sums that its sites sent."""

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import pairwise
from operator import add
from statistics import fmean
from typing import Any, cast

import numpy as np
from flwr.app import MetricRecord

from fedlingua.common.errors import ExchangeError
from fedlingua.common.languages import Direction
from fedlingua.evaluation.measuring import COMET, score_of, signature_of, width_of
from fedlingua.evaluation.of_choice import choice_means, choice_scores
from fedlingua.evaluation.scores import BLEU_ORDER, CHECKPOINT, MORE, ScoreSums, averages, bleu_score, chrf_score, signatures
from fedlingua.evaluation.sums import Scores
from fedlingua.settings.config import Settings
from fedlingua.settings.metrics import OF_TEXT

LEAST_COMET, MOST_COMET = -2.5, 1.5
"""Range of COMET per sentence: newer models give about 0 to 1; those from before 2022 are standardised and go below -1."""
MOST_GAIN = 100.0
"""Largest magnitude of a gain that a site may report, in BLEU points."""
MOST_LENGTH = 10_000
"""Largest mean number of characters per sentence that a text may have."""


def check_sums(record: MetricRecord, most: int, most_loss: float = math.inf) -> ScoreSums:
    """Check and return a site's score sums. most: Its sentences."""
    more = {key.removeprefix(MORE): value for key, value in record.items() if key.startswith(MORE)}
    if set(record) - {CHECKPOINT} - {f"{MORE}{name}" for name in OF_TEXT} != {"sentences", "bleu", "chrf"}:
        raise ExchangeError(
            f"scores hold {', '.join(sorted(record))}; wanted sentences, bleu and chrf, and what the run measures besides"
        )
    sentences, bleu, chrf = record["sentences"], record["bleu"], record["chrf"]
    if (
        not isinstance(sentences, int)
        or not isinstance(bleu, list)
        or not isinstance(chrf, list)
        or len(bleu) != 10
        or len(chrf) != 18
    ):
        raise ExchangeError("scores are not one number of sentences, 10 BLEU counts and 18 chrF counts")
    counts = [count for count in (*bleu, *chrf) if isinstance(count, int) and count >= 0]
    if not 1 <= sentences <= most or len(counts) != 28:
        raise ExchangeError(f"scores of {sentences} sentences hold something else than counts; the site has {most} sentences")
    checkpoint = record.get(CHECKPOINT, 0)
    if type(checkpoint) is not int or not 0 <= checkpoint < 2**48:
        raise ExchangeError(f"scores come with a checkpoint {checkpoint!r}; wanted 48 bits")
    sums = {name: _sums_of(name, value) for name, value in more.items()}
    score_sums = ScoreSums(sentences, tuple(counts[:10]), tuple(counts[10:]), sums, checkpoint)
    for name, possible in _possible(score_sums).items():
        if not possible:
            raise ExchangeError(f"scores hold {name} counts that no {sentences} sentences have")
    return score_sums


def _possible(sums: ScoreSums) -> dict[str, bool]:
    """Return for each metric whether some translations and references could have these counts."""
    sentences, (length, reference, *ngrams) = sums.sentences, sums.bleu
    characters = _columns(sums.chrf)
    most_edits = characters[0][0] + characters[1][0]
    possible = {
        "BLEU": _are_ngrams(ngrams[BLEU_ORDER:], sentences)
        and length == ngrams[BLEU_ORDER]
        and _are_matches(ngrams[:BLEU_ORDER], ngrams[BLEU_ORDER:], [reference] * BLEU_ORDER)
        and reference > 0
        # Every token has at least one character that is not a space.
        and length <= characters[0][0]
        and reference <= characters[1][0],
        "chrF": _are_chrf(characters, sentences) and max(characters[0][0], characters[1][0]) <= MOST_LENGTH * sentences,
    }
    more = sums.more
    if "chrf++" in more:
        words = _columns(more["chrf++"][18:])
        possible["chrf++"] = _are_chrf(words, sentences) and more["chrf++"][:18] == sums.chrf
    if "ter" in more:
        edits, words_of_reference = more["ter"]
        possible["ter"] = 0 <= edits <= most_edits and 0 < words_of_reference <= characters[1][0]
    if "length-ratio" in more:
        possible["length-ratio"] = more["length-ratio"] == sums.bleu[:2]
    if "off-target" in more:
        possible["off-target"] = more["off-target"][1] == sentences and 0 <= more["off-target"][0] <= sentences
    if COMET in more:
        total, number = more[COMET]
        possible[COMET] = number == sentences and LEAST_COMET * sentences <= total <= MOST_COMET * sentences
    return possible


def _columns(counts: Sequence[float]) -> tuple[Sequence[float], Sequence[float], Sequence[float]]:
    """Split chrF counts into (those of the translations, of the references, common to both), each by n-gram order."""
    return counts[::3], counts[1::3], counts[2::3]


def _are_chrf(columns: tuple[Sequence[float], ...], sentences: int) -> bool:
    ours, theirs, common = columns
    # sacreBLEU counts no n-grams of a translation longer than its reference, so counts may fall by more than one a sentence.
    falling = all(longer <= here for here, longer in pairwise(ours)) and not any(total % 1 for total in ours)
    return falling and _are_ngrams(theirs, sentences) and _are_matches(common, ours, theirs)


def _are_ngrams(totals: Sequence[float], sentences: int) -> bool:
    """Return whether so many sentences can have these n-gram counts, by order from 1; a sentence of k tokens has k - n + 1 n-grams."""
    as_long = [here - longer for here, longer in pairwise(totals)]
    shorter = [sentences, *as_long, min(1, totals[-1])]
    return all(longer <= here for here, longer in pairwise(shorter)) and all(total >= 0 and not total % 1 for total in totals)


def _are_matches(common: Sequence[float], ours: Sequence[float], theirs: Sequence[float]) -> bool:
    """Return whether common counts are possible: at most those of either side, and of each order at most those of the order below."""
    bounded = all(0 <= both <= min(*sides) for both, *sides in zip(common, ours, theirs, strict=True))
    return bounded and all(longer <= here for here, longer in pairwise(common))


def measured_on(sums: ScoreSums) -> tuple[object, ...]:
    """Return the counts that depend only on the references; they are equal if two sums are of the same text."""
    more = {name: counts[1::3] if name == "chrf++" else counts[1:] for name, counts in sums.more.items()}
    return sums.sentences, sums.bleu[1], sums.chrf[1::3], more.get("chrf++"), more.get("ter")


def _sums_of(metric: str, value: object) -> tuple[float, ...]:
    width, numbers = width_of(metric), value if isinstance(value, list) else []
    if len(numbers) != width or not all(isinstance(one, int | float) and math.isfinite(one) for one in numbers):
        raise ExchangeError(f"scores hold for {metric} something else than {width} finite numbers")
    return tuple(map(float, numbers))


def site_scores(settings: Settings, direction: Direction, scores: Scores) -> dict[str, Any]:
    """Return one site's entry in scores.json."""
    result, base = cast(ScoreSums, scores.result), cast(ScoreSums, scores.base)
    bleu_signature, chrf_signature = signatures(direction.target)
    return {
        "direction": str(direction),
        "bleu": bleu_score(result),
        "chrf": chrf_score(result),
        "signature": bleu_signature,
        "chrf_signature": chrf_signature,
        "sentences": result.sentences,
        "base_bleu": bleu_score(base),
        "base_chrf": chrf_score(base),
        **choice_scores(scores, {"bleu": bleu_score, "chrf": chrf_score}),
        **extra_scores(settings, direction, result, base),
    }


def all_scores(
    settings: Settings, sites: Mapping[str, Mapping[str, Any]], sums: Mapping[str, tuple[ScoreSums, ScoreSums]]
) -> dict[str, Any]:
    """Return scores over all sites: plain mean (macro), mean weighted by test size (micro), counts as one corpus (pooled)."""
    sizes = {site: entry["sentences"] for site, entry in sites.items()}
    mean = {
        name: averages({site: entry[name] for site, entry in sites.items()}, sizes)
        for name in ("bleu", "base_bleu", "chrf", "base_chrf")
    }
    return {
        "macro_bleu": mean["bleu"][0],
        "micro_bleu": mean["bleu"][1],
        "pooled_bleu": bleu_score(reduce(add, (result for result, _ in sums.values()))),
        "base_macro_bleu": mean["base_bleu"][0],
        "macro_chrf": mean["chrf"][0],
        "base_macro_chrf": mean["base_chrf"][0],
        **choice_means(sites, ("bleu", "chrf")),
        **extra_means(settings, sites),
    }


def extra_scores(settings: Settings, direction: Direction, result: ScoreSums, base: ScoreSums) -> dict[str, Any]:
    """Return the scores of additional metrics; `not_measured` lists those that the site could not measure, for reasons in its log."""
    scores: dict[str, Any] = {}
    signatures: dict[str, str] = {}
    for name in settings.more_metrics:
        if name in result.more and name in base.more:
            key = OF_TEXT[name].key
            scores[key], scores[f"base_{key}"] = (score_of(name, np.asarray(sums.more[name])) for sums in (result, base))
            signatures[key] = signature_of(name, direction.target, settings.comet_model, result.comet_checkpoint)
    if signatures:
        scores["signatures"] = signatures
    if missing := [name for name in settings.more_metrics if OF_TEXT[name].key not in signatures]:
        scores["not_measured"] = missing
    return scores


def extra_means(settings: Settings, sites: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return plain means over sites of the metrics that all of them measured; of COMET only if all used the same checkpoint."""
    means: dict[str, float] = {}
    for name in settings.more_metrics:
        key = OF_TEXT[name].key
        how = {entry.get("signatures", {}).get(key) for entry in sites.values()}
        if None in how or (name == COMET and len(how) > 1):
            continue
        means[f"macro_{key}"] = fmean(entry[key] for entry in sites.values())
        means[f"base_macro_{key}"] = fmean(entry[f"base_{key}"] for entry in sites.values())
    return means
