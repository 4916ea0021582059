"""Scores that a run's `metrics` ask for besides BLEU and chrF, of the sums that its sites sent."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

import numpy as np

from fedlingua.common.languages import Direction
from fedlingua.evaluation.measuring import COMET, score_of, signature_of
from fedlingua.evaluation.scores import ScoreSums
from fedlingua.settings.config import Settings
from fedlingua.settings.metrics import OF_TEXT


def of_site(settings: Settings, direction: Direction, result: ScoreSums, base: ScoreSums) -> dict[str, Any]:
    """What scores.json says of one site besides. not_measured: what it could not measure; its own log says why."""
    told: dict[str, Any] = {}
    signatures: dict[str, str] = {}
    for name in settings.more_metrics:
        if name in result.more and name in base.more:
            key = OF_TEXT[name].key
            told[key], told[f"base_{key}"] = (score_of(name, np.asarray(sums.more[name])) for sums in (result, base))
            signatures[key] = signature_of(name, direction.target, settings.comet_model, result.comet_checkpoint)
    if signatures:
        told["signatures"] = signatures
    if missing := [name for name in settings.more_metrics if OF_TEXT[name].key not in signatures]:
        told["not_measured"] = missing
    return told


def of_all(settings: Settings, sites: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Plain means over sites of what all of them measured; of COMET only where all have the same checkpoint."""
    means: dict[str, float] = {}
    for name in settings.more_metrics:
        key = OF_TEXT[name].key
        how = {entry.get("signatures", {}).get(key) for entry in sites.values()}
        if None in how or (name == COMET and len(how) > 1):
            continue
        means[f"macro_{key}"] = fmean(entry[key] for entry in sites.values())
        means[f"base_macro_{key}"] = fmean(entry[f"base_{key}"] for entry in sites.values())
    return means
