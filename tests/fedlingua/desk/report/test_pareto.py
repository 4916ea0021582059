"""Which points are not beaten, and where their names go: near them, and never over each other, however wide the plot is drawn."""

from itertools import combinations

import pytest

from fedlingua.desk.report.pareto import CHARACTER, LINE, Box, Place, pareto_front, place_labels

Points = list[tuple[float, float]]


@pytest.mark.parametrize(
    ("points", "front"),
    [
        ([], []),
        ([(1.0, 1.0)], [0]),
        ([(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)], [0, 1, 2]),
        ([(3.0, 1.0), (1.0, 3.0), (1.0, 1.0), (2.0, 2.0)], [1, 3, 0]),
        ([(1.0, 1.0), (2.0, 2.0)], [1]),
        # A tie in one value: the other decides.
        ([(1.0, 2.0), (1.0, 3.0), (2.0, 3.0)], [2]),
        # Equal points do not beat each other.
        ([(2.0, 2.0), (2.0, 2.0), (1.0, 2.0)], [0, 1]),
    ],
)
def test_the_front_is_what_no_other_point_beats(points: Points, front: list[int]) -> None:
    assert pareto_front(points) == front


def box(point: tuple[float, float], place: Place, label: str, stretched: float = 1.0) -> Box:
    """Where a name lies when the plot is so many times as wide."""
    width = CHARACTER * len(label)
    left = stretched * (point[0] + place.right) - {"left": 0.0, "center": width / 2, "right": width}[place.edge]
    middle = point[1] + place.above
    return left, middle - LINE / 2, left + width, middle + LINE / 2


def overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] - 1e-6 and other[0] < one[2] - 1e-6 and one[1] < other[3] - 1e-6 and other[1] < one[3] - 1e-6


def test_a_name_stands_right_of_a_lonely_point() -> None:
    (place,) = place_labels([(50.0, 50.0)], ["alone"], (300.0, 100.0))
    assert (place.edge, place.above, place.near) == ("left", 0.0, True)
    assert place.right > 0


def test_at_the_right_edge_it_stands_on_the_left() -> None:
    (place,) = place_labels([(290.0, 50.0)], ["alone"], (300.0, 100.0))
    assert (place.edge, place.near) == ("right", True)


@pytest.mark.parametrize("stretched", [1.0, 1.7, 3.0])
def test_no_name_covers_another_or_an_obstacle_however_wide_the_plot_is(stretched: float) -> None:
    points = [(200.0 + 9 * place, 150.0 + 7 * (place % 4)) for place in range(10)]
    labels = [f"row number {place}" for place in range(10)]
    obstacle = (195.0, 60.0, 205.0, 240.0)
    places = place_labels(points, labels, (440.0, 350.0), [obstacle])
    boxes = [box(*each, stretched) for each in zip(points, places, labels, strict=True)]
    assert not [pair for pair in combinations(boxes, 2) if overlap(*pair)]
    middle = stretched * 200
    assert not [each for each in boxes if overlap(each, (middle - 5, 60.0, middle + 5, 240.0))]


def test_where_nothing_is_free_names_are_still_placed() -> None:
    places = place_labels([(5.0, 5.0)] * 3, ["much too long for it"] * 3, (20.0, 20.0))
    assert [place.edge for place in places] == ["left"] * 3
