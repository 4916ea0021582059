"""A Flower grid without Flower's processes: messages go straight to the real ClientApp, through the real serialisation."""

import copy
import json
import random
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import no_object_id_recompute
from flwr.supercore.task_identity import TaskIdentity

from clients.client_app import app as client_app
from fedlingua.common.errors import ExchangeError
from fedlingua.desk.json_values import by_round
from fedlingua.exchange import protocol
from fedlingua.exchange.held import NamedState
from fedlingua.exchange.received import ReceivedFiles
from fedlingua.exchange.records import pack
from fedlingua.exchange.tensors import Tensors, TensorSet
from fedlingua.exchange.trainable import build_trainable
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Settings
from strategies.server_app import run_federation

RUNS = count(1)
"""As a SuperLink does, a number for each: a site is asked by another run then."""
Tamper = Callable[[Message, Message], Message | None]
"""(request, reply) -> what the server gets instead; None: nothing ever comes."""


class InProcessGrid(Grid):
    """`num_nodes` nodes in this process; replies come in an order that `shuffle_seed` decides."""

    def __init__(self, run_config: dict[str, Any], num_nodes: int, shuffle_seed: int = 0, tamper: Tamper | None = None) -> None:
        self.run_config, self.num_nodes, self.tamper = run_config, num_nodes, tamper
        self.run_id = next(RUNS)
        self.shuffle = random.Random(shuffle_seed)
        self.public_keys: dict[int, bytes] = {}
        self.replies: dict[str, Message] = {}
        self.sent: list[Message] = []
        self.received: list[Message] = []
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1

    def surplus(self, pulled: list[Message]) -> list[Message]:
        """Replies that nobody is waiting for, which come with those of `pulled`: none, unless a test says otherwise."""
        return []

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            with no_object_id_recompute():  # every level would hash all below it again
                number = message.object_id
            message.metadata.__dict__["_message_id"] = number
            ids.append(number)
            self.sent.append(message)
            reply = self._run(message)
            reply.metadata.__dict__["_src_node_id"] = message.metadata.dst_node_id
            tampered = self.tamper(self.as_given(message), reply) if self.tamper else reply
            if tampered is not None:
                self.replies[number] = tampered
        return ids

    def as_given(self, message: Message) -> Message:
        """The message with all tensors that it names, as the site had them once it had handled it."""
        state = NamedState.of(message.content) if message.has_content() else None
        folder = Path(str(self.run_config.get("run-dir", "")))
        if state is None or not folder.name or set(state.digests) == set(message.content[protocol.ARRAYS]) - set(state.bases):
            return message
        settings = settings_from(self.run_config)
        chosen, initial = _start(settings)
        received = folder / "sites" / str(message.content[protocol.TASK]["site"]) / "received"
        files = ReceivedFiles(received, chosen, initial, settings.code_down, settings.rounds_at_sites)
        named = NamedState(state.number, state.keep, state.digests)
        request = copy.copy(message)
        try:
            given = files.receive(RecordDict({protocol.STATE: named.record()}))
        except ExchangeError:  # the site could not answer
            return message
        request.content = RecordDict({**message.content, protocol.ARRAYS: pack(given, chosen)})
        return request

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        ready = [number for number in message_ids if number in self.replies]
        self.shuffle.shuffle(ready)
        # At most three at a time, so that replies trickle in as they do from real sites.
        pulled = [self.replies.pop(number) for number in ready[:3]]
        # As they came: the server takes tensors out of a message once it has read them.
        self.received += [_over_the_wire(reply) for reply in pulled if not reply.has_error()]
        return pulled + self.surplus(pulled)

    def _run(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        context = Context(
            run_id=self.run_id, node_id=node, node_config=self.node_config(node), state=RecordDict(), run_config=self.run_config
        )
        # Through the wire format, so that nothing is shared by reference.
        arrived = _over_the_wire(message)
        try:
            return client_app(arrived, context)
        except Exception as error:
            return Message(Error(1, str(error)), reply_to=message)

    def node_config(self, node: int) -> dict[str, Any]:
        return {"partition-id": node - 100, "num-partitions": self.num_nodes}

    def get_node_ids(self) -> Iterable[int]:
        return [100 + number for number in range(self.num_nodes)]

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [NodeInfo(node_id=number, public_key=self.public_keys.get(number, b"")) for number in self.get_node_ids()]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        return Message(*args, **kwargs)

    def set_run(self, run: Any) -> None:
        self._run_info = run

    @property
    def run(self) -> Any:
        return self._run_info


@lru_cache(maxsize=4)
def _start(settings: Settings) -> tuple[TensorSet, Tensors]:
    trainable = build_trainable(settings)
    return trainable.tensor_set, trainable.sent_first


def _over_the_wire(message: Message) -> Message:
    return message_from_proto(message_to_proto(message))


def run(config: dict[str, Any], directory: Path, num_nodes: int = 2, **grid: Any) -> tuple[RunFolder, InProcessGrid]:
    """A whole federation, from the first question to the last score."""
    config = {**config, "run-dir": str(directory)}
    live = InProcessGrid(config, num_nodes, **grid)
    return run_on(live, config), live


def run_on(live: Grid, config: dict[str, Any]) -> RunFolder:
    """As the ServerApp does, on a grid of the test's own."""
    settings = settings_from(config)
    folder = RunFolder(Path(settings.run_dir))
    with folder.held():
        folder.open(settings, 1)
        run_federation(live, settings, folder)
        folder.close("completed")
    return folder


def checkpoint_bytes(folder: RunFolder) -> dict[str, bytes]:
    """The newest round's tensors, file by file."""
    newest = folder.directory / "checkpoints" / f"{folder.checkpoints.rounds()[-1]:04d}"
    return {file.name: file.read_bytes() for file in sorted(newest.glob("*.safetensors"))}


def rounds(folder: RunFolder) -> list[dict[str, Any]]:
    """Lines of rounds.jsonl, each with its own dev losses."""
    return list(by_round(map(json.loads, (folder.directory / "rounds.jsonl").read_text().splitlines())).values())


def failing(site: str, phase: str, number: int) -> Tamper:
    """A site whose disk is full in one phase of one round."""

    def tamper(request: Message, reply: Message) -> Message:
        task = request.content.config_records.get(protocol.TASK, {})
        if task.get("site") == site and task.get("round") == number and request.metadata.message_type == phase:
            return Message(Error(1, "the disk is full"), reply_to=request)
        return reply

    return tamper
