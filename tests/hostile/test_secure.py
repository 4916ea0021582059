"""Every lie of a server about secure sums is refused by the site, in words that say which it was."""

from pathlib import Path

import pytest

from tests.hostile.attacks import Attack
from tests.hostile.secure_table import ATTACKS
from tests.hostile.stock_sums import LIES


@pytest.mark.parametrize("attack", [pytest.param(attack, id=attack.name) for attack in ATTACKS])
def test_a_lie_about_a_secure_sum_is_refused(attack: Attack, tmp_path: Path) -> None:
    outcome = attack.play(tmp_path)
    assert outcome.held, outcome.said


def test_they_are_more_than_fifteen() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) > 15


@pytest.mark.parametrize("lie", LIES)
def test_flowers_own_module_refuses_one_of_these_lies_and_gives_a_sites_update_away_under_the_others(lie: str) -> None:
    counterpart, play = LIES[lie]
    assert counterpart in {attack.name for attack in ATTACKS}
    outcome = play()
    assert outcome.held == (lie == "the same vectors opened with another list"), outcome.said
    assert outcome.held or "gives the update of one site away" in outcome.said
