"""Quality against a price, a point each, with the points that none beats: MetaSend's figures 4 to 7.

The points' names are placed here, nearest place first, one after the other, in pixels, so that none covers another: plotly hangs every
name at the same side of its point, and what places labels on the index does so for matplotlib. A name hangs on a place beside its
point by the edge that faces the point, so when the plot is drawn wider and all places move apart with it, free names stay free.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import cos, hypot, pi, sin
from typing import Any, Literal

import plotly.graph_objects as go

from fedlingua.desk.report.canvas import BEFORE, INK, UP, dotted, frame, joined, marks, short
from fedlingua.settings.metrics import Metric

NARROW = 440.0
"""Pixels from the y-axis to the right edge in a narrow window: names that find room there find it in every wider one."""
AROUND = 110
"""Pixels above and below the ground between the axes."""
LONGEST_NAME = 28
TEXT_BESIDE = {"left": "middle right", "center": "middle center", "right": "middle left"}
"""The edge that a name hangs by -> plotly's word, which says where the text lies from there."""
CHARACTER, LINE = 7.2, 15.0
"""Of the plots' labels, a little too large rather than too small."""
GAP = 9.0
"""From the middle of a point to its name."""
RINGS = (0, 8, 18, 30, 44, 60, 78, 98, 120)
ANGLES = (0, 8, 15, 1, 7, 9, 14, 2, 6, 10, 13, 3, 5, 11, 4, 12)
"""Sixteenths of a circle, from the right round by the top: beside the point first, as above and below lie the bars of the deviation."""
ACROSS_OBSTACLE, ACROSS_NAME = 12.0, 60.0
"""What a line from a point to its name costs for each thing that it crosses, as if the name hung so many pixels farther off."""

Side = Literal["left", "center", "right"]
Box = tuple[float, float, float, float]
"""left, bottom, right, top"""
Spot = tuple[float, float]
Steps = Literal["vh", "hv"]
"""How the front's line goes from one point to the next, so as to pass over nothing that is reached: down and right, or right and up."""


@dataclass(frozen=True)
class Point:
    """What has both values. x: where it lies on the axis, in the axis's unit. sd: of the score, over seeds. hover: when pointed at."""

    name: str
    x: float
    score: float
    sd: float = 0.0
    hover: str = ""


@dataclass(frozen=True)
class Place:
    """How far right of and above its point a name hangs, and by which of its edges. `near`: so close that no line has to lead there."""

    right: float
    above: float
    edge: Side
    near: bool


@dataclass(frozen=True)
class Ground:
    """What lies between the axes: the values that they reach over, and where these are drawn in a narrow window."""

    across: Spot
    up: Spot
    height: int

    def pixels(self, x: float, y: float) -> Spot:
        """From the lower left corner."""
        (left, right), (low, high) = self.across, self.up
        return (x - left) / (right - left) * NARROW, (y - low) / (high - low) * self.height

    def values(self, x: float, y: float) -> Spot:
        """Of a place in pixels."""
        (left, right), (low, high) = self.across, self.up
        return left + x / NARROW * (right - left), low + y / self.height * (high - low)


def pareto_front(points: Sequence[Spot]) -> list[int]:
    """Places of the points that no other is at least as good as in both values and better in one; more is better.

    By the first value, rising; so the second falls. Equal points do not beat each other and stand beside each other.
    """

    def beaten(point: Spot) -> bool:
        return any(other != point and other[0] >= point[0] and other[1] >= point[1] for other in points)

    return sorted((place for place, point in enumerate(points) if not beaten(point)), key=lambda place: points[place])


def pareto_plot(
    points: Sequence[Point], metric: Metric, more_is_better: bool, x_title: str, base: float | None = None
) -> go.Figure:
    """Macro scores against what the x-axis tells, of which more or less is better. base: a score that a line is drawn at, unless that would
    leave the points less than half of the height.
    """
    steps: Steps = "vh" if more_is_better else "hv"
    across, upward = 1 if more_is_better else -1, 1 if metric.more_is_better else -1
    places = pareto_front([(across * point.x, upward * point.score) for point in points])
    front = sorted((points[place] for place in places), key=lambda point: point.x)
    beaten = [point for place, point in enumerate(points) if place not in places]
    low, high, with_base = heights(points, base)
    ground = Ground(_range([point.x for point in points]), (low, high), height=280 + 8 * len(points))
    figure = go.Figure()
    frame(figure, height=AROUND + ground.height, x_title=x_title, y_title=f"macro {metric.name}")
    _add_names(figure, [*front, *beaten], ground, _stairs(front, steps))
    _add_points(figure, beaten, "beaten by another", BEFORE)
    stairs = {"width": 1.5, "shape": steps, "dash": "dash"}
    _add_points(figure, front, "Pareto front", UP, mode="lines+markers", line=stairs)
    figure.update_xaxes(range=ground.across, nticks=8)
    figure.update_yaxes(range=ground.up)
    figure.update_layout(showlegend=True, legend_traceorder="reversed")
    if with_base:
        dotted(figure, y=base)
    return figure


def _add_points(figure: go.Figure, points: Sequence[Point], name: str, color: str, **style: Any) -> None:
    bars = {"array": [point.sd for point in points], "color": color, "thickness": 2, "width": 5}
    style |= {"size": 11, "color": color, "error_y": bars, "text": [point.hover for point in points]}
    x, y = [point.x for point in points], [point.score for point in points]
    marks(figure, x, y, name, "%{text}", showlegend=bool(points), **style)


