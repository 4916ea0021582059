"""Lies of `secure_table` that have a counterpart in Flower's SecAgg+, told to its client module: what it refuses and what it gives away.

Four nodes with an update each, one of them the victim. Where the module answers, the server takes the victim's update out of the answers.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.client.mod.secure_aggregation.secaggplus_mod import secaggplus_mod
from flwr.common import Code, FitRes, MessageType, Status, ndarrays_to_parameters
from flwr.common.secure_aggregation.crypto.shamir import combine_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
from flwr.common.secure_aggregation.quantization import dequantize
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key, Stage
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen
from flwr.compat.common import recorddict_compat as compat
from flwr.compat.common.parameter import bytes_to_ndarray
from flwr.supercore.primitives.asymmetric import (
    bytes_to_private_key,
    bytes_to_public_key,
    generate_key_pairs,
    public_key_to_bytes,
)
from flwr.supercore.task_identity import TaskIdentity

from tests.hostile.attacks import Outcome

NODES = (1, 2, 3, 4)
VICTIM = 1
OTHERS = NODES[1:]
CLIP, LEVELS, MODULUS = 8.0, 1 << 20, 1 << 32
NUMBERS = 50
WITHIN = 2 * len(NODES) * 2 * CLIP / LEVELS
"""A level of the rounding for each vector of two sums: what is nearer than that to the victim's update is the update."""


