"""Where to write the names of points so that none covers another: nearest place first, one name after the other, in pixels.

A name hangs on a place beside its point by the edge that faces the point. So when the plot is drawn wider, and all places move apart
with it, names that were free stay free.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import cos, hypot, pi, sin
from typing import Literal

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


@dataclass(frozen=True)
class Place:
    """How far right of and above its point a name hangs, and by which of its edges. `near`: so close that no line has to lead there."""

    right: float
    above: float
    edge: Side
    near: bool


def place_labels(
    points: Sequence[tuple[float, float]], labels: Sequence[str], size: tuple[float, float], obstacles: Sequence[Box] = ()
) -> list[Place]:
    """A place for each label, those that come first having the choice.

    points: from the lower left corner of a plot of that size. obstacles: what else no name may cover. Where nothing is free, a name hangs
    right of its point and covers what it covers.
    """
    named = [(x - 6, y - 6, x + 6, y + 6) for x, y in points]
    taken: list[Box] = [*obstacles, *named]
    places = []
    for (x, y), label in zip(points, labels, strict=True):
        width = CHARACTER * len(label)
        found = list(_places())
        free = [each for each in found if _is_free(_box(x, y, each, width), taken, size)]
        place = min(free, key=lambda each: _cost(x, y, each, obstacles, named), default=found[0])
        box = _box(x, y, place, width)
        named.append(box)
        taken += [box, *((px - 1, py - 1, px + 1, py + 1) for px, py in _way(x, y, place))]
        places.append(place)
    return places


def _places() -> Iterator[Place]:
    """Places around a point, ring by ring."""
    for ring in RINGS:
        for angle in ANGLES:
            across, up = cos(angle * pi / 8), sin(angle * pi / 8)
            edge: Side = "left" if across > 0.5 else "right" if across < -0.5 else "center"
            yield Place(across * (GAP + ring), up * (GAP + ring + (LINE / 2 if edge == "center" else 0)), edge, ring < 10)


def _is_free(box: Box, taken: Sequence[Box], size: tuple[float, float]) -> bool:
    inside = box[0] >= 0 and box[1] >= 0 and box[2] <= size[0] and box[3] <= size[1]
    return inside and not any(_overlap(box, other) for other in taken)


def _cost(x: float, y: float, place: Place, obstacles: Sequence[Box], named: Sequence[Box]) -> float:
    """How far off, and what the line to it crosses besides what the point itself lies in."""
    way = _way(x, y, place)

    def crossed(boxes: Sequence[Box]) -> int:
        return sum(any(_inside(*each, box) for each in way) for box in boxes if not _inside(x, y, box))

    return hypot(place.right, place.above) + ACROSS_OBSTACLE * crossed(obstacles) + ACROSS_NAME * crossed(named)


def _box(x: float, y: float, place: Place, width: float) -> Box:
    left = x + place.right - {"left": 0.0, "center": width / 2, "right": width}[place.edge]
    return left, y + place.above - LINE / 2, left + width, y + place.above + LINE / 2


def _way(x: float, y: float, place: Place) -> list[tuple[float, float]]:
    """Points close to each other along the line that leads from a point to its name; none where no line does."""
    if place.near:
        return []
    return [(x + place.right * step / 24, y + place.above * step / 24) for step in range(2, 24)]


def _inside(x: float, y: float, box: Box) -> bool:
    return box[0] <= x <= box[2] and box[1] <= y <= box[3]


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
