"""The scores of a run, from the sums that its sites sent."""

from functools import reduce
from operator import add
from typing import Any

from fedlingua.evaluation.scores import averages, bleu_score, chrf_score, signatures
from strategies.site_strategy import SiteStrategy


def scores_json(strategy: SiteStrategy) -> dict[str, Any]:
    """What scores.json says: every site before and after, three named averages, and what it cost.

    macro: plain mean over sites. micro: mean weighted by test size. pooled: all sites' counts as one corpus. tensor_saving, number_saving:
    what a selection left out of the uplink, 0-1, mean over sites and rounds (Chu et al. 2024, §4.2, counts tensors).
    """
    sites: dict[str, Any] = {}
    directions = {site.name: site.direction for site in strategy.roll.federation.sites}
    for site, scores in strategy.scores.items():
        direction, sums, base = directions[site], scores.result, scores.base
        bleu_signature, chrf_signature = signatures(direction.target)
        sites[site] = {
            "direction": str(direction),
            "bleu": bleu_score(sums),
            "chrf": chrf_score(sums),
            "signature": bleu_signature,
            "chrf_signature": chrf_signature,
            "sentences": sums.sentences,
            "base_bleu": bleu_score(base),
            "base_chrf": chrf_score(base),
        }
    sizes = {site: entry["sentences"] for site, entry in sites.items()}
    macro, micro = averages({site: entry["bleu"] for site, entry in sites.items()}, sizes)
    base_macro, _ = averages({site: entry["base_bleu"] for site, entry in sites.items()}, sizes)
    macro_chrf, _ = averages({site: entry["chrf"] for site, entry in sites.items()}, sizes)
    base_macro_chrf, _ = averages({site: entry["base_chrf"] for site, entry in sites.items()}, sizes)
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
        "macro_bleu": macro,
        "micro_bleu": micro,
        "pooled_bleu": bleu_score(reduce(add, (scores.result for scores in strategy.scores.values()))),
        "base_macro_bleu": base_macro,
        "macro_chrf": macro_chrf,
        "base_macro_chrf": base_macro_chrf,
        "uplink_bytes_per_round": round(sum(ups) / len(ups)),
        "downlink_bytes_per_round": round(sum(downs) / len(downs)),
        "exchanged_parameters": strategy.tensor_set.num_parameters if travels else 0,
        **savings,
    }
