"""Every row of the table of replies, each a run of its own."""

import pytest

from tests.hostile.attacks import Attack
from tests.hostile.replies_table import ATTACKS


@pytest.mark.fault("refused")
@pytest.mark.parametrize("attack", ATTACKS, ids=[attack.name for attack in ATTACKS])
def test_a_reply_that_cannot_be_true_moves_nothing_and_is_named(attack: Attack, tmp_path) -> None:
    outcome = attack.play(tmp_path)
    assert outcome.held, outcome.said


def test_there_are_at_least_150_of_them() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 150
