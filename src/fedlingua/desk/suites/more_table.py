"""What a suite's table tells of the metrics that its runs measure besides BLEU and chrF: COMET's tables of MetaSend, and the like."""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from fedlingua.common import units
from fedlingua.settings.metrics import OF_TEXT, Metric

MACRO = "macro"

Json = Mapping[str, Any]
Runs = Mapping[str, Sequence[Json]]
"""Row -> the scores.json of each of its seeds."""
Told = Mapping[str, Mapping[str, float]]
"""Row -> column -> mean over its seeds."""


def more_metrics(runs: Runs) -> list[Metric]:
    """Those that any run measures besides."""
    found = {
        key
        for of_row in runs.values()
        for run in of_row
        for entry in run["sites"].values()
        for key in entry.get("signatures", {})
    }
    return [metric for metric in OF_TEXT.values() if metric.key in found]


def csv_columns(runs: Runs) -> dict[str, tuple[Told, str]]:
    """Column of table.csv -> where its values stand: the mean over sites, and its standard deviation over seeds."""
    columns: dict[str, tuple[Told, str]] = {}
    for metric in more_metrics(runs):
        name = f"macro_{metric.key}"
        values = {row: [run[name] for run in of_row if name in run] for row, of_row in runs.items()}
        columns[name] = ({row: {name: fmean(each)} for row, each in values.items() if each}, name)
        deviations = {row: {name: stdev(each)} for row, each in values.items() if len(each) > 1}
        columns[f"{name}_sd"] = (deviations, name)
    return {name: ({row: told.get(row, {}) for row in runs}, column) for name, (told, column) in columns.items()}


def metric_rows(runs: Runs, metric: Metric, sites: Sequence[str]) -> list[list[str]]:
    """Header and rows: each site's score and the mean over sites, mean ± sample standard deviation over seeds."""
    rows = []
    for row, of_row in runs.items():
        columns = [[run["sites"].get(site, {}).get(metric.key) for run in of_row] for site in sites]
        columns.append([run.get(f"{MACRO}_{metric.key}") for run in of_row])
        rows.append([row, *(_shown([metric.scale * value for value in values if value is not None]) for values in columns)])
    return [["method", *sites, MACRO], *rows]


def signatures(runs: Runs, metric: Metric) -> list[str]:
    """How it was measured, each way once."""
    told = (
        entry.get("signatures", {}).get(metric.key)
        for of_row in runs.values()
        for run in of_row
        for entry in run["sites"].values()
    )
    return list(dict.fromkeys(signature for signature in told if signature))


def _shown(values: Sequence[float]) -> str:
    if not values:
        return units.NOTHING
    mean = units.score(fmean(values))
    return f"{mean} ± {units.score(stdev(values))}" if len(values) > 1 else mean
