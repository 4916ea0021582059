"""Track which tensors each site already holds: a request names those by their hash, and carries only the others."""

from collections.abc import Mapping, MutableMapping

import numpy as np
from flwr.app import Array, ArrayRecord, Message
from flwr.serverapp import Grid

from fedlingua.exchange import protocol
from fedlingua.exchange.held import NamedState, digest_of, digests_of, outdated
from fedlingua.exchange.protocol import Task
from fedlingua.exchange.records import opened
from fedlingua.layers.layer import Layer, Server
from fedlingua.settings.config import Settings

Digests = Mapping[str, str]
Payloads = MutableMapping[tuple[str, str], bytes]
"""(hash of a part's old numbers, hash of its new numbers) -> the coded change from old to new"""


class HeldTensors(Layer):
    """The tensors that each site holds. This is only in the server's memory, so a resumed run sends everything again.

    At a site they are in `fedlingua.exchange.received`, which reads every request.

    Args:
        payloads: The coded changes of the newest state, which replace tensors whose old numbers a site holds.
    """

    def __init__(self, settings: Settings, payloads: Payloads) -> None:
        super().__init__(settings)
        self.payloads, self.last = payloads, settings.rounds_at_sites
        self._rounds: dict[str, dict[int, Digests]] = {}
        self._sent: dict[str, NamedState] = {}

    def begin(self, run: Server, grid: Grid) -> None:
        self.initial = digests_of(run.initial, run.tensor_set)

    def requests(self, messages: Mapping[str, Message]) -> None:
        """Name the tensors of requests by hash. Parts that a site holds are removed; a part with a known coded change is replaced by it."""
        digests, changes = dict[int, str](), dict[tuple[str, str], Array]()
        for site, message in messages.items():
            arrays = message.content.array_records.get(protocol.ARRAYS)
            if not arrays:
                continue
            task = Task.of(message.content.config_records[protocol.TASK])
            trains = message.metadata.message_type in (protocol.TRAIN, protocol.PROBE)
            for part, array in arrays.items():
                if id(array) not in digests:  # an array that several sites get is hashed once
                    digests[id(array)] = digest_of(opened({part: array})[part])
            named = {part: digests[id(array)] for part, array in arrays.items()}
            held = {(part, digest) for each in self._of(site).values() for part, digest in each.items()}
            rest = {part: array for part, array in arrays.items() if (part, named[part]) not in held}
            bases = {part: base for part in rest for each, base in held if each == part and (base, named[part]) in self.payloads}
            for part, base in bases.items():
                change = base, named[part]
                if change not in changes:  # one object for all sites that get it
                    changes[change] = Array(np.frombuffer(self.payloads[change], np.uint8))
                rest[part] = changes[change]
            state = NamedState(max(0, task.round - trains), self.run.best_of(site), named, bases)
            message.content[protocol.ARRAYS], message.content[protocol.STATE] = ArrayRecord(), state.record()
            for part, array in rest.items():  # making a record of arrays would copy them
                message.content.array_records[protocol.ARRAYS][part] = array
            self._sent[site] = state

    def answered(self, site: str) -> None:
        """Record what a site holds now that it has answered."""
        if state := self._sent.pop(site, None):
            rounds = self._of(site)
            if state.number:
                rounds[state.number] = state.digests
            for number in outdated([number for number in rounds if number], state, self.last):
                del rounds[number]

    def not_held(self, site: str) -> bool:
        """Forget what a site holds, so that it is sent everything; return whether it had been thought to hold anything."""
        had, self._rounds[site] = bool(self._of(site)), {}
        return had

    def _of(self, site: str) -> dict[int, Digests]:
        return self._rounds.setdefault(site, {0: self.initial})
