"""Scores of a run that translates: BLEU and chrF, of the sums that its sites sent."""

import math
from collections.abc import Mapping
from functools import reduce
from operator import add
from statistics import fmean
from typing import Any

import numpy as np
from flwr.app import MetricRecord

from fedlingua.config import Settings
from fedlingua.errors import ExchangeError
from fedlingua.evaluation.metrics import OF_TEXT
from fedlingua.evaluation.scores import CHECKPOINT, MORE, ScoreSums, averages, bleu_score, chrf_score, signatures
from fedlingua.languages import Direction
from fedlingua.measuring import COMET, score_of, signature_of, width_of


def check_sums(record: MetricRecord, most: int) -> ScoreSums:
    """A site's score sums.

    Raises:
        ExchangeError: not lists of counts, or more sentences than the site has.
    """
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
    return ScoreSums(sentences, tuple(counts[:10]), tuple(counts[10:]), sums, checkpoint)


def _sums_of(metric: str, value: object) -> tuple[float, ...]:
    width = width_of(metric)
    numbers = (
        [float(one) for one in value if isinstance(one, int | float) and math.isfinite(one)] if isinstance(value, list) else []
    )
    if len(numbers) != width or not isinstance(value, list) or len(value) != width:
        raise ExchangeError(f"scores hold for {metric} something else than {width} finite numbers")
    return tuple(numbers)


def site_scores(settings: Settings, direction: Direction, result: ScoreSums, base: ScoreSums) -> dict[str, Any]:
    """What scores.json says of one site."""
    more: dict[str, Any] = {}
    for name in sorted(set(result.more) & set(base.more)):
        key = OF_TEXT[name].key
        more[key], more[f"base_{key}"] = (score_of(name, np.asarray(sums.more[name])) for sums in (result, base))
        signature = signature_of(name, direction.target, settings.comet_model, result.comet_checkpoint)
        more.setdefault("signatures", {})[key] = signature
    bleu_signature, chrf_signature = signatures(direction.target)
    if missing := sorted(set(settings.more_metrics) - set(result.more)):
        more["not_measured"] = missing
    return {
        "direction": str(direction),
        "bleu": bleu_score(result),
        "chrf": chrf_score(result),
        "signature": bleu_signature,
        "chrf_signature": chrf_signature,
        "sentences": result.sentences,
        "base_bleu": bleu_score(base),
        "base_chrf": chrf_score(base),
        **more,
    }


def all_scores(sites: Mapping[str, Mapping[str, Any]], sums: Mapping[str, tuple[ScoreSums, ScoreSums]]) -> dict[str, Any]:
    """What it says of all sites: plain means (macro), the mean weighted by test size (micro), and all counts as one corpus (pooled)."""
    sizes = {site: entry["sentences"] for site, entry in sites.items()}
    mean = {name: averages({site: entry[name] for site, entry in sites.items()}, sizes) for name in _AVERAGED}
    return {
        "macro_bleu": mean["bleu"][0],
        "micro_bleu": mean["bleu"][1],
        "pooled_bleu": bleu_score(reduce(add, (result for result, _ in sums.values()))),
        "base_macro_bleu": mean["base_bleu"][0],
        "macro_chrf": mean["chrf"][0],
        "base_macro_chrf": mean["base_chrf"][0],
        **_means_of_more(sites),
    }


def _means_of_more(sites: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Plain means of what every site measured besides; of COMET only where all have the same checkpoint."""
    keys = [
        metric.key for metric in OF_TEXT.values() if all(metric.key in entry.get("signatures", {}) for entry in sites.values())
    ]
    means = {}
    for key in keys:
        if key != OF_TEXT[COMET].key or len({entry["signatures"][key] for entry in sites.values()}) == 1:
            means[f"macro_{key}"] = fmean(entry[key] for entry in sites.values())
            means[f"base_macro_{key}"] = fmean(entry[f"base_{key}"] for entry in sites.values())
    return means


_AVERAGED = ("bleu", "base_bleu", "chrf", "base_chrf")
