"""Updates that lie, under default settings: no worse for the honest sites than without those who send them.

Every forgery is tried by one of five sites, and one of them by two of eight; the others by two of eight are slow tests, and
`python -m experiments.hostile` plays them all.
"""

import pytest

from tests.hostile.attacks import Attack
from tests.hostile.robust_table import ATTACKS

BY_TWO = "2 of 8 sites: "


def param(attack: Attack) -> object:
    slow = attack.name.startswith(BY_TWO) and attack.name != f"{BY_TWO}sign-flipped x 5"
    return pytest.param(attack, id=attack.name, marks=(pytest.mark.slow,) if slow else ())


@pytest.mark.parametrize("attack", [param(attack) for attack in ATTACKS])
def test_an_update_that_lies_does_no_harm(attack: Attack, tmp_path):
    outcome = attack.play(tmp_path / "play")
    assert outcome.held, outcome.said
