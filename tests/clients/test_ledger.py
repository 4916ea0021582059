"""The ledger: a round is opened for one list of survivors."""

from pathlib import Path

import pytest

from fedlingua.common.errors import ExchangeError
from fedlingua.layers.secure_site import enter


def test_a_round_is_opened_for_one_list_of_survivors_however_often(tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    for _ in range(2):
        enter(opened / "0003.json", "round 1", ["a", "b", "c"])
    enter(opened / "0005.json", "round 2", ["a", "b"])
    for others in (["a", "b"], ["a", "b", "c", "d"], ["b", "a", "c"]):
        with pytest.raises(ExchangeError, match=r"asked to open round 1 for .* but it was opened for a, b, c; two such"):
            enter(opened / "0003.json", "round 1", others)
    assert sorted(file.name for file in opened.iterdir()) == ["0003.json", "0005.json"]
