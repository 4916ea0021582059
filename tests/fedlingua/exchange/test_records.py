"""Records and bytes, against Flower's own SuperLink: what it counts for a reply is what we say it costs."""

import os
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.app.message.arraychunk import ArrayChunk
from flwr.app.message.message import remove_content_from_message
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.server.superlink.fleet.message_handler import message_handler
from flwr.server.superlink.linkstate.in_memory_linkstate import InMemoryLinkState
from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.inflatable.inflatable_utils import push_objects
from flwr.supercore.object_store.in_memory_object_store import InMemoryObjectStore
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.federation.noop_federation_manager import NoOpFederationManager

from fedlingua.backbones.bottleneck import AdapterConfig, attach_adapters
from fedlingua.common.errors import ExchangeError
from fedlingua.exchange import protocol
from fedlingua.exchange.joined import join
from fedlingua.exchange.records import Packed, from_record, message_bytes, pack, to_record, view
from fedlingua.exchange.tensor_sets import tensor_set
from fedlingua.exchange.tensors import Tensors, TensorSet, TensorSpec
from tests.mbart import mbart_50

Reply = Callable[[RecordDict], Message]
CHOSEN = TensorSet(
    "toy", (TensorSpec("d", (3,), "decoder", 0), TensorSpec("e", (2, 2), "encoder", 0), TensorSpec("f", (), "encoder", 0))
)
TENSORS: Tensors = {
    "d": np.array([1, 2, 3], np.float32),
    "e": np.array([[4, 5], [6, 7]], np.float32).T,  # not contiguous
    "f": np.array(8, np.float32),
}


class SuperLink:
    """Flower's SuperLink in memory, with one running run and one node that owes it a reply."""

    def __init__(self) -> None:
        self.state = InMemoryLinkState(NoOpFederationManager(), InMemoryObjectStore())
        self.run_id = self.state.create_run(None, None, None, {}, NOOP_FEDERATION_ID, None, None, TaskType.SERVER_APP)
        (run,) = self.state.get_run_info(run_ids=[self.run_id])
        self.task_id = int(run.primary_task_id or 0)
        assert self.state.claim_task(self.task_id)
        assert self.state.activate_task(self.task_id)
        self.node_id = self.state.create_node("", "", b"a site's public key", 30)
        assert self.state.activate_node(self.node_id, 30)

    @property
    def bytes_recv(self) -> int:
        (run,) = self.state.get_run_info(run_ids=[self.run_id])
        return run.bytes_recv

    def receive(self, reply: Message) -> int:
        """Push a reply the way a SuperNode does, through the Fleet API's handlers; bytes that the run received by it."""
        before = self.bytes_recv
        reply.metadata.__dict__["_message_id"] = reply.object_id
        request = PushMessagesRequest(
            node=Node(node_id=self.node_id),
            messages_list=[message_to_proto(remove_content_from_message(reply))],
            message_object_trees=[get_object_tree(reply)],
            clientapp_runtime_list=[1.0],
        )
        response = message_handler.push_messages(request, self.state)
        assert response.objects_to_push

        def push(object_id: str, content: bytes) -> None:
            pushed = PushObjectRequest(
                node=Node(node_id=self.node_id),
                run_id=self.run_id,
                object_id=object_id,
                object_content=content,
                session_id=response.session_id,
            )
            assert message_handler.push_object(pushed, self.state).stored

        push_objects(get_all_nested_objects(reply), push, object_ids_to_push=set(response.objects_to_push))
        return self.bytes_recv - before


@pytest.fixture
def superlink() -> SuperLink:
    return SuperLink()


@pytest.fixture
def reply(superlink: SuperLink, monkeypatch: pytest.MonkeyPatch) -> Reply:
    """A reply of the node to an instruction of the run."""
    for name, number in (("_task_id", superlink.task_id), ("_run_id", superlink.run_id), ("_node_id", SUPERLINK_NODE_ID)):
        monkeypatch.setattr(TaskIdentity, name, number)

    def answer(content: RecordDict) -> Message:
        instruction = Message(RecordDict(), dst_node_id=superlink.node_id, message_type=protocol.TRAIN, group_id="1")
        instruction.metadata.__dict__["_message_id"] = instruction.object_id
        assert superlink.state.store_message_ins(instruction)
        return Message(content, reply_to=instruction)

    return answer


def train_reply(tensors: Tensors) -> RecordDict:
    return RecordDict(
        {
            protocol.ARRAYS: to_record(tensors),
            protocol.TASK: ConfigRecord({"site": "ward-de-fr", "round": 3, "run": "7"}),
            protocol.METRICS: MetricRecord({"nll_sum": 12.5, "num_tokens": 40, "num_examples": 8, "steps": 1, "seconds": 0.5}),
        }
    )


