"""What an error reply is reduced to, and what becomes of sites whose message is not stored."""

from collections.abc import Iterable

from flwr.app import Message, RecordDict

from strategies.rounds.replies import first_line, replies_to
from tests.in_process import InProcessGrid


def test_a_traceback_is_reduced_to_its_error():
    assert first_line("Traceback (most recent call last):\n  File x\nValueError: no space left\n") == "ValueError: no space left"


def test_a_plain_reason_is_its_first_line():
    assert first_line("the disk is full\nmore") == "the disk is full"
    assert first_line(None) == "no reason given"


def test_flowers_way_to_write_an_exception_is_reduced_to_its_words():
    assert first_line("<class 'a.b.DeploymentError'>:<'it's not approved'>") == "DeploymentError: it's not approved"


class SignedOff(InProcessGrid):
    """As the SuperLink does for a node that has signed off, it stores no message and gives an empty id."""

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return ["" for _ in messages]


def test_every_site_of_a_node_that_has_signed_off_is_named():
    grid = SignedOff({}, 1)
    messages = {site: Message(RecordDict(), dst_node_id=5, message_type="train", group_id="1") for site in ("court", "bank")}
    failures = list(replies_to(grid, messages, 5.0, lambda _: 1000))
    assert [(site, failure.kind) for site, failure in failures] == [("court", "dead"), ("bank", "dead")]
