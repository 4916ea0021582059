"""One site that lies in a secure sum is named where that can be, and ends neither the run nor another site's part in it.

Of rows that differ in the lie alone one is played here; the others are slow tests, and `python -m experiments.hostile` plays them all.
"""

from pathlib import Path

import pytest

from tests.hostile.attacks import Attack
from tests.hostile.liars_table import ATTACKS

PLAYED = (
    "gives one bit of every share",
    "gives one wrong share of one site",
    "seals garbage for one honest site",
    "seals garbage for two sites in round 2",
    "seals garbage for two sites in the last dev loss",
    "has zeros for sealing",
    "has a key of low order for the masks of the scores",
    "adds 1,600 levels, and takes the rise from the dev loss, from round 2 on",
    "adds 1,000 levels to the decoder alone, from round 1 on",
)


def param(attack: Attack) -> object:
    return pytest.param(attack, id=attack.name, marks=() if attack.name in PLAYED else (pytest.mark.slow,))


@pytest.mark.fault("refused")
@pytest.mark.parametrize("attack", [param(attack) for attack in ATTACKS])
def test_a_site_that_lies_in_a_secure_sum_does_no_harm(attack: Attack, tmp_path: Path) -> None:
    outcome = attack.play(tmp_path / "play")
    assert outcome.held, outcome.said


def test_there_are_more_than_thirty_of_them() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) > 30
    assert set(PLAYED) <= {attack.name for attack in ATTACKS}
