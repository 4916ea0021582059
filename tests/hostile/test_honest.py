"""Honest sites of 30 to 3,000 sentences to train on: nothing of theirs is refused, left out or scaled down."""

import pytest

from tests.hostile.attacks import Attack
from tests.hostile.honest_table import ATTACKS


@pytest.mark.parametrize("attack", ATTACKS, ids=[attack.name for attack in ATTACKS])
def test_honest_updates_are_taken_whole(attack: Attack, tmp_path):
    outcome = attack.play(tmp_path / "play")
    assert outcome.held, outcome.said
