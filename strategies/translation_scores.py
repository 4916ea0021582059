"""Scores of a run that translates: BLEU and chrF, of the sums that its sites sent."""

import math
from collections.abc import Mapping
from functools import reduce
from operator import add
from typing import Any

from flwr.app import MetricRecord

from fedlingua.errors import ExchangeError
from fedlingua.evaluation.scores import CHECKPOINT, MORE, ScoreSums, averages, bleu_score, chrf_score, signatures
from fedlingua.languages import Direction
from fedlingua.measuring import width_of
from fedlingua.metrics import OF_TEXT


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
    width, numbers = width_of(metric), value if isinstance(value, list) else []
    if len(numbers) != width or not all(isinstance(one, int | float) and math.isfinite(one) for one in numbers):
        raise ExchangeError(f"scores hold for {metric} something else than {width} finite numbers")
    return tuple(map(float, numbers))


def site_scores(direction: Direction, result: ScoreSums, base: ScoreSums) -> dict[str, Any]:
    """What scores.json says of one site."""
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
    }


_AVERAGED = ("bleu", "base_bleu", "chrf", "base_chrf")