class Federation:
    """Four nodes that answer by Flower's module, and the server's part of the protocol."""

    def __init__(self) -> None:
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
        rng = np.random.default_rng(5)
        self.updates = {node: rng.normal(size=NUMBERS).astype(np.float32) for node in NODES}
        self.contexts = {node: Context(1, node, {}, RecordDict(), {}) for node in NODES}

    def ask(self, node: int, stage: str, **configs: Any) -> ConfigRecord:
        record = ConfigRecord({Key.STAGE: stage, **configs})
        message = Message(RecordDict({RECORD_KEY_CONFIGS: record}), node, MessageType.TRAIN)
        reply = secaggplus_mod(message, self.contexts[node], self._trained)
        return reply.content.config_records[RECORD_KEY_CONFIGS]

    def _trained(self, message: Message, context: Context) -> Message:
        parameters = ndarrays_to_parameters([self.updates[int(context.node_id)]])
        return Message(compat.fitres_to_recorddict(FitRes(Status(Code.OK, ""), parameters, 1, {}), True), reply_to=message)

    def collect(
        self,
        nodes: Sequence[int] = NODES,
        threshold: int = 3,
        swapped: Callable[[int, dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        """Everything before the masks are taken off. swapped: what a node is told of all nodes' keys instead of the truth."""
        about = {Key.SAMPLE_NUMBER: len(nodes), Key.SHARE_NUMBER: len(nodes), Key.THRESHOLD: threshold, Key.MAX_WEIGHT: 1.0}
        about |= {Key.CLIPPING_RANGE: CLIP, Key.TARGET_RANGE: LEVELS, Key.MOD_RANGE: MODULUS}
        keys = {node: self.ask(node, Stage.SETUP, **about) for node in nodes}
        self.keys = {str(node): [own[Key.PUBLIC_KEY_1], own[Key.PUBLIC_KEY_2]] for node, own in keys.items()}
        sealed: dict[int, list[tuple[int, bytes]]] = {node: [] for node in nodes}
        for node in nodes:
            told = swapped(node, self.keys) if swapped else self.keys
            shares = self.ask(node, Stage.SHARE_KEYS, **told)
            pairs = zip(
                cast(list[int], shares[Key.DESTINATION_LIST]), cast(list[bytes], shares[Key.CIPHERTEXT_LIST]), strict=True
            )
            for to, ciphertext in pairs:
                if to in sealed:
                    sealed[to].append((node, ciphertext))
        self.masked = {}
        for node in nodes:
            sources, texts = zip(*sealed[node], strict=True)
            lists = {Key.SOURCE_LIST: list(sources), Key.CIPHERTEXT_LIST: list(texts)}
            vectors = cast(list[bytes], self.ask(node, Stage.COLLECT_MASKED_VECTORS, **lists)[Key.MASKED_PARAMETERS])
            self.masked[node] = bytes_to_ndarray(vectors[1]).astype(np.int64)

    def unmask(self, node: int, active: Sequence[int], dead: Sequence[int]) -> dict[tuple[int, str], bytes]:
        """One node's shares: (of which node, "seed" or "key") -> share."""
        lists = {Key.ACTIVE_NODE_ID_LIST: list(active), Key.DEAD_NODE_ID_LIST: list(dead)}
        kinds = ["seed"] * len(active) + ["key"] * len(dead)
        given = self.ask(node, Stage.UNMASK, **lists)
        numbers, shares = cast(list[int], given[Key.NODE_ID_LIST]), cast(list[bytes], given[Key.SHARE_LIST])
        return {(number, kind): share for number, kind, share in zip(numbers, kinds, shares, strict=True)}

    def without_masks(self, node: int, seed: bytes, pair_keys: dict[int, bytes]) -> np.ndarray:
        """What is left of a node's vector without its own mask and those that it shares with others."""
        shapes = [(1,), (NUMBERS,)]  # its weight, and the update
        left = self.masked[node] - pseudo_rand_gen(seed, MODULUS, shapes)[1]
        for other, key in pair_keys.items():
            left = left - (1 if node > other else -1) * pseudo_rand_gen(key, MODULUS, shapes)[1]
        return dequantize([np.asarray(left % MODULUS)], CLIP, LEVELS)[0]

    def outcome(self, found: np.ndarray) -> Outcome:
        error = float(np.abs(found - self.updates[VICTIM]).max())
        said = "gives the update of one site away, to within" if error <= WITHIN else "answered; the update is off by"
        return Outcome(error > WITHIN, f"{said} {error:.0e}")


def pair_key(private: bytes, public: bytes) -> bytes:
    return generate_shared_key(bytes_to_private_key(private), bytes_to_public_key(public))


def secret(shares: Sequence[dict[tuple[int, str], bytes]], node: int, kind: str) -> bytes:
    return combine_shares([each[node, kind] for each in shares])


def lost_and_surviving() -> Outcome:
    """The victim is named among those who are there and among those who are lost: seed and key."""
    f = Federation()
    f.collect()
    shares = [f.unmask(node, NODES, [VICTIM]) for node in OTHERS]
    key = secret(shares, VICTIM, "key")
    pairs = {other: pair_key(key, cast(bytes, f.keys[str(other)][0])) for other in OTHERS}
    return f.outcome(f.without_masks(VICTIM, secret(shares, VICTIM, "seed"), pairs))


def keys_of_the_server() -> Outcome:
    """The victim gets keys of the server's in the place of the others', none of which is signed."""
    made = {other: generate_key_pairs() for other in OTHERS}

    def swapped(node: int, keys: dict[str, Any]) -> dict[str, Any]:
        own = {str(other): [public_key_to_bytes(public), keys[str(other)][1]] for other, (_, public) in made.items()}
        return {**keys, **own} if node == VICTIM else keys

    f = Federation()
    f.collect(swapped=swapped)
    shares = [f.unmask(node, NODES, []) for node in OTHERS]
    public = bytes_to_public_key(cast(bytes, f.keys[str(VICTIM)][0]))
    pairs = {other: generate_shared_key(private, public) for other, (private, _) in made.items()}
    return f.outcome(f.without_masks(VICTIM, secret(shares, VICTIM, "seed"), pairs))


def a_sum_over_itself() -> Outcome:
    """The server sets the threshold, to two: two others open the victim's vector alone, as if they were lost themselves."""
    f = Federation()
    f.collect(threshold=2)
    shares = [f.unmask(node, [VICTIM, node], [other for other in OTHERS if other != node]) for node in OTHERS]
    keys = {other: combine_shares([each[other, "key"] for each in shares if (other, "key") in each]) for other in OTHERS}
    seed = secret(shares, VICTIM, "seed")
    pairs = {other: pair_key(key, cast(bytes, f.keys[str(VICTIM)][0])) for other, key in keys.items()}
    return f.outcome(f.without_masks(VICTIM, seed, pairs))


def one_site_fewer() -> Outcome:
    """The round once more, without the victim; the difference of the two sums is its update."""
    sums = []
    f = Federation()
    for nodes in (NODES, OTHERS):
        f.collect(nodes)
        shares = [f.unmask(node, nodes, []) for node in nodes]
        shapes = [(1,), (NUMBERS,)]
        total = sum(f.masked[node] - pseudo_rand_gen(secret(shares, node, "seed"), MODULUS, shapes)[1] for node in nodes)
        sums.append(np.asarray(total % MODULUS))
    return f.outcome(dequantize([sums[0] - sums[1]], CLIP, LEVELS)[0])


def opened_twice() -> Outcome:
    """A second opening of the same vectors, with another list."""
    f = Federation()
    f.collect()
    f.unmask(2, NODES, [])
    try:
        f.unmask(2, OTHERS, [VICTIM])
    except ValueError as error:
        return Outcome(True, str(error))
    return Outcome(False, "answered")


LIES: dict[str, tuple[str, Callable[[], Outcome]]] = {
    "a site named among the lost and among the survivors": ("opening: a survivor twice", lost_and_surviving),
    "keys of the server's in place of other sites'": ("roster: keys for masks in place of another site's", keys_of_the_server),
    "a sum over one site": ("opening: a sum over itself", a_sum_over_itself),
    "the round again with one site fewer": ("opening: one site fewer, in another attempt", one_site_fewer),
    "the same vectors opened with another list": ("opening: one site fewer than before", opened_twice),
}
"""What is told -> (the row of `secure_table` that tells it to a site here, play it to Flower's module)."""
