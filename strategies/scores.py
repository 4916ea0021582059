"""The scores of a run, from the sums that its sites sent; what is measured is the task's."""

from typing import Any

from strategies.reply_contents import MEASURES
from strategies.strategy import SiteStrategy


def scores_json(strategy: SiteStrategy) -> dict[str, Any]:
    """What scores.json says: every site before and after, named averages, and what it cost.

    total_bytes: of the whole run up and down, mean over sites, all kinds of message; fp32: of the same tensors, each sent as float32.
    tensor_saving, number_saving: what a selection left out of the uplink, 0-1, mean over sites and rounds (Chu et al. 2024, §4.2, counts
    tensors).
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
