"""Plots of quality against a cost, with the Pareto front (MetaSend's figures 4 to 7).

The page's script (plots.js) moves each name to the nearest free place around its point, at the plot's actual width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from fedlingua.desk.report.canvas import BEFORE, DOTTED, INK, UP, frame, marks, short
from fedlingua.settings.metrics import Metric

AROUND = 110
"""The height, in pixels, of everything above and below the plotting area."""
LONGEST_NAME = 28

Spot = tuple[float, float]


@dataclass(frozen=True)
class Point:
    """A point of the plot. sd: The score's standard deviation over seeds. hover: The text shown on hovering."""

    name: str
    x: float
    score: float
    sd: float
    hover: str


def pareto_front(points: Sequence[Spot]) -> list[int]:
    """Return the indices of the points that no other point dominates, in ascending order of the first value; higher values are better.

    A point dominates another if it is at least as good in both values and better in one. Equal points do not dominate each other.
    """

    def beaten(point: Spot) -> bool:
        return any(other != point and other[0] >= point[0] and other[1] >= point[1] for other in points)

    return sorted((place for place, point in enumerate(points) if not beaten(point)), key=lambda place: points[place])


def pareto_plot(points: Sequence[Point], metric: Metric, more_is_better: bool, x_title: str, base: float | None) -> go.Figure:
    """Plot macro scores against a cost or saving. base: A score drawn as a line if the points then still span half of the height."""
    across = 1 if more_is_better else -1
    places = pareto_front([(across * point.x, metric.gain(point.score, 0.0) or 0.0) for point in points])
    front = sorted((points[place] for place in places), key=lambda point: point.x)
    beaten = [point for place, point in enumerate(points) if place not in places]
    figure = go.Figure()
    frame(figure, height=AROUND + 280 + 8 * len(points), x_title=x_title, y_title=f"macro {metric.name}")
    _add_names(figure, [*front, *beaten])
    _add_points(figure, beaten, "beaten by another", BEFORE)
    # The steps follow the edge of the attained region: down and right, or right and up.
    stairs = {"width": 1.5, "shape": "vh" if more_is_better else "hv", "dash": "dash"}
    _add_points(figure, front, "Pareto front", UP, mode="lines+markers", line=stairs)
    figure.update_xaxes(range=_range([point.x for point in points]), nticks=8)
    bars = [point.score + side * point.sd for point in points for side in (-1, 1)]
    low, high = _range(bars)
    if base is not None:
        lowest, highest = _range([*bars, base])
        if highest - lowest <= 2 * (high - low):
            low, high = lowest, highest
            figure.add_hline(y=base, line=DOTTED)
    figure.update_yaxes(range=[low, high])
    return figure.update_layout(showlegend=True, legend_traceorder="reversed")


def _add_points(figure: go.Figure, points: Sequence[Point], name: str, color: str, **style: Any) -> None:
    bars = {"array": [point.sd for point in points], "color": color, "thickness": 2, "width": 5}
    style |= {"marker_size": 11, "marker_color": color, "error_y": bars, "text": [point.hover for point in points]}
    x, y = [point.x for point in points], [point.score for point in points]
    marks(figure, x, y, name, "%{text}", showlegend=bool(points), **style)


def _add_names(figure: go.Figure, points: Sequence[Point]) -> None:
    """Add each point's name beside it, in the order in which the page's script places the names."""
    look: dict[str, Any] = {"ax": 10, "ay": 0, "xanchor": "left", "arrowhead": 0, "arrowwidth": 1, "arrowcolor": "rgba(0,0,0,0)"}
    for point in points:
        text = short(point.name, LONGEST_NAME)
        figure.add_annotation(x=point.x, y=point.score, text=text, font={"size": 12, "color": INK}, **look)
    figure.update_layout(meta={"lead": BEFORE})


def _range(values: Sequence[float]) -> Spot:
    """Return the range of the values, with room around it for marks and names."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    room = 0.08 * (high - low) or 0.5
    return low - room, high + room
