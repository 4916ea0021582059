"""Quality against what was not sent, a point a row, with the rows that none beats: MetaSend's figures 4 to 7."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any, Literal

import plotly.graph_objects as go

from fedlingua import units
from fedlingua.report.canvas import BEFORE, INK, UP, frame, short
from fedlingua.report.labels import Box, place_labels
from fedlingua.report.pareto import pareto_front
from fedlingua.report.suite_result import BASE, Row, SuiteResult

NARROW = 440.0
"""Pixels from the y-axis to the right edge in a narrow window: names that find room there find it in every wider one."""
AROUND = 110
"""Pixels above and below the ground between the axes."""
LONGEST_NAME = 22
TEXT_BESIDE = {"left": "middle right", "center": "middle center", "right": "middle left"}
"""The edge that a name hangs by -> plotly's word, which says where the text lies from there."""

Steps = Literal["vh", "hv"]
"""How the front's line goes from one point to the next, so as to pass over nothing that is reached: down and right, or right and up."""


@dataclass(frozen=True)
class Point:
    """A row with both of its values. x: where it lies on the axis, in the axis's unit."""

    row: Row
    x: float
    score: float

    @property
    def sd(self) -> float:
        """Of the score, over seeds."""
        return self.row.macro_sd or 0.0


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


def saving_points(result: SuiteResult) -> list[Point]:
    """x: % of an update's numbers that were not sent; rows that exchange whole updates lie at 0. Empty where no row selects."""
    if all(row.number_saving is None for row in result.rows):
        return []
    shares = [(row, _not_sent(row)) for row in result.rows if row.name != BASE]
    return [Point(row, 100 * share, row.macro) for row, share in shares if share is not None and row.macro is not None]


def uplink_points(result: SuiteResult) -> tuple[list[Point], str]:
    """x: bytes of a site and round, in the unit that is told with them; of the same rows, where the table has their bytes."""
    rows = [point.row for point in saving_points(result)]
    known = [(row, row.uplink_bytes) for row in rows if row.uplink_bytes is not None]
    size, unit = units.byte_unit(max((uplink for _, uplink in known), default=0.0))
    return [Point(row, uplink / size, row.macro) for row, uplink in known if row.macro is not None], unit


def saving_plot(result: SuiteResult) -> go.Figure:
    """Macro score against the share of numbers not sent: what is sent less lies to the right."""
    points = saving_points(result)
    front = pareto_front([(point.x, _upward(point, result)) for point in points])
    return _plot(points, front, "vh", "numbers of an update not sent, %", result)


def uplink_plot(result: SuiteResult) -> go.Figure:
    """Macro score against bytes: what is sent less lies to the left."""
    points, unit = uplink_points(result)
    front = pareto_front([(-point.x, _upward(point, result)) for point in points])[::-1]
    return _plot(points, front, "hv", f"uplink of a site and round, {unit}", result)


def _upward(point: Point, result: SuiteResult) -> float:
    """The score so that more is better."""
    return point.score if result.metric.more_is_better else -point.score


def base_in_view(result: SuiteResult) -> bool:
    """Whether the base's line is drawn: not where the rows would be left less than half of the height."""
    return result.base_macro is not None and _heights(saving_points(result), result.base_macro)[2]


def _not_sent(row: Row) -> float | None:
    """Share of the numbers, 0-1: the table's, and 0 of a row that exchanges and does not select."""
    return 0.0 if row.number_saving is None and row.uplink_bytes else row.number_saving


def _plot(points: Sequence[Point], front: Sequence[int], steps: Steps, x_title: str, result: SuiteResult) -> go.Figure:
    """front: places of the unbeaten points from left to right."""
    best, beaten = [points[place] for place in front], [each for place, each in enumerate(points) if place not in front]
    low, high, with_base = _heights(points, result.base_macro)
    ground = Ground(_range([point.x for point in points]), (low, high), height=280 + 8 * len(points))
    figure = go.Figure()
    frame(figure, height=AROUND + ground.height, x_title=x_title, y_title=f"macro {result.metric.name}")
    _add_names(figure, [*best, *beaten], ground, _stairs(best, steps))
    _add_points(figure, beaten, "beaten by another row", BEFORE, mode="markers")
    _add_points(figure, best, "Pareto front", UP, mode="lines+markers", line={"width": 1.5, "shape": steps, "dash": "dash"})
    figure.update_xaxes(range=ground.across, nticks=8)
    figure.update_yaxes(range=ground.up)
    figure.update_layout(showlegend=True, legend_traceorder="reversed")
    if with_base:
        figure.add_hline(y=result.base_macro, line={"color": INK, "width": 1.5, "dash": "dot"})
    return figure


def _add_points(figure: go.Figure, points: Sequence[Point], name: str, colour: str, **style: Any) -> None:
    figure.add_scatter(
        x=[point.x for point in points],
        y=[point.score for point in points],
        name=name,
        showlegend=bool(points),
        marker={"size": 11, "color": colour},
        error_y={"array": [point.sd for point in points], "color": colour, "thickness": 2, "width": 5},
        text=[_hover(point) for point in points],
        hovertemplate="%{text}<extra></extra>",
        **style,
    )


def _add_names(figure: go.Figure, points: Sequence[Point], ground: Ground, stairs: Sequence[tuple[float, float]]) -> None:
    """Each row's name near its point, and a line to it from where near was taken."""
    pixels = [ground.pixels(point.x, point.score) for point in points]
    bars = [(ground.pixels(point.x, point.score - point.sd), ground.pixels(point.x, point.score + point.sd)) for point in points]
    steps = pairwise(ground.pixels(*corner) for corner in stairs)
    names = [short(point.row.name, LONGEST_NAME) for point in points]
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


def _hover(point: Point) -> str:
    row = point.row
    told = f"{escape(row.name)}<br>{units.score(point.score)} ± {units.score(point.sd)}"
    if row.number_saving is not None:
        told += f"<br>not sent: {units.share(row.tensor_saving)} of tensors, {units.share(row.number_saving)} of numbers"
    return told if row.uplink_bytes is None else f"{told}<br>uplink {units.data(row.uplink_bytes)}"


def _heights(points: Sequence[Point], base: float | None) -> tuple[float, float, bool]:
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
