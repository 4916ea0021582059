"""The plots of a comparison's page, each a function of the comparison alone."""

from collections.abc import Mapping, Sequence
from html import escape
from statistics import fmean

import plotly.graph_objects as go

from fedlingua.common import units
from fedlingua.desk.comparison.bootstrap import Difference
from fedlingua.desk.comparison.compare import Beside, Comparison
from fedlingua.desk.comparison.runs import ComparedRun
from fedlingua.desk.report.canvas import INK, PALETTE, frame, row_axis, short
from fedlingua.desk.report.pareto_plot import Point, pareto_plot
from fedlingua.settings.methods import CENTRALIZED, SILO

MACRO, POOLED = "macro", "pooled"
SIGNIFICANT = 0.05
"""A difference with a smaller p is told apart from chance."""
MARKS = ("circle", "diamond", "square", "cross", "x", "triangle-up")
LONGEST_RUN = 40
STEP = 0.6
"""Share of a row's height that its marks are spread over."""


def score_plot(found: Comparison) -> go.Figure:
    """Every run's score at each site, a mark a run."""
    figure = go.Figure()
    told = [escape(site) for site in found.scores]
    for index, run in enumerate(found.runs):
        values = [found.metric.scale * of_site[index] for of_site in found.scores.values()]
        rows = [row + _offset(index, len(found.runs)) for row in range(len(values))]
        _add_marks(figure, run.name, index, values, rows, told)
    _frame_rows(figure, list(found.scores), len(found.runs), found.metric.name)
    return figure


def difference_plot(found: Comparison) -> go.Figure:
    """By how much each run's score is above the first's: by site, of their mean, and pooled; with 95 % intervals where these are known.

    A mark that is hollow lies within what chance does.
    """
    rows = [*found.scores, MACRO, *([POOLED] if any(one.pooled for one in found.beside) else [])]
    figure = go.Figure()
    for index, one in enumerate(found.beside):
        differences = [_of_row(one, row) for row in rows]
        _add_differences(figure, one.run, index + 1, rows, differences, _offset(index, len(found.beside)), found.metric.scale)
    title = f"{found.metric.name} above {short(found.runs[0].name, LONGEST_RUN)}"
    _frame_rows(figure, rows, len(found.beside), title)
    _add_zero(figure)
    return figure


def gain_plot(found: Comparison) -> go.Figure:
    """By how much each site fares better with a run than with its own model; only runs that can be held against one."""
    shown = [
        (index, run.name, fair.gains)
        for index, (run, fair) in enumerate(zip(found.runs, found.fairness, strict=True))
        if fair.gains
    ]
    figure = go.Figure()
    for place, (index, name, gains) in enumerate(shown):
        values = [found.metric.scale * gains[site] if site in gains else None for site in found.scores]
        rows = [row + _offset(place, len(shown)) for row in range(len(found.scores))]
        _add_marks(figure, name, index, values, rows, [escape(site) for site in found.scores])
    _frame_rows(figure, list(found.scores), len(shown), f"{found.metric.name}, better than the site's own model")
    _add_zero(figure)
    return figure


def macro_of(found: Comparison, run: ComparedRun) -> float:
    """The mean over the sites that all runs have, as it is shown."""
    return found.metric.scale * fmean(run.values(found.metric.key)[site] for site in found.scores)


def price_points(found: Comparison, price: Mapping[str, float]) -> list[Point]:
    """The mean over sites against a price; price: run -> what it cost, of those runs where it is known."""
    points = []
    for run in found.runs:
        if run.name in price:
            macro = macro_of(found, run)
            told = f"{escape(run.name)}<br>{units.score(macro)}"
            points.append(Point(run.name, price[run.name], macro, told=told))
    return points


def bytes_of(runs: Sequence[ComparedRun]) -> dict[str, float]:
    """Run -> bytes that a site sent and was given in all rounds; not of runs that have the text of several sites in one place."""
    found = {}
    for run in runs:
        up, down, rounds = (run.costs[key] for key in ("uplink_bytes_per_round", "downlink_bytes_per_round", "rounds"))
        if not run.method.startswith((CENTRALIZED, SILO)) and up is not None and down is not None and rounds is not None:
            found[run.name] = (up + down) * rounds
    return found


