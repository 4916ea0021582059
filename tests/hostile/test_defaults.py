"""The table of replies under default settings, each row a run of its own."""

import pytest

from tests.hostile.defaults_table import ATTACKS, ROWS, Row


@pytest.mark.fault("refused")
@pytest.mark.parametrize("row", [pytest.param(row, id=name) for name, row in ROWS.items()])
def test_a_reply_that_cannot_be_true_moves_nothing_under_default_settings(row: Row, tmp_path) -> None:
    outcome = row.play(tmp_path)
    assert outcome.held, outcome.said


def test_there_are_at_least_50_of_them() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 50
