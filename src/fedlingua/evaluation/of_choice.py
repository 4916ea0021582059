"""The entries of scores.json about the models that sites chose among, the same for every task."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from fedlingua.evaluation.sums import Scores
from fedlingua.settings.metrics import METRICS

_METRICS = {metric.key: metric for both in METRICS.values() for metric in both}
SIDES = ("alone", "alone_ensemble", "federated", "single", "reference")
"""Fields of Scores of which there are means over sites, if all sites have them."""


def choice_scores(scores: Scores, metrics: Mapping[str, Callable[[Any], float]]) -> dict[str, Any]:
    """Return the scores of one site's candidates; {} if it did not choose. metrics: key -> score function; gains use the first.

    `reference`: the best by dev of base, alone and, if there is one, the ensemble of two models trained alone. `gain`: the kept model's
    gain over it on the scored text, with the interval that the site computed by paired bootstrap. `single`: of a kept ensemble, the best
    single model; else the kept one.
    """
    if not scores.candidate or scores.reference is None:
        return {}
    sums = {side: getattr(scores, side) for side in SIDES[:-1]}
    values = {f"{side}_{key}": value(each) for key, value in metrics.items() for side, each in sums.items() if each is not None}
    key = next(iter(metrics))
    low, high = scores.over_reference or (None, None)
    of_reference = {name: value(scores.reference) for name, value in metrics.items()}
    gain = _METRICS[key].gain(metrics[key](scores.result), of_reference[key])
    return {
        **values,
        "kept": scores.candidate,
        "reference": {"name": scores.reference_name, **of_reference},
        "gain": {key: gain, "low": low, "high": high},
    }


def plain_mean(sites: Mapping[str, Mapping[str, Any]], name: str) -> float:
    """Return the plain mean over sites of the score `name`."""
    return fmean(entry[name] for entry in sites.values())


def choice_means(
    sites: Mapping[str, Mapping[str, Any]],
    metrics: Sequence[str],
    mean: Callable[[Mapping[str, Mapping[str, Any]], str], float] = plain_mean,
) -> dict[str, float]:
    """Return the mean over sites of each candidate's score that all of them have, and of the reference's."""
    flat = {
        site: {**entry, **{f"reference_{key}": of for key, of in entry.get("reference", {}).items()}}
        for site, entry in sites.items()
    }
    names = [f"{side}_{key}" for side in SIDES for key in metrics]
    return {f"macro_{name}": mean(flat, name) for name in names if flat and all(name in entry for entry in flat.values())}
