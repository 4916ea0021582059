"""Which of several points are not beaten."""

from collections.abc import Sequence


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Places of the points that no other is at least as good as in both values and better in one; more is better.

    By the first value, rising; so the second falls. Equal points do not beat each other and stand beside each other.
    """

    def beaten(one: tuple[float, float]) -> bool:
        return any(other != one and other[0] >= one[0] and other[1] >= one[1] for other in points)

    return sorted((place for place, one in enumerate(points) if not beaten(one)), key=lambda place: points[place])
