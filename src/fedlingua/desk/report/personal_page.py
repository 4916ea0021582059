"""Personalization at sites: tables over sites and a page per site, for the federation's model, the site's own and mixtures of both.

They correspond to table 6 of Manoel et al. 2022 and to figure 3, the sweep over alpha.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import plotly.graph_objects as go
from rich.table import Table
from rich.text import Text

from fedlingua.common import units
from fedlingua.desk.cli.output import plain_table
from fedlingua.desk.json_values import text
from fedlingua.desk.report.canvas import BEFORE, DOWN, INK, UP, Look, frame, frame_stacked, line, marks, stacked
from fedlingua.desk.report.publish import put_page, render_page
from fedlingua.desk.templates import markdown_table
from fedlingua.settings.metrics import METRICS, Metric

PAGE = "personalization.html"
MODELS = {
    "federated": "federated",
    "personal": "personal",
    "apfl": "APFL",
    "chosen": "dev's alpha",
    "alone": "alone",
    "kept": "kept",
}
"""Key of a model in personalization.json -> displayed name. Older results, from before sites chose, have only the first four."""
_BRIEF = {"federated": "fed.", "personal": "own", "apfl": "APFL", "chosen": "dev", "alone": "alone", "kept": "kept"}
"""Shorter names, for a terminal of 80 characters."""
LEARNED, CHOSEN = UP, DOWN
"""Colours of the learned alpha and of the alpha chosen on dev."""
DECIMALS = 6
_SHOWN_ELSEWHERE = {"apfl", "sweep", "test", "site", "direction", "choice"}


@dataclass(frozen=True)
class PersonalLine:
    """The values of a site, or their means over sites. values: Column of the CSV, "alpha_<which>" or "<metric>_<model>" -> value."""

    name: str
    values: Mapping[str, float]

    def scores(self, metric: Metric) -> dict[str, float]:
        """Return model -> its score, in the displayed unit."""
        of_metric = f"{metric.key}_"
        known = {name: value for name, value in self.values.items() if name.startswith(of_metric)}
        return {name.removeprefix(of_metric): metric.scale * value for name, value in known.items()}

    def cells(self, metrics: Sequence[Metric]) -> list[tuple[str, bool]]:
        """Return each model's displayed value and whether it is its metric's best; values that are displayed alike are equally good."""
        cells = []
        for metric in metrics:
            scores = self.scores(metric).values()
            best = units.score(metric.best(scores))
            cells += [(units.score(each), units.score(each) == best) for each in scores]
        return cells

    @property
    def shown_alphas(self) -> list[str]:
        return [f"{self.values[alpha]:.2f}" for alpha in ("alpha_apfl", "alpha_chosen")]


def personal_lines(results: Sequence[Mapping[str, Any]]) -> list[PersonalLine]:
    """Return a line for each personalization.json and, if there are several, one with their plain means."""
    keys, lines = [metric.key for metric in metrics_of_table(results)], []
    for each in results:
        values = {"alpha_apfl": each["apfl"]["alpha"], "alpha_chosen": each["chosen_alpha"]}
        values |= {f"{key}_{model}": each["test"][model][key] for key in keys for model in models_of(results)}
        lines.append(PersonalLine(each["site"], values))
    if len(lines) > 1:
        lines.append(PersonalLine("macro", {name: fmean(line.values[name] for line in lines) for name in lines[0].values}))
    return lines


def models_of(results: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the entries of MODELS that all results have."""
    return {model: name for model, name in MODELS.items() if all(model in each["test"] for each in results)}


def metrics_of_table(results: Sequence[Mapping[str, Any]]) -> tuple[Metric, Metric]:
    """Return the task's two metrics; for masked text accuracy comes first, as in table 6."""
    first, second = METRICS[results[0]["task"]]
    return (first, second) if first.more_is_better else (second, first)


def personal_table(results: Sequence[Mapping[str, Any]]) -> Table:
    lines, both = personal_lines(results), metrics_of_table(results)
    metrics: Sequence[Metric] = both[:1] if len(models_of(results)) > 4 else both  # as many as fit 80 characters
    table = plain_table(title=_title(results))
    table.add_column("site", overflow="fold")
    shown = [_BRIEF[model] for model in models_of(results)]
    for header in ("alpha\nAPFL", "alpha\ndev", *(f"{metric.short}\n{model}" for metric in metrics for model in shown)):
        table.add_column(header, justify="right")
    for place, each in enumerate(lines):
        if 0 < place == len(results):
            table.add_section()
        values = [Text(cell, style="bold" if best else "") for cell, best in each.cells(metrics)]
        table.add_row(Text(each.name), *each.shown_alphas, *values)
    return table