def test_unpacking_what_was_packed_is_the_same_bit_for_bit() -> None:
    tensors = {
        "b": np.array([[0.1, -0.0], [np.float32(1e-45), 3e38]], np.float32),
        "a": np.arange(6, dtype=np.float32).reshape(2, 3).T,  # not contiguous
        "scalar": np.array(2.5, np.float32),
        "none": np.zeros((0, 4), np.float32),
    }
    back = from_record(to_record(tensors))
    assert list(back) == list(tensors)
    for name, array in tensors.items():
        assert (back[name].dtype, back[name].shape) == (array.dtype, array.shape)
        assert back[name].tobytes() == array.tobytes()


def test_packed_tensors_do_not_follow_their_source_and_unpacked_ones_are_writable() -> None:
    source = np.ones(2, np.float32)
    record = to_record({"a": source})
    source[:] = 9
    first = from_record(record)["a"]
    first[:] = 5
    assert from_record(record)["a"].tolist() == [1, 1]


def test_an_array_of_another_serialization_is_refused_by_name() -> None:
    record = ArrayRecord({"w": Array("float32", (1,), "pickle", b"\x00\x00\x80\x3f")})
    with pytest.raises(ExchangeError, match=r"tensor 'w' is serialized as 'pickle'"):
        from_record(record)


@pytest.mark.parametrize("data", [b"", b"\x00\x00\x80\x3f", b"\x93NUMPY\x01\x00"], ids=["empty", "raw", "cut"])
def test_an_array_that_does_not_decode_is_refused_by_name(data: bytes) -> None:
    record = ArrayRecord({"w": Array("float32", (1,), "numpy.ndarray", data)})
    with pytest.raises(ExchangeError, match=r"tensor 'w' does not decode"):
        from_record(record)


