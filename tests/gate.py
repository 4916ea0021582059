"""What of a table of cases the gate plays: some that take every way through the code. The others are slow tests."""

from collections.abc import Collection, Iterable

import pytest


def cases(names: Iterable[str], in_gate: Collection[str]) -> list[object]:
    """The names as parameters; those that the gate leaves out are marked slow."""
    of_all = list(names)
    assert set(in_gate) <= set(of_all), sorted(set(in_gate) - set(of_all))
    return [name if name in in_gate else pytest.param(name, marks=pytest.mark.slow) for name in of_all]
