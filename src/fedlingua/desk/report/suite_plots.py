"""The plots of a suite's page, each a function of its result alone."""

from collections.abc import Mapping, Sequence
from html import escape

import plotly.graph_objects as go

from fedlingua.common import units
from fedlingua.desk.report.canvas import (
    BEFORE,
    DASHES,
    GRID,
    INK,
    PALETTE,
    UP,
    WORSE,
    frame,
    keep_wide,
    round_step,
    row_axis,
    short,
)
from fedlingua.desk.report.communication import Cost
from fedlingua.desk.report.communication_plots import cost_plot
from fedlingua.desk.report.convergence import ALL, Curve
from fedlingua.desk.report.suite_result import SuiteResult

LONGEST_ROW = 26
# Nothing gained is the ground itself; neither end is so strong that the figure on it could not be read.
LOST = [[0.0, "rgba(213, 94, 0, 0.75)"], [0.5, "rgba(213, 94, 0, 0.03)"]]
GAINED = [[0.5, "rgba(0, 114, 178, 0.03)"], [1.0, "rgba(0, 114, 178, 0.6)"]]


def macro_plot(result: SuiteResult) -> go.Figure:
    """Macro score of each row: every seed a point, the mean with its standard deviation, the paper's beside."""
    rows = result.rows
    places = list(range(len(rows)))
    names = [escape(row.name) for row in rows]
    figure = go.Figure()
    _add_seeds(figure, result)
    figure.add_scatter(
        x=[row.macro for row in rows],
        y=places,
        name="mean ± sd",
        mode="markers",
        marker={"size": 11, "color": UP},
        error_x={"array": [row.macro_sd or 0.0 for row in rows], "color": UP, "thickness": 2.5, "width": 6},
        text=names,
        customdata=[units.score(row.macro_sd) for row in rows],
        hovertemplate="%{text}<br>%{x:.2f} ± %{customdata}<extra></extra>",
    )
    if result.paper:
        figure.add_scatter(
            x=[result.paper.rows.get(row.name, {}).get("macro") for row in rows],
            y=places,
            name="the paper's",
            mode="markers",
            marker={"size": 11, "symbol": "diamond-open", "color": WORSE, "line": {"width": 2}},
            text=names,
            hovertemplate="%{text}, the paper's<br>%{x:.2f}<extra></extra>",
        )
    frame(figure, height=120 + 30 * len(rows), x_title=f"macro {result.metric.name}")
    if result.base_macro is not None:
        figure.add_vline(x=result.base_macro, line={"color": INK, "width": 1.5, "dash": "dot"})
    row_axis(figure, [row.name for row in rows], LONGEST_ROW)
    return figure


def gain_plot(result: SuiteResult, base: Mapping[str, float], left_out: str) -> go.Figure:
    """How much better each row is at each site than what is there already, as a heat map with its figures. left_out: rows whose name begins
    so, which would be held against themselves.
    """
    rows = [row for row in result.rows if not row.name.startswith(left_out)]
    cells = [[result.gain(row.sites.get(site), base.get(site)) for site in result.sites] for row in rows]
    reach = max((abs(value) for line in cells for value in line if value is not None), default=1.0) or 1.0
    figure = go.Figure()
    figure.add_heatmap(
        z=cells,
        x=list(range(len(result.sites))),
        y=list(range(len(rows))),
        colorscale=LOST + GAINED,
        zmin=-reach,
        zmax=reach,
        xgap=2,
        ygap=2,
        text=[["" if value is None else f"{round(value, 1) + 0.0:+.1f}" for value in line] for line in cells],
        texttemplate="%{text}",
        textfont={"size": 11 if len(result.sites) <= 12 else 10, "color": INK},
        customdata=[[f"{escape(row.name)} at {escape(site)}" for site in result.sites] for row in rows],
        hovertemplate="%{customdata}<br>%{z:+.2f} " + result.metric.name + "<extra></extra>",
        hoverongaps=False,
        showscale=False,
    )
    frame(figure, height=60 + 9 * _longest(result.sites) + 27 * len(rows))
    keep_wide(figure, 8 * _longest([row.name for row in rows]) + 44 * len(result.sites))
    row_axis(figure, [row.name for row in rows], LONGEST_ROW)
    figure.update_yaxes(showgrid=False)
    ticks = {"tickvals": list(range(len(result.sites))), "ticktext": [short(site) for site in result.sites]}
    figure.update_xaxes(side="top", showgrid=False, tickangle=-90, **ticks)
    return figure