def _add_names(figure: go.Figure, points: Sequence[Point], ground: Ground, stairs: Sequence[Spot]) -> None:
    """Each point's name near it, and a line to it from where near was taken."""
    pixels = [ground.pixels(point.x, point.score) for point in points]
    bars = [(ground.pixels(point.x, point.score - point.sd), ground.pixels(point.x, point.score + point.sd)) for point in points]
    steps = pairwise(ground.pixels(*corner) for corner in stairs)
    names = [short(point.name, LONGEST_NAME) for point in points]
    places = place_labels(pixels, names, (NARROW, ground.height), [_around(*each) for each in (*bars, *steps)])
    hung = [ground.values(x + place.right, y + place.above) for (x, y), place in zip(pixels, places, strict=True)]
    leads = joined(
        [(point.x, point.score), end] for point, place, end in zip(points, places, hung, strict=True) if not place.near
    )
    style: dict[str, Any] = {"hoverinfo": "skip", "showlegend": False}
    figure.add_scatter(mode="lines", line={"color": BEFORE, "width": 1}, **leads, **style)
    style |= {"textposition": [TEXT_BESIDE[place.edge] for place in places], "textfont": {"size": 12, "color": INK}}
    x, y = [x for x, _ in hung], [y for _, y in hung]
    figure.add_scatter(x=x, y=y, text=names, mode="text", cliponaxis=False, name="names", **style)


def _stairs(front: Sequence[Point], steps: Steps) -> list[Spot]:
    """The corners of the front's line, from left to right."""
    corners = []
    for point, after in pairwise(front):
        corners += [(point.x, point.score), (point.x, after.score) if steps == "vh" else (after.x, point.score)]
    return [*corners, *((point.x, point.score) for point in front[-1:])]


def _around(start: Spot, end: Spot) -> Box:
    """The ground that an upright or level line covers."""
    (left, right), (low, high) = sorted((start[0], end[0])), sorted((start[1], end[1]))
    return left - 3, low - 2, right + 3, high + 2


def heights(points: Sequence[Point], base: float | None) -> tuple[float, float, bool]:
    """The range of scores that is drawn, and whether the base lies in it."""
    bars = [point.score + side * point.sd for point in points for side in (-1, 1)]
    low, high = _range(bars)
    wide = _range([*bars, base]) if base is not None else (low, high)
    with_base = base is not None and wide[1] - wide[0] <= 2 * (high - low)
    return (*wide, True) if with_base else (low, high, False)


def _range(values: Sequence[float]) -> Spot:
    """From the least to the greatest with room around them for marks and names."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    room = 0.08 * (high - low) or 0.5
    return low - room, high + room


def place_labels(points: Sequence[Spot], labels: Sequence[str], size: Spot, obstacles: Sequence[Box] = ()) -> list[Place]:
    """A place for each label, those that come first having the choice.

    points: from the lower left corner of a plot of that size. obstacles: what else no name may cover. Where nothing is free, a name hangs
    right of its point and covers what it covers.
    """
    named = [(x - 6, y - 6, x + 6, y + 6) for x, y in points]
    taken: list[Box] = [*obstacles, *named]
    places = []
    for (x, y), label in zip(points, labels, strict=True):
        width = CHARACTER * len(label)
        free = [each for each in PLACES if _is_free(_box(x, y, each, width), taken, size)]
        place = min(free, key=lambda each: _cost(x, y, each, obstacles, named), default=PLACES[0])
        box = _box(x, y, place, width)
        named.append(box)
        taken += [box, *((px - 1, py - 1, px + 1, py + 1) for px, py in _way(x, y, place))]
        places.append(place)
    return places


def _place(ring: int, angle: int) -> Place:
    across, up = cos(angle * pi / 8), sin(angle * pi / 8)
    edge: Side = "left" if across > 0.5 else "right" if across < -0.5 else "center"
    return Place(across * (GAP + ring), up * (GAP + ring + (LINE / 2 if edge == "center" else 0)), edge, ring < 10)


PLACES = [_place(ring, angle) for ring in RINGS for angle in ANGLES]
"""Around a point, ring by ring."""


def _is_free(box: Box, taken: Sequence[Box], size: Spot) -> bool:
    left, bottom, right, top = box
    inside = left >= 0 and bottom >= 0 and right <= size[0] and top <= size[1]
    return inside and not any(left < each[2] and each[0] < right and bottom < each[3] and each[1] < top for each in taken)


def _cost(x: float, y: float, place: Place, obstacles: Sequence[Box], named: Sequence[Box]) -> float:
    """How far off, and what the line to it crosses besides what the point itself lies in."""
    way = _way(x, y, place)

    def crossed(boxes: Sequence[Box]) -> int:
        return sum(any(_inside(*each, box) for each in way) for box in boxes if not _inside(x, y, box))

    return hypot(place.right, place.above) + ACROSS_OBSTACLE * crossed(obstacles) + ACROSS_NAME * crossed(named)


def _box(x: float, y: float, place: Place, width: float) -> Box:
    left = x + place.right - {"left": 0.0, "center": width / 2, "right": width}[place.edge]
    return left, y + place.above - LINE / 2, left + width, y + place.above + LINE / 2


def _way(x: float, y: float, place: Place) -> list[Spot]:
    """Points close to each other along the line that leads from a point to its name; none where no line does."""
    if place.near:
        return []
    return [(x + place.right * step / 24, y + place.above * step / 24) for step in range(2, 24)]


def _inside(x: float, y: float, box: Box) -> bool:
    return box[0] <= x <= box[2] and box[1] <= y <= box[3]
