"""Arrays are bounded before they are made, on Flower's own grid."""

import json
import tracemalloc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import PullObjectResponse
from flwr.proto.runtime_pb2 import PullAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid.http_grid import HttpGrid

from fedlingua.common.errors import ExchangeError
from fedlingua.exchange.records import bounded_arrays, from_record
from strategies.rounds.replies import pull_one

MEGABYTE = 1_000_000


class OfOneReply:
    """What Flower's grid asks the SuperLink for, answered from one message's serialized objects."""

    def __init__(self, reply: Message, contents: dict[str, bytes]) -> None:
        self.reply, self.contents = reply, contents

    def PullMessages(self, request: Any) -> PullAppMessagesResponse:  # noqa: N802
        self.reply.metadata.__dict__["_message_id"] = self.reply.object_id
        about = message_to_proto(remove_content_from_message(self.reply))
        return PullAppMessagesResponse(messages_list=[about], message_object_trees=[get_object_tree(self.reply)])

    def PullObject(self, request: Any) -> PullObjectResponse:  # noqa: N802
        content = self.contents[request.object_id]
        return PullObjectResponse(object_found=True, object_available=True, object_content=content)

    def ConfirmMessageReceived(self, request: Any) -> None:  # noqa: N802
        return None


@pytest.fixture
def reply() -> Message:
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    request = Message(RecordDict({"task": ConfigRecord({})}), dst_node_id=1, message_type="train")
    request.metadata.__dict__["_message_id"] = "a" * 64
    return Message(RecordDict({"arrays": ArrayRecord({"a": Array(np.ones(MEGABYTE // 4, np.float32))})}), reply_to=request)


def grid_of(reply: Message, repeats: int) -> HttpGrid:
    """repeats: how often the array's descriptor lists its first chunk."""
    contents = {name: item.deflate() for name, item in get_all_nested_objects(reply).items()}
    name = next(name for name, content in contents.items() if content.startswith(b"Array "))
    head, _, body = contents[name].partition(b"\0")
    told = json.loads(body)
    changed = json.dumps({**told, "arraychunk_ids": told["arraychunk_ids"] * repeats}).encode()
    contents[name] = b" ".join([*head.split(b" ")[:2], str(len(changed)).encode()]) + b"\0" + changed
    grid = HttpGrid(token="none")
    grid._client = OfOneReply(reply, contents)  # type: ignore[assignment]
    grid._run = SimpleNamespace(run_id=1)  # type: ignore[assignment]
    return grid


def test_a_descriptor_that_repeats_its_chunk_is_refused_before_anything_is_made(reply: Message) -> None:
    grid = grid_of(reply, 400)
    tracemalloc.start()
    (found,) = pull_one(grid, "a" * 64, 2 * MEGABYTE)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(found, ExchangeError)
    assert str(found) == "bad reply: its arrays are of 400051200 bytes; wanted at most 2000000"
    assert peak < 20 * MEGABYTE


def test_an_honest_array_comes_as_it_is(reply: Message) -> None:
    (found,) = pull_one(grid_of(reply, 1), "a" * 64, 2 * MEGABYTE)
    assert isinstance(found, Message)
    assert (from_record(found.content.array_records["arrays"])["a"] == 1).all()


def test_zeros_may_repeat_their_chunk() -> None:
    """All chunks of zeros but the first and the last are one object on the wire."""
    zeros = Array(np.zeros(6_000_000, np.float32))
    chunks = zeros.children
    assert len(chunks) < len(zeros.slice_array())
    with bounded_arrays(25 * MEGABYTE):
        assert Array.inflate(zeros.deflate(), chunks).data == zeros.data
    with pytest.raises(ExchangeError, match="wanted at most 23000000"), bounded_arrays(23 * MEGABYTE):
        Array.inflate(zeros.deflate(), chunks)


def test_the_bound_is_over_all_arrays_and_ends_with_the_pull() -> None:
    one = Array(np.ones(1000, np.float32))
    with bounded_arrays(6000):
        Array.inflate(one.deflate(), one.children)
        with pytest.raises(ExchangeError, match="of 8256 bytes"):
            Array.inflate(one.deflate(), one.children)
    assert Array.inflate(one.deflate(), one.children).data == one.data
