"""The table of replies, each row a run of its own.

Of rows that differ in the lie alone, and are told by the same words of the same check in the same run, the first is played here; the others
are slow tests, and `python -m experiments.hostile` plays them all.
"""

import pytest

from tests.hostile.replies_table import ATTACKS, ROWS, Row

FIRST: dict[tuple[object, ...], str] = {}
for _name, _row in ROWS.items():
    FIRST.setdefault((_row.lie.phase, _row.said, _row.changes, _row.as_honest), _name)


def param(name: str, row: Row) -> object:
    marks = () if name in FIRST.values() else (pytest.mark.slow,)
    return pytest.param(row, id=name, marks=marks)


@pytest.mark.fault("refused")
@pytest.mark.parametrize("row", [param(name, row) for name, row in ROWS.items()])
def test_a_reply_that_cannot_be_true_moves_nothing_and_is_named(row: Row, tmp_path) -> None:
    outcome = row.play(tmp_path)
    assert outcome.held, outcome.said


def test_there_are_at_least_150_of_them() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 150
    assert len(FIRST) >= 150
