"""The entries of scores.json about the models that sites chose among, the same for every task."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from fedlingua.evaluation.sums import Scores
from fedlingua.settings.metrics import METRICS

_METRICS = {metric.key: metric for both in METRICS.values() for metric in both}
SIDES = ("alone", "federated")


def choice_scores(scores: Scores, metrics: Mapping[str, Callable[[Any], float]]) -> dict[str, Any]:
    """Return the scores of one site's candidates; {} if it did not choose. metrics: key -> score function; gains use the first.

    `gain`: the kept model's gain on the scored text over the better of base and alone, with the interval that the site computed by
    paired bootstrap. `gain_over_alone`: the same over alone.
    """
    if not scores.candidate or scores.federated is None:
        return {}
    sums = {"alone": scores.alone, "federated": scores.federated}
    values = {f"{side}_{key}": value(sums[side]) for key, value in metrics.items() for side in SIDES if sums[side] is not None}
    key, value = next(iter(metrics.items()))
    metric, result = _METRICS[key], value(scores.result)
    alone = values.get(f"alone_{key}")
    better = metric.best([value(scores.base), *([] if alone is None else [alone])])

    def gain(over: float | None, ends: tuple[float, float] | None) -> dict[str, Any]:
        low, high = ends or (None, None)
        return {key: metric.gain(result, over), "low": low, "high": high}

    gains = {"gain": gain(better, scores.over_better)}
    if alone is not None:
        gains["gain_over_alone"] = gain(alone, scores.over_alone)
    return {**values, "kept": scores.candidate, **gains}


def plain_mean(sites: Mapping[str, Mapping[str, Any]], name: str) -> float:
    """Return the plain mean over sites of the score `name`."""
    return fmean(entry[name] for entry in sites.values())


def choice_means(
    sites: Mapping[str, Mapping[str, Any]],
    metrics: Sequence[str],
    mean: Callable[[Mapping[str, Mapping[str, Any]], str], float] = plain_mean,
) -> dict[str, float]:
    """Return the mean over sites of each candidate's score that all of them have."""
    names = [f"{side}_{key}" for side in SIDES for key in metrics]
    return {f"macro_{name}": mean(sites, name) for name in names if sites and all(name in entry for entry in sites.values())}
