"""The federation's model, a site's own, and what lies between, site by site: Manoel et al. 2022, table 6."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from fedlingua.common import units
from fedlingua.settings.metrics import METRICS, Metric

MODELS = {"federated": "federated", "personal": "personal", "apfl": "APFL's alpha", "chosen": "dev's alpha"}
"""The models that are judged: as personalization.json names them, and for people."""
_BRIEF = ("fed.", "own", "APFL", "dev")
"""The same for a terminal of 80 characters."""
MACRO = "macro"
DECIMALS = 6


@dataclass(frozen=True)
class PersonalLine:
    """A site, or the mean over sites. alphas: learned, and chosen on dev. values: metric -> model -> value."""

    name: str
    alphas: tuple[float, float]
    values: Mapping[str, Mapping[str, float]]


def personal_lines(results: Sequence[Mapping[str, Any]]) -> list[PersonalLine]:
    """A line for each personalization.json, and of several their plain means."""
    lines = [
        PersonalLine(
            each["site"],
            (each["apfl"]["alpha"], each["chosen_alpha"]),
            {metric.key: {model: each["test"][model][metric.key] for model in MODELS} for metric in metrics_of_table(results)},
        )
        for each in results
    ]
    if len(lines) < 2:
        return lines
    means = {
        metric: {model: fmean(line.values[metric][model] for line in lines) for model in models}
        for metric, models in lines[0].values.items()
    }
    own, chosen = zip(*(line.alphas for line in lines), strict=True)
    return [*lines, PersonalLine(MACRO, (fmean(own), fmean(chosen)), means)]


def metrics_of_table(results: Sequence[Mapping[str, Any]]) -> tuple[Metric, Metric]:
    """Both of the task; of masked text accuracy goes first, as in table 6."""
    first, second = METRICS[results[0]["task"]]
    return (first, second) if first.more_is_better else (second, first)


def personal_cells(line: PersonalLine, metric: Metric) -> list[tuple[str, bool]]:
    """The models' values as they are shown, and whether each is the best of its line; what reads the same is equally good."""
    shown = {model: units.score(metric.scale * value) for model, value in line.values[metric.key].items()}
    best = units.score(metric.scale * metric.best(line.values[metric.key].values()))
    return [(text, text == best) for text in shown.values()]


def personal_table(results: Sequence[Mapping[str, Any]]) -> Table:
    """For a terminal."""
    lines, metrics = personal_lines(results), metrics_of_table(results)
    table = Table(title=_title(results), box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("site", overflow="fold")
    for header in ("alpha\nAPFL", "alpha\ndev", *(f"{metric.short}\n{model}" for metric in metrics for model in _BRIEF)):
        table.add_column(header, justify="right")
    for line in lines:
        if line.name == MACRO and line is lines[-1] and len(lines) > 1:
            table.add_section()
        values = [cell for metric in metrics for cell in personal_cells(line, metric)]
        table.add_row(
            Text(line.name),
            *(f"{alpha:.2f}" for alpha in line.alphas),
            *(Text(text, style="bold" if best else "") for text, best in values),
        )
    return table


def personal_markdown(results: Sequence[Mapping[str, Any]]) -> str:
    """The same as Markdown, with what it was measured by."""
    metrics = metrics_of_table(results)
    headers = _headers(metrics)
    rows = [headers, ["---", *["---:"] * (len(headers) - 1)]]
    for line in personal_lines(results):
        values = [cell for metric in metrics for cell in personal_cells(line, metric)]
        alphas = [f"{alpha:.2f}" for alpha in line.alphas]
        rows.append([line.name, *alphas, *(f"**{text}**" if best else text for text, best in values)])
    signed = list(dict.fromkeys(each["test_split"].get("signature", "") for each in results))
    notes = "".join(f"\nBLEU: `{signature}`\n" for signature in signed if signature)
    return f"{_title(results)}\n\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows) + notes


def personal_csv(results: Sequence[Mapping[str, Any]]) -> str:
    """The same as plain numbers: accuracy 0-1, BLEU and chrF 0-100."""
    metrics, output = metrics_of_table(results), io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(["site", "alpha_apfl", "alpha_chosen", *(f"{metric.key}_{model}" for metric in metrics for model in MODELS)])
    for line in personal_lines(results):
        values = [line.values[metric.key][model] for metric in metrics for model in MODELS]
        writer.writerow([line.name, *_rounded([*line.alphas, *values])])
    return output.getvalue()


def _headers(metrics: Sequence[Metric]) -> list[str]:
    return ["site", "alpha APFL", "alpha dev", *(f"{metric.short} {model}" for metric in metrics for model in MODELS.values())]


def _rounded(values: Sequence[float]) -> Iterator[str]:
    return (f"{value:.{DECIMALS}f}".rstrip("0").rstrip(".") for value in values)


def _title(results: Sequence[Mapping[str, Any]]) -> str:
    one = results[0]
    passes = "1 pass" if one["epochs"] == 1 else f"{one['epochs']} passes"
    return f"{one['run']}: personalized from round {one['round']}, {passes}, seed {one['seed']}; test"
