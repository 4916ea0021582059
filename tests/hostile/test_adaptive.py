"""Two of the attacks just under the bounds, whole runs; `python -m experiments.hostile` plays them all."""

import pytest

from tests.hostile.adaptive_table import ATTACKS
from tests.hostile.attacks import Attack

PLAYED = ("1 of 5 sites: signs the other way x 1.5", "2 of 5 sites: signs the other way x 1.9")


@pytest.mark.parametrize(
    "attack", [pytest.param(each, id=each.name, marks=() if each.name in PLAYED else (pytest.mark.slow,)) for each in ATTACKS]
)
def test_an_update_just_under_the_bounds_does_little_harm_or_is_left_out(attack: Attack, tmp_path) -> None:
    outcome = attack.play(tmp_path)
    assert outcome.held, outcome.said
