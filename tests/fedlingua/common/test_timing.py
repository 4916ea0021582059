"""Seconds add up under a name, whatever ends the block."""

import time

import pytest

from fedlingua.common.timing import timed


def test_seconds_of_one_name_add_up_and_an_error_passes_through():
    seconds = {"fold": 1.0}
    with timed(seconds, "fold"):
        time.sleep(0.02)
    with pytest.raises(TypeError), timed(seconds, "step"):
        time.sleep(0.01 + "a")
    assert 1.02 <= seconds["fold"] < 60
    assert seconds["step"] > 0
