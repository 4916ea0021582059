"""The plots of what was sent: its share beside the dev loss, the learned threshold, and the deviations that it cuts."""

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from fedlingua.common import units
from fedlingua.desk.report.canvas import BEFORE, DOWN, INK, PALETTE, UP, frame, round_step, title_panels
from fedlingua.desk.report.deviations import Deviations, SiteDeviations
from fedlingua.desk.report.read import Round
from fedlingua.desk.report.sent import Sent, Spread

BINS = 40
SPREAD = 20.0
"""Values that lie further apart than this, the greatest to the least, go on an axis of powers of ten."""
FAR = 100.0
"""A threshold this many times beyond all deviations is told and not drawn: it would leave no room for them."""


def share_plot(rounds: Sequence[Round], sent: Sent) -> go.Figure:
    """Dev loss over the share of tensors and of numbers that were sent, by round: MetaSend's journal, figure 7."""
    titles = ["dev loss, nats a token", "sent of an update, %, mean over sites"]
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.14, subplot_titles=titles)
    figure.add_scatter(
        x=[each.number for each in rounds],
        y=[each.dev_loss for each in rounds],
        name="dev loss",
        mode="lines+markers",
        line={"width": 3, "color": INK},
        hovertemplate="round %{x}<br>dev loss %{y:.4f}<extra></extra>",
        row=1,
        col=1,
    )
    for name, shares, colour in (("tensors", sent.tensors, UP), ("numbers", sent.numbers, DOWN)):
        figure.add_scatter(
            x=list(shares),
            y=[100 * share.mean for share in shares.values()],
            name=name,
            mode="lines+markers",
            line={"width": 3, "color": colour},
            customdata=[_told(share) for share in shares.values()],
            hovertemplate="round %{x}, " + name + "<br>%{customdata}<extra></extra>",
            row=2,
            col=1,
        )
    frame(figure, height=480)
    title_panels(figure)
    figure.update_xaxes(tickformat="d", dtick=round_step(each.number for each in rounds))
    figure.update_xaxes(title={"text": "round", "standoff": 6}, row=2, col=1)
    figure.update_yaxes(range=[-4, 104], tickvals=[0, 25, 50, 75, 100], row=2, col=1)
    return figure


def threshold_plot(rounds: Sequence[Round], sent: Sent) -> go.Figure:
    """The threshold by round, beside the deviations' median and, where it is learned, where it began: MetaSend's journal, figure 9.

    Of thresholds that every site has for itself their mean, between the least and the greatest.
    """
    theta = {index: each.theta for index, each in sent.thresholds.items() if each.theta is not None}
    own = sent.own_thresholds if not theta else {}
    ends = {
        "least of the sites'": {i: each.low for i, each in own.items()},
        "greatest": {i: each.high for i, each in own.items()},
    }
    theta |= {index: each.mean for index, each in own.items()}
    tried = {index: each.mu for index, each in sent.thresholds.items() if each.mu is not None and each.mu != each.theta}
    medians = {index: each.mean for index, each in sent.medians.items()}
    figure = go.Figure()
    _add_by_round(figure, medians, "median deviation", {"width": 2, "color": BEFORE, "dash": "dash"})
    if tried:  # theta is then drawn around what the network says
        _add_by_round(figure, tried, "the network's own", {"width": 2, "color": DOWN})
    _add_by_round(figure, theta, "threshold", {"width": 3, "color": UP})
    if any(each.low < each.high for each in own.values()):
        for name, values in ends.items():
            _add_by_round(figure, values, name, {"width": 1.5, "color": UP, "dash": "dot"})
    frame(figure, height=340, x_title="round", y_title="deviation")
    if sent.scale is not None:
        figure.add_hline(y=sent.scale, line={"color": INK, "width": 1.5, "dash": "dot"})
    figure.update_layout(showlegend=True)
    figure.update_xaxes(tickformat="d", dtick=round_step(each.number for each in rounds))
    shown = [*theta.values(), *tried.values(), *medians.values(), *([] if sent.scale is None else [sent.scale])]
    shown += [value for values in ends.values() for value in values.values()]
    figure.update_yaxes(**_axis(shown))
    return figure


