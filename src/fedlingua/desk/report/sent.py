"""Which shares of their updates sites sent in each round, under which threshold, and how far their tensors moved."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import plotly.graph_objects as go

from fedlingua.desk import units
from fedlingua.desk.json_values import number, sequence, whole
from fedlingua.desk.report import canvas
from fedlingua.desk.report.read import RunContent, read_lines

FILE = "deviations.jsonl"
BINS = 40

Deviations = dict[int, dict[str, list[float | None]]]
"""round -> site -> deviation of each tensor of its update; None if the tensor was zero before and cannot be compared."""


@dataclass(frozen=True)
class Spread:
    """The mean and range of a value over the sites of one round."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        """Return a share as text: its mean and its range over sites."""
        return f"{units.share(self.mean)}, by site {units.share(self.low)} to {units.share(self.high)}"


@dataclass(frozen=True)
class Sent:
    """What sites sent, as shares of an update, 0-1. Every mapping is by round and contains only known values.

    sites: All sites that sent, in the order of the run's other plots. tensors, numbers: The shares sent. thresholds: Learned, one for all
    sites, as in `Round`. own_thresholds: Fixed or random, one per site. medians: Each site's median deviation. deviations_note: Why
    deviations are missing, or "". tensor_saving, number_saving: The share not sent, as a mean over sites and the rounds so far.
    """

    sites: list[str]
    tensors: dict[int, Spread]
    numbers: dict[int, Spread]
    thresholds: dict[int, dict[str, float]]
    own_thresholds: dict[int, Spread]
    medians: dict[int, Spread]
    deviations: Deviations
    deviations_note: str
    tensor_saving: float | None
    number_saving: float | None

    @property
    def scale(self) -> float | None:
        """The initial value of a learned threshold, from the first round that has one."""
        return next((each["scale"] for each in self.thresholds.values() if "scale" in each), None)

    def theta(self, index: int) -> float | None:
        """Return the threshold that all sites had in a round; None if it differed between sites or is unknown."""
        if index in self.thresholds:
            return self.thresholds[index]["theta"]
        own = self.own_thresholds.get(index)
        return own.mean if own and own.low == own.high else None


def what_was_sent(folder: RunContent) -> Sent | None:
    """Return what the sites of a run sent; None for a run in which they send whole updates."""
    deviations, note = read_deviations(folder.path / FILE)
    thresholds = {each.number: each.threshold for each in folder.rounds if "theta" in each.threshold}
    tensors, numbers = _by_round(folder, "tensors_share"), _by_round(folder, "numbers_share")
    if not (tensors or numbers or thresholds or deviations or note):
        return None
    of_deviations = [site for of_round in deviations.values() for site in of_round]
    sites = list(dict.fromkeys([*folder.round_sites, *of_deviations]))
    own, medians = _by_round(folder, "theta"), _by_round(folder, "deviation")
    savings = (_saving(folder, f"{what}_saving", f"{what}s_share") for what in ("tensor", "number"))
    return Sent(sites, tensors, numbers, thresholds, own, medians, deviations, note, *savings)


def read_deviations(path: Path) -> tuple[Deviations, str]:
    """Return the deviations by round, and a note on unreadable lines.

    If a site has two lines for a round, as after a restart, the later one counts.
    """
    lines, note = read_lines(path, _line) if path.exists() else ([], "")
    rounds: Deviations = {}
    for index, site, deviations in lines:
        rounds.setdefault(index, {})[site] = deviations
    return dict(sorted(rounds.items())), note


def _line(content: dict[str, Any]) -> tuple[int, str, list[float | None]] | None:
    """Return (round, site, the site's deviations); None for an incomplete line."""
    index, site = whole(content.get("round")), content.get("site")
    if index is None or not isinstance(site, str):
        return None
    values = [number(value) for value in sequence(content.get("deviations"))]
    return index, site, [None if value is None or value < 0 else value for value in values]


def _by_round(folder: RunContent, figure: str) -> dict[int, Spread]:
    by_round = {each.number: _known(getattr(site, figure) for site in each.sites.values()) for each in folder.rounds}
    return {index: Spread(fmean(values), min(values), max(values)) for index, values in by_round.items() if values}


def _saving(folder: RunContent, saving: str, share: str) -> float | None:
    """Return a saving from the scores, or else from the rounds so far."""
    of_scores = number(folder.summary.get(saving))
    sent = _known(getattr(site, share) for each in folder.rounds for site in each.sites.values())
    return 1 - fmean(sent) if of_scores is None and sent else of_scores


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def share_plot(sent: Sent) -> go.Figure:
    """Plot the shares of tensors and of numbers sent, by round (MetaSend's journal version, figure 7)."""
    figure = go.Figure()
    for name, shares, color in (("tensors", sent.tensors, canvas.UP), ("numbers", sent.numbers, canvas.DOWN)):
        points = {index: 100 * share.mean for index, share in shares.items()}
        look: canvas.Look = {"line_color": color, "line_width": 3, "customdata": [str(share) for share in shares.values()]}
        canvas.line(figure, points, name, f"round %{{x}}, {name}<br>%{{customdata}}", **look)
    canvas.frame(figure, 300, "round", "sent of an update, %, mean over sites")
    canvas.round_axis(figure, [*sent.tensors, *sent.numbers])
    figure.update_yaxes(range=[-4, 104], tickvals=[0, 25, 50, 75, 100])
    figure.update_layout(showlegend=True)
    return figure


def threshold_plot(sent: Sent) -> go.Figure:
    """Plot the threshold by round with the median deviation and, if learned, its initial value (MetaSend's journal version, figure 9).

    If every site has its own threshold, plot their mean, least and greatest.
    """
    own = sent.own_thresholds if not sent.thresholds else {}
    theta = {i: each["theta"] for i, each in sent.thresholds.items()} or {i: each.mean for i, each in own.items()}
    medians = {index: each.mean for index, each in sent.medians.items()}
    lines: dict[str, tuple[Mapping[int, float], dict[str, Any]]] = {}
    lines["median deviation"] = medians, {"width": 2, "color": canvas.BEFORE, "dash": "dash"}
    tried = {index: each["mu"] for index, each in sent.thresholds.items() if each.get("mu", each["theta"]) != each["theta"]}
    if tried:  # theta was drawn at random around mu
        lines["the network's own"] = tried, {"width": 2, "color": canvas.DOWN}
    lines["threshold"] = theta, {"width": 3, "color": canvas.UP}
    if any(each.low < each.high for each in own.values()):
        end = {"width": 1.5, "color": canvas.UP, "dash": "dot"}
        lines["least of the sites'"] = {i: each.low for i, each in own.items()}, end
        lines["greatest"] = {i: each.high for i, each in own.items()}, end
    figure = go.Figure()
    for name, (values, look) in lines.items():
        canvas.line(figure, values, name, f"round %{{x}}<br>{name} %{{y:.3g}}", line=look)
    canvas.frame(figure, height=340, x_title="round", y_title="deviation")
    if sent.scale is not None:
        figure.add_hline(y=sent.scale, line=canvas.DOTTED)
    figure.update_layout(showlegend=True)
    canvas.round_axis(figure, theta)
    shown = _known([sent.scale, *(value for values, _ in lines.values() for value in values.values())])
    figure.update_yaxes(exponentformat="power", type="log" if min(shown, default=0.0) > 0 else None)
    return figure


def deviation_plot(sent: Sent) -> go.Figure:
    """Plot histograms of the tensors' deviations, one panel per round, titled with its threshold (MetaSend, figure 1)."""
    rounds = {index: sent.deviations[index] for index in shown_rounds(sent.deviations)}
    edges = bin_edges([value for sites in rounds.values() for values in sites.values() for value in values if value])
    by_site = [_counts(sites, sent.sites, edges) for sites in rounds.values()]
    titles = [f"round {i}" + ("" if (theta := sent.theta(i)) is None else f", threshold {theta:.2g}") for i in rounds]
    figure = canvas.stacked(titles, 0.2 / len(rounds))
    bins = list(pairwise(edges))
    centres = [(low + high) / 2 for low, high in bins]
    look: canvas.Look = {"width": [high - low for low, high in bins], "col": 1}
    look["customdata"] = [f"{low:.2g} to {high:.2g}" for low, high in bins]
    for row, sites in enumerate(by_site, start=1):
        for place, (site, counts) in enumerate(sites.items()):
            style = look | {"marker": {"color": canvas.colour(place), "line": {"width": 0}}, "row": row, "showlegend": row == 1}
            name = escape(site).replace("%{", "% {")  # "%{" would be read as a placeholder
            hover = f"{name}: %{{y}} tensors<br>deviation %{{customdata}}"
            canvas.bars(figure, centres, counts, canvas.short(site), hover, legendgroup=site, **style)
    canvas.frame_stacked(figure, 90 + 150 * len(rounds), "deviation")
    figure.update_layout(barmode="stack", bargap=0, showlegend=True)
    figure.update_yaxes(matches="y", nticks=4, title_text="tensors")
    figure.update_xaxes(type="log", exponentformat="power")
    return figure


def shown_rounds(deviations: Deviations) -> list[int]:
    """Return the first, the middle and the last round in which any tensor moved."""
    known = [index for index, sites in deviations.items() if any(value for values in sites.values() for value in values)]
    return sorted({known[0], known[(len(known) - 1) // 2], known[-1]}) if known else []


def not_drawn(deviations: Deviations) -> tuple[int, int]:
    """Count the tensors that the drawn rounds leave out: (tensors that did not move, tensors that were zero before)."""
    shown = [value for index in shown_rounds(deviations) for values in deviations[index].values() for value in values]
    return shown.count(0.0), shown.count(None)


def bin_edges(values: Sequence[float]) -> Sequence[float]:
    """Return bin edges for the histograms of all rounds, which are comparable because they share them. values: Above 0."""
    low, high = min(values), max(values)
    if low == high:
        return [low / 1.1, low * 1.1]
    return [float(edge) for edge in np.geomspace(low, high, BINS + 1)]


def _counts(of_round: Mapping[str, Sequence[float | None]], sites: Sequence[str], edges: Sequence[float]) -> dict[str, list[int]]:
    """Return site -> number of tensors in each bin; all sites are counted together if they outnumber the colours."""
    moved = {site: [value for value in of_round.get(site, ()) if value] for site in sites}
    if len(sites) > len(canvas.PALETTE):
        moved = {"all sites": [value for values in moved.values() for value in values]}
    return {site: [int(count) for count in np.histogram(values, edges)[0]] for site, values in moved.items()}
