"""What an error reply is reduced to."""

from strategies.rounds.replies import first_line


def test_a_traceback_is_reduced_to_its_error():
    assert first_line("Traceback (most recent call last):\n  File x\nValueError: no space left\n") == "ValueError: no space left"


def test_a_plain_reason_is_its_first_line():
    assert first_line("the disk is full\nmore") == "the disk is full"
    assert first_line(None) == "no reason given"


def test_flowers_way_to_write_an_exception_is_reduced_to_its_words():
    assert first_line("<class 'a.b.DeploymentError'>:<'it's not approved'>") == "DeploymentError: it's not approved"
