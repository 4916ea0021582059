"""Byte counts of all messages between the server and its sites, as serialized. The grid counts them, so none is missed.

A round's `uplink_bytes` and `downlink_bytes` are those of training and evaluation. The counts here also include registration,
signatures, delivery, and replies that were late, refused or errors, but not what the transport adds (benchmarks/transport.py).
"""

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from flwr.app import ConfigRecord, Message
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

from fedlingua.exchange import protocol
from fedlingua.exchange.records import message_bytes

FILE = "traffic.json"
UPLINK, DOWNLINK, FP32 = "uplink_bytes", "downlink_bytes", "fp32_bytes"
NOBODY = "others"
"""Entry for the bytes of nodes that registered no site of the federation, and of replies to no known request."""
UNASKED = "unasked"
"""Kind of a reply to no known request; its own message type is not trusted."""
Counts = Counter[tuple[str | int, str, str]]
Bytes = dict[str, dict[str, dict[str, int]]]
"""site -> kind of message -> UPLINK and DOWNLINK bytes; if tensors travel, also FP32: the bytes of all of them as float32, both ways."""
_POLL_S = 3.0
"""Seconds between two polls, as in Flower's own grid."""


class Traffic:
    """The byte counts of a run, by site and kind of message.

    counts: (site, kind, way) -> bytes; messages that name no site are counted under their node. speakers: node -> the first
    site that it registered, to which the bytes of such messages belong.
    """

    def __init__(self) -> None:
        self.counts: Counts = Counter()
        self.speakers: dict[int, str] = {}

    def take(self, earlier: Bytes) -> None:
        """Add the counts of the run's earlier attempts."""
        for site, kinds in earlier.items():
            for kind, moved in kinds.items():
                self.counts.update({(site, kind, way): moved.get(way, 0) for way in (UPLINK, DOWNLINK, FP32)})

    @property
    def total(self) -> dict[str, int]:
        """Return the bytes of the whole run so far, mean over the sites that have any."""
        bytes_of = [moved for site, moved in self.as_json().items() if site != NOBODY]
        ways = {"up": UPLINK, "down": DOWNLINK, "fp32": FP32}
        sums = {name: sum(each.get(way, 0) for moved in bytes_of for each in moved.values()) for name, way in ways.items()}
        return {name: round(number / max(1, len(bytes_of))) for name, number in sums.items()}

    def as_json(self, since: Counts | None = None) -> Bytes:
        """Return the counts in the form of traffic.json; with `since`, earlier counts, only what was added to those."""
        bytes_of: Bytes = {}
        for (who, kind, way), number in (self.counts - (since or Counter())).items():
            site = self.speakers.get(who, NOBODY) if isinstance(who, int) else who
            moved = bytes_of.setdefault(site, {}).setdefault(kind, {UPLINK: 0, DOWNLINK: 0})
            moved[way] = moved.get(way, 0) + number
        return bytes_of


class CountedGrid(Grid):
    """Flower's grid, which also counts every message in `traffic`."""

    def __init__(self, grid: Grid, traffic: Traffic) -> None:
        self._grid, self._traffic = grid, traffic
        self._asked: dict[str, tuple[str | int, str]] = {}
        """Id of a message without a reply so far -> (site or node, kind)."""

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        pushed = list(messages)
        about = [(_who(message), kind_of(message), message_bytes(message)) for message in pushed]
        ids = [str(number) for number in self._grid.push_messages(pushed)]
        for number, (who, kind, size) in zip(ids, about, strict=True):
            if not number:
                continue  # Flower did not store it
            self._asked[number] = (who, kind)
            self._traffic.counts[who, kind, DOWNLINK] += size
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        replies = list(self._grid.pull_messages(message_ids))
        for reply in replies:
            who, kind = self._asked.pop(str(reply.metadata.reply_to_message_id), (NOBODY, UNASKED))
            self._traffic.counts[who, kind, UPLINK] += message_bytes(reply)
        return replies

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        waiting, replies = set(self.push_messages(messages)), list[Message]()
        ends = time.monotonic() + timeout if timeout is not None else None
        while True:
            replies += (new := list(self.pull_messages(waiting)))
            waiting -= {str(reply.metadata.reply_to_message_id) for reply in new}
            if not waiting or (ends is not None and time.monotonic() >= ends):
                return replies
            time.sleep(_POLL_S)

    def get_node_ids(self) -> Iterable[int]:
        return self._grid.get_node_ids()

    def get_nodes(self) -> Iterable[NodeInfo]:
        return self._grid.get_nodes()

    def create_message(self, *arguments: Any, **named: Any) -> Message:
        return self._grid.create_message(*arguments, **named)

    def set_run(self, run: Any) -> None:
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        return self._grid.run


def _who(message: Message) -> str | int:
    task = message.content.config_records.get(protocol.TASK, ConfigRecord())
    return str(task["site"]) if "site" in task else message.metadata.dst_node_id


def kind_of(message: Message) -> str:
    return message.metadata.message_type.rpartition(".")[2]
