"""A Flower grid without Flower's processes: messages go straight to the real ClientApp, through the real serialisation."""

import random
from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from clients.client_app import app as client_app

Tamper = Callable[[Message, Message], Message | None]
"""(request, reply) -> what the server gets instead; None: nothing ever comes."""


class InProcessGrid(Grid):
    """`num_nodes` nodes in this process; replies come in an order that `shuffle_seed` decides."""

    def __init__(self, run_config: dict[str, Any], num_nodes: int, shuffle_seed: int = 0, tamper: Tamper | None = None) -> None:
        self.run_config, self.num_nodes, self.tamper = run_config, num_nodes, tamper
        self.shuffle = random.Random(shuffle_seed)
        self.replies: dict[str, Message] = {}
        self.sent: list[Message] = []
        self.received: list[Message] = []
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = message.object_id
            ids.append(message.object_id)
            self.sent.append(message)
            reply = self._run(message)
            reply.metadata.__dict__["_src_node_id"] = message.metadata.dst_node_id
            tampered = self.tamper(message, reply) if self.tamper else reply
            if tampered is not None:
                self.replies[message.object_id] = tampered
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        ready = [number for number in message_ids if number in self.replies]
        self.shuffle.shuffle(ready)
        # At most three at a time, so that replies trickle in as they do from real sites.
        pulled = [self.replies.pop(number) for number in ready[:3]]
        self.received += pulled
        return pulled

    def _run(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        config = {"partition-id": node - 100, "num-partitions": self.num_nodes}
        context = Context(run_id=1, node_id=node, node_config=config, state=RecordDict(), run_config=self.run_config)
        # Through the wire format, so that nothing is shared by reference.
        arrived = message_from_proto(message_to_proto(message))
        try:
            return client_app(arrived, context)
        except Exception as error:
            return Message(Error(1, str(error)), reply_to=message)

    def get_node_ids(self) -> Iterable[int]:
        return [100 + number for number in range(self.num_nodes)]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        return Message(*args, **kwargs)

    def set_run(self, run: Any) -> None:
        self._run_info = run

    @property
    def run(self) -> Any:
        return self._run_info
