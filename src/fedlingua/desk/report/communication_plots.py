"""Figure 1 of Liu et al. 2023: transfer time of a round as bars, its share of the round as a line beside them."""

import math
from collections.abc import Mapping, Sequence
from html import escape

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from fedlingua.common import units
from fedlingua.desk.report.canvas import DOWN, INK, PALETTE, TWO_PANELS, UP, frame, keep_wide, row_axis
from fedlingua.desk.report.communication import Cost

COLOURS = (UP, DOWN, *PALETTE[1:4])
MARKS = ("circle", "diamond", "square", "cross", "x")


def cost_plot(
    rows: Sequence[str], series: Mapping[str, Sequence[Cost | None]], log: bool = False, longest: int = 18
) -> go.Figure:
    """A bar of transfer time for each row and series, and in a panel beside it the share of the round.

    `series`: name -> a cost for each row, None where it is not known. `log`: for rows that lie powers of ten apart.
    """
    with_share = any(cost is not None and cost.share is not None for costs in series.values() for cost in costs)
    titles = ["transfer time of a round", "its share of the round"][: 1 + with_share]
    widths = [0.62, 0.38][: 1 + with_share]
    figure = make_subplots(
        cols=len(titles), shared_yaxes=True, horizontal_spacing=0.06, column_widths=widths, subplot_titles=titles
    )
    for index, (name, costs) in enumerate(series.items()):
        _add_bars(figure, rows, name, costs, index, log)
        if with_share:
            _add_shares(figure, rows, name, costs, index)
    frame(figure, height=110 + (14 + 22 * len(series)) * len(rows))
    figure.update_annotations(font={"size": 13, "color": INK})
    if with_share:
        keep_wide(figure, TWO_PANELS)
    figure.update_layout(barmode="group", bargap=0.3, showlegend=len(series) > 1, legend_traceorder="normal")
    row_axis(figure, rows, longest)
    _time_axis(figure, [cost.transfer_s for costs in series.values() for cost in costs if cost is not None], log)
    if with_share:
        figure.update_xaxes(title_text="%", range=[-4, 104], tickvals=[0, 25, 50, 75, 100], row=1, col=2)
        figure.update_yaxes(showticklabels=False, row=1, col=2)
    return figure


def _add_bars(figure: go.Figure, rows: Sequence[str], name: str, costs: Sequence[Cost | None], index: int, log: bool) -> None:
    shown = [None if cost is None or (log and not cost.transfer_s) else cost.transfer_s for cost in costs]
    figure.add_bar(
        x=shown,
        y=list(range(len(rows))),
        name=escape(name),
        legendgroup=name,
        orientation="h",
        marker={"color": COLOURS[index % len(COLOURS)]},
        text=["" if value is None else units.transfer(value) for value in shown],
        textposition="outside",
        textfont={"color": INK, "size": 12},
        cliponaxis=False,
        hovertext=[_hover(row, name, cost) for row, cost in zip(rows, costs, strict=True)],
        hovertemplate="%{hovertext}<extra></extra>",
        row=1,
        col=1,
    )


def _add_shares(figure: go.Figure, rows: Sequence[str], name: str, costs: Sequence[Cost | None], index: int) -> None:
    colour = COLOURS[index % len(COLOURS)]
    figure.add_scatter(
        x=[None if cost is None or cost.share is None else 100 * cost.share for cost in costs],
        y=list(range(len(rows))),
        name=escape(name),
        legendgroup=name,
        showlegend=False,
        mode="lines+markers",
        line={"color": colour, "width": 2},
        marker={"size": 9, "symbol": MARKS[index % len(MARKS)], "color": colour},
        hovertext=[_hover(row, name, cost) for row, cost in zip(rows, costs, strict=True)],
        hovertemplate="%{hovertext}<extra></extra>",
        row=1,
        col=2,
    )


def _hover(row: str, name: str, cost: Cost | None) -> str:
    if cost is None:
        return ""
    told = f"up {units.transfer(cost.up_s)}, down {units.transfer(cost.down_s)}"
    training = "" if cost.share is None else f"<br>{units.share(cost.share)} of the round"
    return f"{escape(row)}, {escape(name)}<br>{told}{training}"


def _time_axis(figure: go.Figure, seconds: Sequence[float], log: bool) -> None:
    """Seconds, with room at the end for the figure that stands beside the longest bar."""
    known = [value for value in seconds if value > 0]
    if log and known:
        low, high = math.floor(math.log10(min(known))) - 0.3, math.log10(max(known))
        room = (high - low) * 0.3
        powers = range(math.ceil(low), math.floor(high + room) + 1)
        ticks = {"tickvals": [10.0**each for each in powers], "ticktext": [f"{10.0**each:,.10g}" for each in powers]}
        figure.update_xaxes(type="log", range=[low, high + room], row=1, col=1, **ticks)
        figure.update_xaxes(title_text="seconds, each line ten times the one before", row=1, col=1)
    else:
        figure.update_xaxes(title_text="seconds", range=[0, 1.4 * max(known, default=1.0)], nticks=6, row=1, col=1)
