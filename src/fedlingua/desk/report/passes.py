"""The plot of dev loss by passes over a site's text: trained alone, and in the federation with further passes at the site."""

from collections.abc import Mapping, Sequence
from html import escape
from statistics import mean

import plotly.graph_objects as go

from fedlingua.desk.json_values import mapping, number, sequence
from fedlingua.desk.report import canvas
from fedlingua.desk.report.read import RunContent, read_object

Curve = Mapping[float, float]
"""Passes -> dev loss, in nats per token."""
WAYS = {"alone": "dot", "joined": "solid"}
"""Way of training -> the dash of its curve."""
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 2, 3, 5, 7, 10)


def passes_plot(folder: RunContent) -> go.Figure | None:
    """Plot the curves of each site with a folder in the run folder, and their means; None if there are none."""
    curves = site_curves(folder)
    if not curves:
        return None
    figure = go.Figure()
    for index, (site, ways) in enumerate(curves.items()):
        name = escape(site)
        for way, curve in zip(WAYS, ways, strict=True):
            hover = f"{name.replace('%{', '% {')}, {way}<br>%{{x:.3~g}} passes<br>dev loss %{{y:.4f}}"
            thin = {"width": 1.2, "color": canvas.colour(index), "dash": WAYS[way]}
            look: canvas.Look = {
                "legendgroup": name,
                "showlegend": way == "joined",
                "opacity": 0.7,
                **canvas.marks_of_line(index),
            }
            canvas.line(figure, curve, canvas.short(site), hover, line=thin, **look)
    for place, way in enumerate(WAYS):
        least = mean_of_least([ways[place] for ways in curves.values()])
        hover = f"mean of the sites' least so far, {way}<br>%{{x:.3~g}} passes<br>dev loss %{{y:.4f}}"
        thick = {"width": 4, "color": canvas.INK, "dash": WAYS[way]}
        canvas.line(figure, least, f"mean, {way}", hover, line=thick, mode="lines")
    settings = folder.settings
    whole = settings is None or settings.draws_in_passes or (settings.local_epochs == 1 and not settings.draws)
    unit = "passes over a site's text" if whole else "a round's training"
    canvas.frame(figure, 400 + 20 * ((len(curves) + 3) // 2), unit, "dev loss, nats a token")
    losses = [loss for ways in curves.values() for curve in ways for loss in curve.values()]
    if max(losses) > 3 * min(losses):
        figure.update_yaxes(type="log", tickvals=_TICKS, ticktext=[f"{tick:g}" for tick in _TICKS])
    return figure


def site_curves(folder: RunContent) -> dict[str, tuple[Curve, Curve]]:
    """Return site -> (alone, joined). joined: The rounds up to the best one, then further training from that round's model."""
    settings = folder.settings
    if settings is None or settings.sums_scores:  # of sums, rounds.jsonl has the mean of all sites for each of them
        return {}
    a_round, best = settings.passes_of_a_round, folder.best_round or 0
    curves: dict[str, tuple[Curve, Curve]] = {}
    files = {file.parent.parent.name: file for file in folder.path.glob("sites/*/choice/choice.json")}
    for site in folder.round_sites:
        candidates = mapping(read_object(files[site], {}).get("candidates")) if site in files else {}
        stored = (sequence(mapping(candidates.get(name)).get("dev_losses")) for name in ("alone", "own"))
        alone, own = ({float(i): loss for i, loss in enumerate(map(number, losses)) if loss is not None} for losses in stored)
        rounds = {each.number: each.sites[site].dev_loss for each in folder.rounds if site in each.sites and each.number <= best}
        federated = {of * a_round: loss for of, loss in rounds.items() if loss is not None}
        if alone and federated:
            joined = federated | {best * a_round + passes: loss for passes, loss in own.items() if passes}
            curves[site] = (alone, joined)
    return curves


def mean_of_least(curves: Sequence[Curve]) -> Curve:
    """Return the mean over curves of the lowest loss so far, by passes, from the point where all curves have begun."""
    begun = max(min(curve) for curve in curves)
    points = sorted({passes for curve in curves for passes in curve if passes >= begun})
    return {upto: mean(min(loss for passes, loss in curve.items() if passes <= upto) for curve in curves) for upto in points}
