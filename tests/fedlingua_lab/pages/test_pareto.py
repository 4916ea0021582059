"""Which points are not beaten. Where their names go, test_in_browser.py sees."""

import pytest

from fedlingua_lab.pages.pareto import pareto_front

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