def deviation_plot(sent: Sent) -> go.Figure:
    """Histograms of the deviations over tensors, a panel a round, with that round's threshold: MetaSend, figure 1."""
    found, shown = sent.deviations, shown_rounds(sent.deviations)
    edges = bin_edges([value for index in shown for site in found.rounds[index].values() for value in site.moved])
    by_site = {index: _counts(found.rounds[index], sent.sites, edges) for index in shown}
    top = max(int(np.sum(list(counts.values()), axis=0).max()) for counts in by_site.values())
    thetas = {index: sent.theta(index) for index in shown}
    titles = [_panel_title(index, thetas.get(index)) for index in shown]
    figure = make_subplots(rows=len(shown), cols=1, shared_xaxes=True, vertical_spacing=0.2 / len(shown), subplot_titles=titles)
    for row, index in enumerate(shown, start=1):
        for place, (site, counts) in enumerate(by_site[index].items()):
            _add_bars(figure, edges, site, counts, place, row)
        theta = thetas.get(index)
        if theta is not None and edges[0] / FAR < theta < edges[-1] * FAR:
            _add_threshold(figure, theta, top, row)
    frame(figure, height=90 + 150 * len(shown))
    title_panels(figure)
    figure.update_layout(barmode="stack", bargap=0, showlegend=True)
    figure.update_yaxes(range=[0, 1.08 * top], nticks=4, title_text="tensors")
    figure.update_xaxes(**_axis(edges))
    figure.update_xaxes(title={"text": "deviation", "standoff": 6}, row=len(shown), col=1)
    return figure


def shown_rounds(deviations: Deviations) -> list[int]:
    """The first, the middle and the last of the rounds in which a tensor moved."""
    known = [index for index, sites in deviations.rounds.items() if any(site.moved for site in sites.values())]
    return sorted({known[0], known[(len(known) - 1) // 2], known[-1]}) if known else []


def spans_decades(values: Sequence[float]) -> bool:
    """Whether values belong on an axis of powers of ten; it has no place for 0."""
    return len(values) > 0 and min(values) > 0 and max(values) > SPREAD * min(values)


def bin_edges(values: Sequence[float]) -> Sequence[float]:
    """Of the histograms of all rounds alike, so that what moves is the deviations. values: above 0."""
    low, high = min(values), max(values)
    if low == high:
        return [low / 1.1, low * 1.1]
    space = np.geomspace if spans_decades(values) else np.linspace
    return [float(edge) for edge in space(low, high, BINS + 1)]


def _counts(told: Mapping[str, SiteDeviations], sites: Sequence[str], edges: Sequence[float]) -> dict[str, list[int]]:
    """Site -> how many of its tensors lie in each bin; all together where there are more sites than colours."""
    moved = {site: told[site].moved if site in told else [] for site in sites}
    if len(sites) > len(PALETTE):
        moved = {"all sites": [value for values in moved.values() for value in values]}
    return {site: [int(count) for count in np.histogram(values, edges)[0]] for site, values in moved.items()}


def _add_bars(figure: go.Figure, edges: Sequence[float], site: str, counts: Sequence[int], place: int, row: int) -> None:
    bins = list(pairwise(edges))
    figure.add_bar(
        x=[(low + high) / 2 for low, high in bins],
        width=[high - low for low, high in bins],
        y=counts,
        name=escape(site),
        legendgroup=site,
        showlegend=row == 1,
        marker={"color": PALETTE[place % len(PALETTE)], "line": {"width": 0}},
        customdata=[f"{low:.2g} to {high:.2g}" for low, high in bins],
        hovertemplate="%{fullData.name}: %{y} tensors<br>deviation %{customdata}<extra></extra>",
        row=row,
        col=1,
    )


def _add_threshold(figure: go.Figure, theta: float, top: float, row: int) -> None:
    """A line from bottom to top, and no shape: so it has its name in the legend and can be pointed at."""
    figure.add_scatter(
        x=[theta, theta],
        y=[0, 1.08 * top],
        name="threshold",
        legendgroup="threshold",
        legendrank=2000,
        showlegend=not any(trace.name == "threshold" for trace in figure.data),
        mode="lines",
        line={"color": INK, "width": 2.5},
        hovertemplate="threshold %{x:.3g}<extra></extra>",
        row=row,
        col=1,
    )


def _add_by_round(figure: go.Figure, values: Mapping[int, float], name: str, line: Mapping[str, object]) -> None:
    figure.add_scatter(
        x=list(values),
        y=list(values.values()),
        name=name,
        mode="lines+markers",
        line=dict(line),
        hovertemplate="round %{x}<br>" + name + " %{y:.3g}<extra></extra>",
    )


def _axis(values: Sequence[float]) -> dict[str, object]:
    """The axis that the values go on; powers of ten alone are named where there are enough of them."""
    if not spans_decades(values):
        return {"exponentformat": "power"}
    return {"type": "log", "exponentformat": "power"} | ({"dtick": 1} if max(values) > SPREAD**2 * min(values) else {})


def _panel_title(index: int, theta: float | None) -> str:
    return f"round {index}" if theta is None else f"round {index}, threshold {theta:.2g}"


def _told(share: Spread) -> str:
    """The mean, and how far the sites lie apart."""
    return f"{units.share(share.mean)}, by site {units.share(share.low)} to {units.share(share.high)}"
