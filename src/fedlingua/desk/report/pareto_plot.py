"""Quality against a price, a point each, with the points that none beats: MetaSend's figures 4 to 7."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import plotly.graph_objects as go

from fedlingua.desk.report.canvas import BEFORE, INK, UP, frame, short
from fedlingua.desk.report.labels import Box, place_labels
from fedlingua.desk.report.pareto import pareto_front
from fedlingua.settings.metrics import Metric

NARROW = 440.0
"""Pixels from the y-axis to the right edge in a narrow window: names that find room there find it in every wider one."""
AROUND = 110
"""Pixels above and below the ground between the axes."""
LONGEST_NAME = 28
TEXT_BESIDE = {"left": "middle right", "center": "middle center", "right": "middle left"}
"""The edge that a name hangs by -> plotly's word, which says where the text lies from there."""

Steps = Literal["vh", "hv"]
"""How the front's line goes from one point to the next, so as to pass over nothing that is reached: down and right, or right and up."""


@dataclass(frozen=True)
class Point:
    """What has both values. x: where it lies on the axis, in the axis's unit. sd: of the score, over seeds. told: when pointed at."""

    name: str
    x: float
    score: float
    sd: float = 0.0
    told: str = ""


@dataclass(frozen=True)
class Ground:
    """What lies between the axes: the values that they reach over, and where these are drawn in a narrow window."""

    across: tuple[float, float]
    up: tuple[float, float]
    height: int

    @property
    def size(self) -> tuple[float, float]:
        """In pixels."""
        return NARROW, self.height

    def pixels(self, x: float, y: float) -> tuple[float, float]:
        """From the lower left corner."""
        (left, right), (low, high) = self.across, self.up
        return (x - left) / (right - left) * NARROW, (y - low) / (high - low) * self.height

    def values(self, x: float, y: float) -> tuple[float, float]:
        """Of a place in pixels."""
        (left, right), (low, high) = self.across, self.up
        return left + x / NARROW * (right - left), low + y / self.height * (high - low)


def pareto_plot(
    points: Sequence[Point], metric: Metric, more_is_better: bool, x_title: str, base: float | None = None
) -> go.Figure:
    """Macro scores against what the x-axis tells, of which more or less is better. base: a score that a line is drawn at, unless that would
    leave the points less than half of the height.
    """
    steps: Steps = "vh" if more_is_better else "hv"
    front = sorted(
        pareto_front(
            [
                (point.x if more_is_better else -point.x, point.score if metric.more_is_better else -point.score)
                for point in points
            ]
        ),
        key=lambda place: points[place].x,
    )
    best, beaten = [points[place] for place in front], [each for place, each in enumerate(points) if place not in front]
    low, high, with_base = heights(points, base)
    ground = Ground(_range([point.x for point in points]), (low, high), height=280 + 8 * len(points))
    figure = go.Figure()
    frame(figure, height=AROUND + ground.height, x_title=x_title, y_title=f"macro {metric.name}")
    _add_names(figure, [*best, *beaten], ground, _stairs(best, steps))
    _add_points(figure, beaten, "beaten by another", BEFORE, mode="markers")
    _add_points(figure, best, "Pareto front", UP, mode="lines+markers", line={"width": 1.5, "shape": steps, "dash": "dash"})
    figure.update_xaxes(range=ground.across, nticks=8)
    figure.update_yaxes(range=ground.up)
    figure.update_layout(showlegend=True, legend_traceorder="reversed")
    if with_base:
        figure.add_hline(y=base, line={"color": INK, "width": 1.5, "dash": "dot"})
    return figure


def _add_points(figure: go.Figure, points: Sequence[Point], name: str, colour: str, **style: Any) -> None:
    figure.add_scatter(
        x=[point.x for point in points],
        y=[point.score for point in points],
        name=name,
        showlegend=bool(points),
        marker={"size": 11, "color": colour},
        error_y={"array": [point.sd for point in points], "color": colour, "thickness": 2, "width": 5},
        text=[point.told for point in points],
        hovertemplate="%{text}<extra></extra>",
        **style,
    )


def _add_names(figure: go.Figure, points: Sequence[Point], ground: Ground, stairs: Sequence[tuple[float, float]]) -> None:
    """Each point's name near it, and a line to it from where near was taken."""
    pixels = [ground.pixels(point.x, point.score) for point in points]
    bars = [(ground.pixels(point.x, point.score - point.sd), ground.pixels(point.x, point.score + point.sd)) for point in points]
    steps = pairwise(ground.pixels(*corner) for corner in stairs)
    names = [short(point.name, LONGEST_NAME) for point in points]
    places = place_labels(pixels, names, ground.size, [_around(*each) for each in (*bars, *steps)])
    hung = [ground.values(x + place.right, y + place.above) for (x, y), place in zip(pixels, places, strict=True)]
    leads = [
        each
        for point, place, (x, y) in zip(points, places, hung, strict=True)
        if not place.near
        for each in ((point.x, point.score), (x, y), (None, None))
    ]
    style = {"hoverinfo": "skip", "showlegend": False}
    figure.add_scatter(
        x=[x for x, _ in leads], y=[y for _, y in leads], mode="lines", line={"color": BEFORE, "width": 1}, **style
    )
    figure.add_scatter(
        x=[x for x, _ in hung],
        y=[y for _, y in hung],
        text=names,
        textposition=[TEXT_BESIDE[place.edge] for place in places],
        textfont={"size": 12, "color": INK},
        mode="text",
        cliponaxis=False,
        name="names",
        **style,
    )


def _stairs(front: Sequence[Point], steps: Steps) -> list[tuple[float, float]]:
    """The corners of the front's line, from left to right."""
    corners = []
    for one, after in pairwise(front):
        corners += [(one.x, one.score), (one.x, after.score) if steps == "vh" else (after.x, one.score)]
    return [*corners, *((point.x, point.score) for point in front[-1:])]


def _around(one: tuple[float, float], other: tuple[float, float]) -> Box:
    """The ground that an upright or level line covers."""
    (left, right), (low, high) = sorted((one[0], other[0])), sorted((one[1], other[1]))
    return left - 3, low - 2, right + 3, high + 2


def heights(points: Sequence[Point], base: float | None) -> tuple[float, float, bool]:
    """The range of scores that is drawn, and whether the base lies in it."""
    bars = [point.score + side * point.sd for point in points for side in (-1, 1)]
    low, high = _range(bars)
    wide = _range([*bars, base]) if base is not None else (low, high)
    with_base = base is not None and wide[1] - wide[0] <= 2 * (high - low)
    return (*wide, True) if with_base else (low, high, False)


def _range(values: Sequence[float]) -> tuple[float, float]:
    """From the least to the greatest with room around them for marks and names."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    room = 0.08 * (high - low) or 0.5
    return low - room, high + room
