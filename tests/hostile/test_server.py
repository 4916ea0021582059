"""A hostile server is not obeyed by a site whose file has the default limits, and every try stands in the site's log."""

from pathlib import Path

import pytest

from tests.hostile.attacks import Attack
from tests.hostile.server_table import ATTACKS


def test_the_table_has_its_rows() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 40


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_a_hostile_server_is_not_obeyed(attack: Attack, tmp_path: Path) -> None:
    outcome = attack.play(tmp_path)
    assert outcome.held, outcome.said