def seconds_of(runs: Sequence[ComparedRun]) -> dict[str, float]:
    """Run -> seconds that it took, where it says so."""
    known = {run.name: run.costs["seconds"] for run in runs}
    return {name: seconds for name, seconds in known.items() if seconds is not None}


def bytes_plot(found: Comparison) -> go.Figure:
    """Quality against bytes."""
    price = bytes_of(found.runs)
    size, unit = units.byte_unit(max(price.values(), default=0.0))
    points = price_points(found, {name: value / size for name, value in price.items()})
    return pareto_plot(points, found.metric, False, f"up and down, a site, all rounds, {unit}")


def seconds_plot(found: Comparison) -> go.Figure:
    """Quality against time."""
    return pareto_plot(price_points(found, seconds_of(found.runs)), found.metric, False, "seconds of the whole run")


def _mark(index: int) -> str:
    """Another one where the colours start again, so that 36 runs look different."""
    return MARKS[(index + index // len(PALETTE)) % len(MARKS)]


def _of_row(one: Beside, row: str) -> Difference | None:
    return one.sites.get(row, one.macro if row == MACRO else one.pooled)


def _offset(place: int, number: int) -> float:
    """Of one of several marks in a row, from its middle."""
    return STEP * ((place + 0.5) / number - 0.5)


def _frame_rows(figure: go.Figure, rows: Sequence[str], series: int, x_title: str) -> None:
    frame(figure, height=110 + (18 + 12 * series) * len(rows) + 20 * series, x_title=x_title)
    figure.update_layout(showlegend=True)
    row_axis(figure, rows)


def _add_zero(figure: go.Figure) -> None:
    """Where nothing differs."""
    figure.add_vline(x=0, line={"color": INK, "width": 1.5, "dash": "dot"})


def _add_marks(
    figure: go.Figure, name: str, index: int, values: Sequence[float | None], rows: Sequence[float], told: Sequence[str]
) -> None:
    """index: the run's place among all, which decides its colour and mark in every plot."""
    colour = PALETTE[index % len(PALETTE)]
    figure.add_scatter(
        x=values,
        y=rows,
        name=short(name, LONGEST_RUN),
        mode="markers",
        marker={"size": 10, "color": colour, "symbol": _mark(index)},
        text=told,
        hovertemplate="%{text}<br>%{fullData.name}: %{x:.2f}<extra></extra>",
    )


def _add_differences(
    figure: go.Figure,
    name: str,
    index: int,
    rows: Sequence[str],
    differences: Sequence[Difference | None],
    offset: float,
    scale: float,
) -> None:
    known = [(place + offset, row, one) for place, (row, one) in enumerate(zip(rows, differences, strict=True)) if one]
    values = [scale * one.value for *_, one in known]
    colour, mark = PALETTE[index % len(PALETTE)], _mark(index)
    by_chance = [one.p is not None and one.p >= SIGNIFICANT for *_, one in known]
    error = {"color": colour, "thickness": 2, "width": 4, "symmetric": False}
    if any(one.p is not None for *_, one in known):
        error["array"] = [
            scale * (one.value if one.high is None else one.high) - value for (*_, one), value in zip(known, values, strict=True)
        ]
        error["arrayminus"] = [
            value - scale * (one.value if one.low is None else one.low) for (*_, one), value in zip(known, values, strict=True)
        ]
    figure.add_scatter(
        x=values,
        y=[place for place, *_ in known],
        name=short(name, LONGEST_RUN),
        mode="markers",
        marker={"size": 9, "color": colour, "symbol": [f"{mark}-open" if open_ else mark for open_ in by_chance]}
        | {"line": {"width": 2, "color": colour}},
        error_x=error if "array" in error else None,
        text=[_told(row, one, scale) for _, row, one in known],
        hovertemplate="%{text}<br>%{fullData.name}<extra></extra>",
    )


def _told(row: str, one: Difference, scale: float) -> str:
    told = (
        f"{escape(row)}<br>{units.score(scale * one.first)} → {units.score(scale * one.second)}, {units.gain(scale * one.value)}"
    )
    if one.low is None or one.high is None or one.p is None:
        return told
    return f"{told}<br>95 % from {units.gain(scale * one.low)} to {units.gain(scale * one.high)}, p = {one.p:.3f}"