def personal_markdown(results: Sequence[Mapping[str, Any]]) -> str:
    """Return the same table as Markdown, with the signature of BLEU."""
    metrics = metrics_of_table(results)
    headers = ["site", "alpha APFL", "alpha dev"]
    headers += [f"{metric.short} {model}" for metric in metrics for model in models_of(results).values()]
    rows = [
        [each.name, *each.shown_alphas, *(f"**{cell}**" if best else cell for cell, best in each.cells(metrics))]
        for each in personal_lines(results)
    ]
    signatures = dict.fromkeys(each["test_split"].get("signature", "") for each in results)
    notes = "".join(f"\nBLEU: `{signature}`\n" for signature in signatures if signature)
    return f"{_title(results)}\n\n{markdown_table([headers, *rows])}\n{notes}"


def personal_csv(results: Sequence[Mapping[str, Any]]) -> str:
    """Return the same table as CSV, in plain numbers: accuracy 0-1, BLEU and chrF 0-100."""
    lines, output = personal_lines(results), io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(["site", *lines[0].values])
    for each in lines:
        values = each.values.values()
        writer.writerow([each.name, *(f"{value:.{DECIMALS}f}".rstrip("0").rstrip(".") for value in values)])
    return output.getvalue()


def _title(results: Sequence[Mapping[str, Any]]) -> str:
    first = results[0]
    return f"{first['run']}: personalized from round {first['round']}, seed {first['seed']}; test"


def write_personal_page(about: Mapping[str, Any], folder: Path) -> Path:
    """Write personalization.html for a personalization.json with the content `about` into `folder`, and return its path."""
    return put_page(render_personal_page(about), folder / PAGE)


def render_personal_page(about: Mapping[str, Any]) -> str:
    (of_site,), metrics = personal_lines([about]), metrics_of_table([about])
    return render_page(
        "personal.html",
        f"{about['site']}, personalized",
        {"sweep": sweep_plot(about, of_site, metrics[0]), "path": path_plot(about)},
        about=about,
        metric=metrics[0],
        values=of_site.scores(metrics[0]),
        models=models_of([about]),
        alphas={"apfl": about["apfl"]["alpha"], "chosen": about["chosen_alpha"]},
        lines=[(metric.name, of_site.cells([metric])) for metric in metrics],
        shown_settings={key: text(value) for key, value in about.items() if key not in _SHOWN_ELSEWHERE},
    )


def sweep_plot(about: Mapping[str, Any], of_site: PersonalLine, metric: Metric) -> go.Figure:
    """Plot dev loss by alpha and, below it, the test metric of the first four models; lines mark both alphas in both panels."""
    learned, chosen = about["apfl"], about["chosen_alpha"]
    losses = {each["alpha"]: each["dev_loss"] for each in about["sweep"]}
    figure = stacked(["dev loss, nats a token", f"test {metric.name}"], 0.12)
    thin = {"color": INK, "width": 1.6}
    line(figure, losses, "21 values", "alpha %{x:.2f}<br>dev loss %{y:.4f}", 1, line=thin, marker_size=5)
    alphas = (
        ("APFL's alpha", learned["alpha"], learned["dev_loss"], LEARNED),
        ("dev's alpha", chosen, losses[chosen], CHOSEN),
    )
    # The wider line is drawn first, so that both are visible where they coincide.
    for (name, alpha, loss, color), width in zip(alphas, (5, 2), strict=True):
        figure.add_vline(x=alpha, line={"color": color, "width": width}, opacity=0.6)
        diamond = {"size": 12, "color": color, "symbol": "diamond"}
        hover = f"{name}, {alpha:.3f}<br>dev loss %{{y:.4f}}"
        marks(figure, [alpha], [loss], f"{name}, {alpha:.2f}", hover, 1, marker=diamond)
    places = {"federated": 0.0, "personal": 1.0, "apfl": learned["alpha"], "chosen": chosen}
    colours = {"federated": BEFORE, "personal": BEFORE, "apfl": LEARNED, "chosen": CHOSEN}
    for model, name in list(models_of([about]).items())[:4]:
        look: Look = {"marker": {"size": 11, "color": colours[model]}, "showlegend": False, "cliponaxis": False}
        marks(figure, [places[model]], [of_site.scores(metric)[model]], name, f"{name}<br>{metric.name} %{{y:.2f}}", 2, **look)
    frame_stacked(figure, 520, "alpha: share of the site's own model")
    figure.update_xaxes(range=[-0.02, 1.02], dtick=0.1, showticklabels=True)
    return figure


def path_plot(about: Mapping[str, Any]) -> go.Figure:
    """Plot alpha before each step and at the end."""
    figure = go.Figure()
    thick = {"color": LEARNED, "width": 2}
    line(figure, dict(about["apfl"]["path"]), "", "step %{x}: %{y:.3f}", mode="lines", line=thick)
    frame(figure, height=260, x_title="step of training", y_title="alpha")
    figure.update_yaxes(range=[-0.03, 1.03])
    return figure
