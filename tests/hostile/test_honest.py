"""Honest sites of 30 to 300 sentences to train on, and once of 3,000: nothing of theirs is refused, left out or scaled down.

`python -m experiments.hostile` plays every row with 3,000.
"""

import pytest

from tests.hostile.honest_table import RUNS, SIZES, played


@pytest.mark.parametrize(
    ("name", "sizes"),
    [(name, SIZES[:3]) for name in RUNS if name != "adapters"] + [("adapters", SIZES)],
    ids=lambda value: str(value),
)
def test_honest_updates_are_taken_whole(name: str, sizes: tuple[int, ...], tmp_path):
    outcome = played(RUNS[name], tmp_path / "play", sizes)
    assert outcome.held, outcome.said
