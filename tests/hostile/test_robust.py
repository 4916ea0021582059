"""Updates that lie, under default settings: no worse for the honest sites than without those who send them."""

import pytest

from tests.hostile.attacks import Attack
from tests.hostile.robust_table import ATTACKS


@pytest.mark.parametrize("attack", ATTACKS, ids=[attack.name for attack in ATTACKS])
def test_an_update_that_lies_does_no_harm(attack: Attack, tmp_path):
    outcome = attack.play(tmp_path / "play")
    assert outcome.held, outcome.said