def convergence_curves(result: SuiteResult) -> dict[str, dict[str, Curve]]:
    """Text -> row -> its dev perplexity by round; of the text of all sites and that of each, as far as it was measured."""
    return {text: curves for text in (ALL, *result.sites) if (curves := result.convergence(text))}


def convergence_plot(result: SuiteResult, texts: Mapping[str, Mapping[str, Curve]]) -> go.Figure:
    """Dev perplexity by round, a line a row; a menu chooses between the texts, of `convergence_curves`. On a logarithmic axis."""
    place = {row.name: index for index, row in enumerate(result.rows)}
    drawn = [(text, row, curve) for text, curves in texts.items() for row, curve in curves.items()]
    first = next(iter(texts))
    figure = go.Figure()
    for text, row, curve in drawn:
        index = place[row]
        figure.add_scatter(
            x=list(curve),
            y=list(curve.values()),
            name=short(row, LONGEST_ROW),
            mode="lines+markers",
            visible=text == first,
            line={"width": 2, "color": PALETTE[index % len(PALETTE)], "dash": DASHES[index // len(PALETTE) % len(DASHES)]},
            marker={"size": 5},
            text=[f"{escape(row)}, {escape(text)}"] * len(curve),
            hovertemplate="%{text}<br>round %{x}<br>%{y:.2f}<extra></extra>",
        )
    legend_rows = (max(len(curves) for curves in texts.values()) + 2) // 3
    frame(figure, height=420 + 20 * legend_rows, x_title="round", y_title=f"dev {result.metric.name}")
    figure.update_xaxes(tickformat="d", dtick=round_step(index for *_, curve in drawn for index in curve))
    figure.update_yaxes(type="log")
    choices = [
        {"label": short(text), "method": "restyle"} | {"args": [{"visible": [of == text for of, *_ in drawn]}]} for text in texts
    ]
    menu = {"buttons": choices, "x": 1, "xanchor": "right", "y": 1, "yanchor": "top"}
    menu |= {
        "bgcolor": "#eeeeee",
        "bordercolor": GRID,
        "font": {"color": "#222222"},
    }  # plotly's own mark of a choice is light on any ground
    figure.update_layout(updatemenus=[menu] if len(choices) > 1 else [], showlegend=True)
    return figure


def suite_cost_plot(costs: dict[str, Cost]) -> go.Figure:
    """Transfer time and share of each row that is known, at one bandwidth."""
    return cost_plot(list(costs), {"a round": list(costs.values())}, longest=LONGEST_ROW)


def _add_seeds(figure: go.Figure, result: SuiteResult) -> None:
    """Every run at its place; a little above the mean's line, so that neither hides the other."""
    points = [
        (run.macro, place - 0.3, f"{escape(row.name)}, seed {escape(run.seed)}")
        for place, row in enumerate(result.rows)
        for run in result.runs_of(row.name)
        if run.macro is not None
    ]
    figure.add_scatter(
        x=[point[0] for point in points],
        y=[point[1] for point in points],
        name="a seed",
        mode="markers",
        marker={"size": 7, "color": BEFORE, "opacity": 0.8},
        text=[point[2] for point in points],
        hovertemplate="%{text}<br>%{x:.2f}<extra></extra>",
    )


def _longest(names: Sequence[str]) -> int:
    """Characters of the longest label as a tick shows it."""
    return max((len(short(name)) for name in names), default=0)
