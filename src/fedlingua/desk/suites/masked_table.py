"""What a suite's table tells of masked-language rows besides perplexity: pieces guessed, and perplexity of four parts of each text.

The parts are those of Manoel et al. 2022, appendix A.1 and table 7. Pure functions of the runs' scores, as all of a table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from fedlingua.common import units
from fedlingua.desk.report.suite_result import ACCURACY_OF, MACRO_ACCURACY, PARTS_OF, PARTS_SD_OF
from fedlingua.settings.metrics import ACCURACY

MACRO = "macro"

Json = Mapping[str, Any]
Told = Mapping[str, Mapping[str, float]]
"""Row -> column -> mean over its seeds"""


@dataclass(frozen=True)
class Besides:
    """Row by row, where its runs tell it. accuracy: share of the masked pieces that were guessed, in %; parts: mean over the parts of a
    text, and parts_sd: their sample standard deviation. All means over seeds.
    """

    accuracy: Told
    parts: Told
    parts_sd: Told


def besides(runs: Mapping[str, Sequence[Json]]) -> Besides:
    """runs: row -> the scores.json of each of its seeds."""
    accuracy = {row: _means(found, ACCURACY.key, ACCURACY.scale) for row, found in runs.items()}
    for row, found in runs.items():
        if found and all(f"macro_{ACCURACY.key}" in run for run in found):
            accuracy[row][MACRO] = ACCURACY.scale * fmean(run[f"macro_{ACCURACY.key}"] for run in found)
    parts = {row: _means(found, "perplexity_of_parts") for row, found in runs.items()}
    return Besides(accuracy, parts, {row: _means(found, "perplexity_of_parts_sd") for row, found in runs.items()})


def _means(runs: Sequence[Json], key: str, scale: float = 1.0) -> dict[str, float]:
    """Site -> mean over the runs, where all of them tell it."""
    sites = dict.fromkeys(site for run in runs for site in run["sites"])
    values = {site: [run["sites"].get(site, {}).get(key) for run in runs] for site in sites}
    return {site: scale * fmean(each) for site, each in values.items() if None not in each}


def csv_columns(told: Besides, sites: Sequence[str]) -> dict[str, tuple[Told, str]]:
    """Column of table.csv -> where its values stand; nothing of what no row tells."""
    columns = {f"{ACCURACY_OF}{site}": (told.accuracy, site) for site in sites} | {MACRO_ACCURACY: (told.accuracy, MACRO)}
    for site in sites:
        columns |= {f"{PARTS_OF}{site}": (told.parts, site), f"{PARTS_SD_OF}{site}": (told.parts_sd, site)}
    return {name: (of, site) for name, (of, site) in columns.items() if any(site in row for row in of.values())}


def accuracy_rows(told: Besides, sites: Sequence[str]) -> list[list[str]]:
    """Header and rows: masked pieces guessed, in %; empty where no row tells."""
    rows = [[row, *(units.score(values.get(site)) for site in [*sites, MACRO])] for row, values in told.accuracy.items()]
    return [["method", *sites, MACRO], *rows] if any(told.accuracy.values()) else []


def parts_rows(told: Besides, sites: Sequence[str]) -> list[list[str]]:
    """Header and rows: mean ± standard deviation over the parts of each site's text; empty where no row tells."""
    rows = [
        [row, *(mean_and_sd(values.get(site), told.parts_sd[row].get(site)) for site in sites)]
        for row, values in told.parts.items()
    ]
    return [["method", *sites], *rows] if any(told.parts.values()) else []


def mean_and_sd(mean: float | None, sd: float | None) -> str:
    """As table 7 has it."""
    return units.NOTHING if mean is None else f"{units.score(mean)} ± {units.score(sd)}"
