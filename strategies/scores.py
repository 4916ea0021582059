"""The content of scores.json, computed from the sums that a run's sites sent; the task decides which metrics it holds."""

from typing import Any

from strategies.checks.contents import MEASURES
from strategies.strategy import SiteStrategy


def scores_json(strategy: SiteStrategy) -> dict[str, Any]:
    """Return the content of scores.json: every site's scores before and after, averages by name, and the bytes exchanged.

    total_bytes: all messages of the whole run, up and down, mean over sites; its fp32: the same tensors, each sent as float32.
    tensor_saving, number_saving: the share that a selection left out of the uplink, 0-1, mean over sites and rounds (Chu et al.
    2024, §4.2, counts tensors).
    """
    measure = MEASURES[strategy.settings.task]
    directions = {site.name: site.direction for site in strategy.registry.federation.sites}
    sums = {site: (scores.result, scores.base) for site, scores in strategy.scores.items()}
    sites = {site: measure.site_scores(strategy.settings, directions[site], scores) for site, scores in strategy.scores.items()}
    ups, downs = zip(*strategy.progress.traffic, strict=True) if strategy.progress.traffic else ((0,), (0,))
    travels = strategy.travels and strategy.settings.how.trains
    savings: dict[str, float] = {}
    if strategy.progress.savings:
        tensors, numbers = zip(*strategy.progress.savings, strict=True)
        savings = {"tensor_saving": sum(tensors) / len(tensors), "number_saving": sum(numbers) / len(numbers)}
    return {
        "method": strategy.settings.method,
        "seed": strategy.settings.seed,
        "split": strategy.settings.score_split,
        "sites": sites,
        **measure.all_scores(strategy.settings, sites, sums),
        "uplink_bytes_per_round": round(sum(ups) / len(ups)),
        "downlink_bytes_per_round": round(sum(downs) / len(downs)),
        "total_bytes": strategy.registry.traffic.total,
        "exchanged_parameters": strategy.tensor_set.num_parameters if travels else 0,
        **savings,
    }