class Canary:
    """What a stranger's pickle can be: told to make a folder as soon as it is opened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("header", [True, False], ids=["npy", "bare pickle"])
def test_a_pickle_in_an_array_is_refused_and_does_not_run(tmp_path: Path, header: bool) -> None:
    canary, file = tmp_path / "canary", BytesIO()
    np.save(file, np.array([Canary(canary)], dtype=object), allow_pickle=True)
    data = file.getvalue() if header else file.getvalue().partition(b"\n")[2]
    with pytest.raises(ExchangeError, match=r"tensor 'w' does not decode"):
        from_record(ArrayRecord({"w": Array("float32", (1,), "numpy.ndarray", data)}))
    assert not canary.exists()
    np.load(BytesIO(data), allow_pickle=True)
    assert canary.exists(), "the canary would not have run anyway, and this test shows nothing"


def npy(array: np.ndarray) -> bytes:
    file = BytesIO()
    np.save(file, array)
    return file.getvalue()


PAIR = npy(np.ones(2, np.float32))
SQUARE = npy(np.ones((2, 2), np.float32))
WRONG = {
    "fortran-order": (SQUARE.replace(b"'fortran_order': False", b"'fortran_order': True "), "Fortran order"),
    "cut": (PAIR[:-1], "7 bytes follow its header; its shape (2,) wants 8"),
    "longer": (PAIR + b"\0", "9 bytes follow its header; its shape (2,) wants 8"),
    "more-than-memory": (PAIR.replace(b"(2,)", b"(2" + b"0" * 17 + b",)").replace(b" " * 17, b"", 1), "wants 8" + "0" * 17),
    "version-3": (PAIR.replace(b"NUMPY\x01", b"NUMPY\x03"), "npy of version (3, 0)"),
    "objects": (PAIR.replace(b"'<f4'", b"'|O' "), "Python objects"),
    "code-in-header": (PAIR.replace(b"(2,)", b"f(2)"), "ValueError"),
    "negative-shape": (npy(np.ones((1, 2), np.float32)).replace(b"(1, 2), }  ", b"(-1, -2), }"), "ValueError"),
}


@pytest.mark.parametrize("cause", WRONG)
def test_a_header_that_is_not_what_we_write_is_refused_by_name(cause: str) -> None:
    data, reason = WRONG[cause]
    with pytest.raises(ExchangeError, match=r"tensor 'w' does not decode") as caught:
        from_record(ArrayRecord({"w": Array("float32", (2,), "numpy.ndarray", data)}))
    assert reason in str(caught.value)


def test_a_view_is_the_records_own_bytes_and_may_not_be_written_to() -> None:
    record = pack(TENSORS, CHOSEN)
    tensors = view(record, CHOSEN)
    assert {name: tensor.tobytes() for name, tensor in tensors.items()} == {n: a.tobytes() for n, a in TENSORS.items()}
    assert np.shares_memory(tensors["e"], np.frombuffer(record["encoder"].data, np.uint8))
    with pytest.raises(ValueError, match="read-only"):
        tensors["e"] += 1


def test_a_view_refuses_another_form_but_does_not_look_at_the_numbers() -> None:
    odd = {**TENSORS, "e": np.full((2, 2), np.nan, np.float32)}
    assert np.isnan(view(pack(odd, CHOSEN), CHOSEN)["e"]).all()
    with pytest.raises(ExchangeError, match="tensor 'encoder' is float64; wanted float32"):
        view(pack({**TENSORS, "e": np.ones((2, 2))}, CHOSEN), CHOSEN)


def test_packed_bytes_are_those_that_numpy_saves() -> None:
    record = pack(TENSORS, CHOSEN)
    assert list(record) == ["encoder", "decoder"]
    for part, flat in join(TENSORS, CHOSEN).items():
        saved = Array(flat)
        assert (record[part].data, record[part].shape, record[part].dtype) == (saved.data, saved.shape, saved.dtype)


def test_what_several_sites_get_alike_is_one_array() -> None:
    packed: Packed = {}
    first, second = pack(TENSORS, CHOSEN, packed), pack(dict(TENSORS), CHOSEN, packed)
    other = pack({**TENSORS, "d": TENSORS["d"].copy()}, CHOSEN, packed)
    assert first["encoder"] is second["encoder"] is other["encoder"]
    assert first["decoder"] is second["decoder"] is not other["decoder"]
    assert list(pack({}, CHOSEN, packed)) == []


def as_flower_deflates(message: Message) -> int:
    objects = sum(len(item.deflate()) for item in get_all_nested_objects(message).values())
    return objects + int(get_object_tree(message).ByteSize())


@pytest.mark.parametrize("length", [0, 3, 5 * 2**18 - 32, 5 * 2**18 - 31, 3 * 10**6], ids=str)
def test_message_bytes_are_all_that_flower_deflates(reply: Reply, length: int) -> None:
    """An array is cut every 5 MiB, and an empty one has no chunk at all."""
    flat = np.random.default_rng(1).standard_normal(length, np.float32)
    twice = np.concatenate([flat, flat])
    message = reply(train_reply({"flat": flat, "again": flat, "twice": twice, "zeros": np.zeros(3 * 10**6, np.float32)}))
    assert message_bytes(message) == as_flower_deflates(message)
    assert message_bytes(message) == message_bytes(message)


def test_what_messages_share_is_neither_hashed_nor_copied_again(reply: Reply, monkeypatch: pytest.MonkeyPatch) -> None:
    packed: Packed = {}
    messages = [reply(RecordDict({protocol.ARRAYS: pack(TENSORS, CHOSEN, packed)})) for _ in range(3)]
    wanted, deflated = [as_flower_deflates(message) for message in messages], []
    deflate = ArrayChunk.deflate
    packed: Packed = {}
    messages = [reply(RecordDict({protocol.ARRAYS: pack(TENSORS, CHOSEN, packed)})) for _ in range(3)]
    monkeypatch.setattr(ArrayChunk, "deflate", lambda chunk: deflated.append(len(chunk.data)) or deflate(chunk))
    assert [message_bytes(message) for message in messages] == wanted
    assert sorted(length for length in deflated if length) == sorted(
        len(pack(TENSORS, CHOSEN, packed)[part].data) for part in ("encoder", "decoder")
    )


def test_a_zip_of_arrays_is_refused_by_name() -> None:
    file = BytesIO()
    np.savez(file, w=np.ones(2, np.float32))
    with pytest.raises(ExchangeError, match=r"tensor 'w' does not decode"):
        from_record(ArrayRecord({"w": Array("float32", (2,), "numpy.ndarray", file.getvalue())}))


def test_message_bytes_are_what_the_superlink_receives(superlink: SuperLink, reply: Reply) -> None:
    rng = np.random.default_rng(1)
    message = reply(train_reply({f"layer.{n}.weight": rng.standard_normal((64, 32), np.float32) for n in range(20)}))
    assert message_bytes(message) == pytest.approx(superlink.receive(message), rel=0.01)


def test_equal_tensors_travel_once_and_are_counted_once(superlink: SuperLink, reply: Reply) -> None:
    same = np.random.default_rng(1).standard_normal((64, 256), np.float32)
    message = reply(train_reply({f"layer.{n}.weight": same for n in range(5)}))
    received = superlink.receive(message)
    assert message_bytes(message) == pytest.approx(received, rel=0.02)
    assert same.nbytes < received < 2 * same.nbytes


def test_what_a_second_reply_shares_with_the_first_is_too_little_to_count(superlink: SuperLink, reply: Reply) -> None:
    rng = np.random.default_rng(1)
    first, second = (reply(train_reply({"w": rng.standard_normal((64, 256), np.float32)})) for _ in range(2))
    # The SuperLink has the second one's task and metrics already, and asks for neither again.
    assert superlink.receive(second) > superlink.receive(first)
    assert message_bytes(first) == message_bytes(second) == pytest.approx(superlink.bytes_recv / 2, rel=0.02)


def test_an_mbart_50_update_costs_hardly_more_than_its_numbers(reply: Reply) -> None:
    model = mbart_50()
    attach_adapters(model, AdapterConfig(dim=64), seed=1)
    rng = np.random.default_rng(1)
    chosen = tensor_set(model, "adapters")
    tensors = {spec.name: rng.standard_normal(spec.shape, np.float32) for spec in chosen.specs}
    numbers = 4 * 8_056_576
    assert sum(array.nbytes for array in tensors.values()) == numbers
    assert numbers < message_bytes(reply(train_reply(join(tensors, chosen)))) <= 1.0005 * numbers
