"""The page of a site's personalization: the sweep over alpha (Manoel et al. 2022, figure 3), the four models, alpha's path."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from fedlingua.common import units
from fedlingua.desk.report.canvas import BEFORE, DOWN, INK, UP, frame, title_panels
from fedlingua.desk.report.personal_table import MODELS, PersonalLine, metrics_of_table, personal_cells, personal_lines
from fedlingua.desk.report.publish import put_page, render_page
from fedlingua.desk.report.values import text
from fedlingua.settings.metrics import Metric

PAGE = "personalization.html"
LEARNED, CHOSEN = UP, DOWN
"""Colours of the two alphas."""

_TOLD_ELSEWHERE = {"apfl", "sweep", "test", "site", "direction"}


def write_personal_page(about: Mapping[str, Any], folder: Path) -> Path:
    """Write personalization.html beside the personalization.json that says `about`, and return its path.

    Raises:
        RunError: the folder cannot be written to.
    """
    return put_page(render_personal_page(about), folder / PAGE)


def render_personal_page(about: Mapping[str, Any]) -> str:
    """The page as text."""
    (line,), metrics = personal_lines([about]), metrics_of_table([about])
    return render_page(
        "personal.html",
        f"{about['site']}, personalized",
        {"sweep": sweep_plot(about, line, metrics[0]), "path": path_plot(about)},
        about=about,
        key_figures=_key_figures(about, line, metrics[0]),
        models=MODELS,
        alphas={"apfl": about["apfl"]["alpha"], "chosen": about["chosen_alpha"]},
        lines=[(metric.name, personal_cells(line, metric)) for metric in metrics],
        shown_settings={key: text(value) for key, value in about.items() if key not in _TOLD_ELSEWHERE},
        note=lambda name: f"{name} holds nothing to show.",
    )


def sweep_plot(about: Mapping[str, Any], line: PersonalLine, metric: Metric) -> go.Figure:
    """Dev loss by alpha, and below it the test metric of the four models; the two alphas go through both."""
    learned, chosen = about["apfl"], about["chosen_alpha"]
    figure = make_subplots(
        rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.12, subplot_titles=["dev loss, nats a token", f"test {metric.name}"]
    )
    frame(figure, height=520)
    title_panels(figure)
    figure.add_scatter(
        x=[one["alpha"] for one in about["sweep"]],
        y=[one["dev_loss"] for one in about["sweep"]],
        name="21 values",
        mode="lines+markers",
        line={"color": INK, "width": 1.6},
        marker={"size": 5},
        hovertemplate="alpha %{x:.2f}<br>dev loss %{y:.4f}<extra></extra>",
        row=1,
        col=1,
    )
    chosen_loss = next(one["dev_loss"] for one in about["sweep"] if one["alpha"] == chosen)
    marked = (("APFL's alpha", learned["alpha"], learned["dev_loss"], LEARNED), ("dev's alpha", chosen, chosen_loss, CHOSEN))
    # The wider line first, so that both are seen where they fall on each other.
    for (name, alpha, loss, colour), width in zip(marked, (5, 2), strict=True):
        figure.add_vline(x=alpha, line={"color": colour, "width": width}, opacity=0.6)
        figure.add_scatter(
            x=[alpha],
            y=[loss],
            name=f"{name}, {alpha:.2f}",
            mode="markers",
            marker={"size": 12, "color": colour, "symbol": "diamond"},
            hovertemplate=f"{name}, {alpha:.3f}<br>dev loss %{{y:.4f}}<extra></extra>",
            row=1,
            col=1,
        )
    places = {"federated": 0.0, "personal": 1.0, "apfl": learned["alpha"], "chosen": chosen}
    colours = {"federated": BEFORE, "personal": BEFORE, "apfl": LEARNED, "chosen": CHOSEN}
    for model, name in MODELS.items():
        figure.add_scatter(
            x=[places[model]],
            y=[metric.scale * line.values[metric.key][model]],
            name=name,
            showlegend=False,
            mode="markers",
            cliponaxis=False,
            marker={"size": 11, "color": colours[model]},
            hovertemplate=f"{name}<br>{metric.name} %{{y:.2f}}<extra></extra>",
            row=2,
            col=1,
        )
    figure.update_xaxes(range=[-0.02, 1.02], dtick=0.1, showticklabels=True)
    figure.update_xaxes(title_text="alpha: share of the site's own model", row=2, col=1)
    return figure


def path_plot(about: Mapping[str, Any]) -> go.Figure:
    """Alpha before each step and at the end."""
    steps, alphas = zip(*about["apfl"]["path"], strict=True)
    figure = go.Figure()
    figure.add_scatter(
        x=steps, y=alphas, mode="lines", line={"color": LEARNED, "width": 2}, hovertemplate="step %{x}: %{y:.3f}<extra></extra>"
    )
    frame(figure, height=260, x_title="step of training", y_title="alpha")
    figure.update_yaxes(range=[-0.03, 1.03])
    return figure


def _key_figures(about: Mapping[str, Any], line: PersonalLine, metric: Metric) -> list[tuple[str, str, str]]:
    values = {model: metric.scale * value for model, value in line.values[metric.key].items()}

    def told(model: str) -> tuple[str, str]:
        better = values[model] - values["federated"] if metric.more_is_better else values["federated"] - values[model]
        return units.score(values[model]), "" if model == "federated" else f"{units.gain(better)} over the federation's"

    return [
        *((f"{metric.name}, {name}", *told(model)) for model, name in MODELS.items()),
        ("took", units.duration(about["seconds"]), f"{about['training']['steps']} steps of training"),
    ]
