"""Replies that are not what they have to be, one too many, or not even replies: each is refused by name (tests/hostile has the rest)."""

import numpy as np
import pytest
from flwr.app import Array, Message

from fedlingua.exchange import protocol
from fedlingua.exchange.records import from_record, to_record
from tests.in_process import InProcessGrid, checkpoint_bytes, failing, rounds, run, run_on

SITE = "court"
ENCODER = "encoder"


def spoil(change, phase=protocol.TRAIN, number=1):
    """Change the court's reply in one phase of one round."""

    def tamper(request, reply):
        task = request.content.config_records.get(protocol.TASK, {})
        if request.metadata.message_type == phase and task.get("site") == SITE and task.get("round") == number:
            change(reply)
        return reply

    return tamper


def all_tensors(change):
    def apply(reply):
        tensors = from_record(reply.content.array_records[protocol.ARRAYS])
        reply.content.array_records[protocol.ARRAYS] = to_record({name: change(array) for name, array in tensors.items()})

    return apply


def raw_bytes(change):
    """Change the serialized bytes of one tensor."""

    def apply(reply):
        arrays = reply.content.array_records[protocol.ARRAYS]
        array = arrays[ENCODER]
        arrays[ENCODER] = Array(array.dtype, array.shape, array.stype, change(array.data))

    return apply


def metric(key, value):
    return lambda reply: reply.content.metric_records[protocol.METRICS].__setitem__(key, value)


def failures_of(folder, number):
    return [failure for failure in rounds(folder)[number]["failures"] if failure["kind"] != "away"]


@pytest.mark.fault("refused")
def test_an_update_over_the_absolute_bound_is_refused(config, tmp_path):
    config = {**config, "robust.max-ratio": 0.0, "robust.max-norm": 1000.0}
    folder, _ = run(config, tmp_path / "bad", tamper=spoil(all_tensors(lambda array: array * np.float32(1e30))))
    (failure,) = failures_of(folder, 1)
    assert "robust.max-norm = 1000" in failure["reason"]


@pytest.mark.fault("refused")
def test_an_update_of_the_round_before_is_refused(config, tmp_path):
    earlier = {}

    def replay(request, reply):
        task = request.content.config_records.get(protocol.TASK, {})
        if request.metadata.message_type == protocol.TRAIN and task["site"] == SITE:
            if task["round"] == 1:
                earlier["arrays"] = from_record(reply.content.array_records[protocol.ARRAYS])
            else:
                reply.content.array_records[protocol.ARRAYS] = to_record(earlier["arrays"])
        return reply

    folder, _ = run(config, tmp_path / "replay", tamper=replay)
    (failure,) = failures_of(folder, 2)
    assert failure["reason"] == "bad reply: sends the update of an earlier round again"


class Garbled(InProcessGrid):
    """The court's first update does not decode: Flower finds that out while it pulls, and raises."""

    def pull_messages(self, message_ids):
        (number,) = message_ids
        message = next(m for m in self.sent if m.object_id == number)
        task = message.content.config_records.get(protocol.TASK, {})
        if message.metadata.message_type == protocol.TRAIN and task["site"] == SITE:
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
        return super().pull_messages([number])


@pytest.mark.fault("refused")
def test_a_reply_that_flower_cannot_decode_is_refused_by_name(config, tmp_path):
    config = {**config, "rounds": 1, "run-dir": str(tmp_path / "garbled")}
    folder = run_on(Garbled(config, 2), config)
    (failure,) = failures_of(folder, 1)
    assert (failure["site"], failure["kind"]) == (SITE, "unreadable")
    assert "its records do not decode (UnicodeDecodeError)" in failure["reason"]
    silent, _ = run(config, tmp_path / "silent", tamper=failing(SITE, protocol.TRAIN, 1))
    assert checkpoint_bytes(folder) == checkpoint_bytes(silent)


@pytest.mark.fault("refused")
def test_a_header_that_numpy_chokes_on_is_refused_by_name(config, tmp_path):
    def choke(data):
        header = b"{'descr': ((((" + b" " * 100 + b"\n"
        return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header

    folder, _ = run({**config, "rounds": 1}, tmp_path / "bad", tamper=spoil(raw_bytes(choke)))
    (failure,) = failures_of(folder, 1)
    assert "does not decode" in failure["reason"]


class Talkative(InProcessGrid):
    """Sends the court's first update twice, and a reply to a message that never was."""

    def surplus(self, pulled):
        for reply in pulled:
            if not reply.has_error() and reply.metadata.message_type == protocol.TRAIN:
                again = Message(reply.content, reply_to=self.sent[0])
                again.metadata.__dict__["_reply_to_message_id"] = self.answers(reply)
                return [again]
        return []

    def answers(self, reply):
        return reply.metadata.reply_to_message_id


class FromNowhere(Talkative):
    def answers(self, reply):
        return "f" * 64


@pytest.mark.parametrize(
    ("grid", "reason"),
    [(Talkative, "a second reply to the same message"), (FromNowhere, "a reply to a message that was never sent")],
    ids=["duplicate", "unasked"],
)
@pytest.mark.fault("refused")
def test_a_reply_too_many_does_not_count(config, tmp_path, grid, reason):
    config = {**config, "rounds": 1, "run-dir": str(tmp_path / "twice")}
    folder = run_on(grid(config, 2), config)
    reasons = [failure["reason"] for failure in failures_of(folder, 1)]
    assert reasons
    assert all(reason in told for told in reasons)
    assert checkpoint_bytes(folder) == checkpoint_bytes(run(config, tmp_path / "once")[0])


@pytest.mark.fault("refused")
def test_a_site_is_set_aside_after_k_bad_replies(config, tmp_path):
    def always(request, reply):
        return spoil(metric("nll_sum", -1.0), number=request.content.config_records.get(protocol.TASK, {}).get("round"))(
            request, reply
        )

    folder, grid = run({**config, "rounds": 4, "robust.max-bad-replies": 2}, tmp_path / "aside", tamper=always)
    kinds = [[failure["kind"] for failure in record["failures"]] for record in rounds(folder)]
    assert kinds == [[], ["refused"], ["refused"], ["aside"], ["aside", "aside"]]
    asked = [m.content.config_records[protocol.TASK]["round"] for m in grid.sent if m.metadata.message_type == protocol.TRAIN]
    assert [asked.count(number) for number in (1, 2, 3, 4)] == [4, 4, 3, 3]


@pytest.mark.fault("refused")
def test_bad_replies_between_good_ones_set_nobody_aside(config, tmp_path):
    def every_second(request, reply):
        number = request.content.config_records.get(protocol.TASK, {}).get("round")
        return spoil(metric("nll_sum", -1.0), number=number)(request, reply) if number in (1, 3) else reply

    folder, _ = run({**config, "rounds": 4, "robust.max-bad-replies": 2}, tmp_path / "now-and-then", tamper=every_second)
    assert [[failure["kind"] for failure in record["failures"]] for record in rounds(folder)] == [
        [],
        ["refused"],
        [],
        ["refused"],
        [],
    ]
