"""Honest sites of 30 to 300 sentences to train on: nothing of theirs is refused, left out or scaled down.

`python -m experiments.hostile` plays every row with 3,000.
"""

import pytest

from tests.hostile.honest_table import RUNS, SIZES, played


@pytest.mark.parametrize("name", RUNS)
def test_honest_updates_are_taken_whole(name: str, tmp_path):
    outcome = played(RUNS[name], tmp_path / "play", SIZES[:3])
    assert outcome.held, outcome.said
