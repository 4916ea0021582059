"""Coded changes in place of tensors (`send.code`): encode what the sites receive, and decode what a site sent."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from fedlingua.common.errors import ExchangeError
from fedlingua.common.timing import timed
from fedlingua.exchange import protocol
from fedlingua.exchange.coding.change import encode_change, opened_payload
from fedlingua.exchange.coding.coder import generator_of
from fedlingua.exchange.held import digest_of
from fedlingua.exchange.joined import Joined, Numbers, flat_parts, join
from fedlingua.exchange.protocol import Task
from fedlingua.exchange.records import opened
from fedlingua.exchange.selected import pack_selected, part_sizes, selection_of
from fedlingua.exchange.state import State
from fedlingua.exchange.tensors import NamedTensors, Tensors, TensorSet
from fedlingua.layers.held_tensors import Payloads
from fedlingua.layers.layer import Incoming, Layer, Outgoing, Site
from fedlingua.settings.codes import EXACT, Code
from fedlingua.settings.config import Settings

RESIDUAL = "residual/"
"""Beginning of the names of what a code has not yet sent of a cluster's changes."""


class Codes(Layer):
    """Coded changes in place of tensors, up and down.

    Args:
        payloads: Where the coded changes of the newest state are put for `HeldTensors`, which sends them.
        selects: Whether sites send a part of their updates, which leaves out what a code would have to make up for.
    """

    folders = ("residual",)

    def __init__(self, settings: Settings, payloads: Payloads, selects: bool) -> None:
        super().__init__(settings)
        self.payloads, self.selects = payloads, selects
        self.code = EXACT if settings.sums_securely else settings.code_up  # else levels are what is masked (secure_site.py)

    def state(self, number: int, before: State, after: State) -> State:
        """Return the state that the sites will have, under `send.code-down` from its coded change."""
        if self.settings.code_down.method == "none":
            return after
        with timed(self.run.phases.record.server_s, "code"):
            coded, payloads = encode_downlink(before, after, self.run.tensor_set, self.settings, number)
        self.payloads.clear()
        self.payloads.update(payloads)
        return coded

    def reply(self, incoming: Incoming) -> Incoming:
        if self.code.method == "none" or incoming.start is None:
            return incoming
        arrays, chosen = opened(incoming.content.array_records[protocol.ARRAYS]), incoming.expected.tensor_set
        if self.selects:
            incoming.arrays, incoming.digest = decoded_selection(arrays, incoming.start, chosen, self.code)
        else:
            incoming.tensors, incoming.digest = decoded_update(arrays, incoming.start, chosen, self.code)
        return incoming

    def update(self, site: Site, task: Task, going: Outgoing) -> Outgoing:
        """Code the change since the start, with error feedback (Karimireddy et al. 2019, algorithm 2) if all of it is sent: what the code
        leaves out is added to a later change."""
        if self.code.method == "none":
            return going
        chosen, stage = site.trainable.tensor_set, (task.round, task.attempt)
        parts: Collection[str]
        if going.selection:
            arrays, started = Tensors(going.arrays or {}), pack_selected(going.start, going.selection)
            parts = part_sizes(chosen).keys() & started.keys()
        else:
            arrays, started = join(going.update, chosen), join(going.start, chosen)
            parts = arrays.keys()
        feeds_back = not self.code.is_exact and not going.selection
        residuals, left = site.files["residual"].load(task.own) if feeds_back else {}, Tensors()
        for part in parts:
            shapes = (going.selection or chosen).shapes_of(part)
            draws = generator_of(self.settings.seed, task.round, site.site, part)
            coded = encode_change(started[part], arrays[part], residuals.get(part), shapes, self.code, draws)
            arrays[part], left[part] = np.frombuffer(coded.payload, np.uint8), coded.residual
        if feeds_back:
            site.files["residual"].save(left, stage)
        return replace(going, arrays=arrays)


def encode_downlink(
    before: State, after: State, tensor_set: TensorSet, settings: Settings, number: int
) -> tuple[State, dict[tuple[str, str], bytes]]:
    """Code the change that a round makes to the state; return the state that the sites will have after it, and the coded changes.

    What the code leaves out is stored in the state and added to a later change (Karimireddy et al. 2019, algorithm 2).

    Args:
        before: The state whose tensors the sites have.
        after: The state that the method computed in round `number`.
    """
    code = settings.code_down
    tensors = {part: dict(clusters) for part, clusters in after.tensors.items()}
    residuals, payloads = Tensors(after.of_layers), dict[tuple[str, str], bytes]()
    for part, clusters in tensors.items():
        of_part = tensor_set.in_part(part)
        for cluster in clusters if of_part.specs else ():
            old, new = (join(state.tensors[part][cluster], of_part)[part] for state in (before, after))
            key = f"{RESIDUAL}{part}.{cluster}"
            if np.array_equal(old, new) and not residuals.get(key, np.zeros(1)).any():
                continue
            draws = generator_of(settings.seed, number, f"cluster {cluster}", part)
            coded = encode_change(old, new, residuals.get(key), of_part.shapes_of(part), code, draws)
            tensors[part][cluster] = Joined({part: coded.numbers}, of_part)
            payloads[digest_of(old), digest_of(coded.numbers)] = coded.payload
            if not code.is_exact:
                residuals[key] = coded.residual
    return replace(after, tensors=tensors, of_layers=residuals), payloads


def decoded_update(
    arrays: Mapping[str, Numbers], received: NamedTensors, tensor_set: TensorSet, code: Code
) -> tuple[Joined, str]:
    """Return a site's tensors after its training, those that it received plus the coded change that it sent; and the hash of that
    change, which is the same however its bytes are written."""
    starts = flat_parts(received, tensor_set)
    if wrong := sorted(set(starts) ^ set(arrays)):
        raise ExchangeError(
            f"sends changes of {', '.join(arrays) or 'nothing'}; wanted {', '.join(starts)}; {wrong[0]!r} is wrong"
        )
    parts = {part: opened_payload(arrays[part], tensor_set.shapes_of(part), code) for part in starts}
    digest = digest_of(*parts.values())
    for part, change in parts.items() if not code.is_exact else ():
        np.add(starts[part][: len(change)], change, out=change)
    return Joined(parts, tensor_set), digest


def decoded_selection(
    arrays: Mapping[str, Numbers], received: NamedTensors, tensor_set: TensorSet, code: Code
) -> tuple[dict[str, Numbers], str]:
    """Decode what a site selected of its tensors into the form that `pack_selected` gives it without a code, and hash it as
    `decoded_update` does."""
    selection = selection_of(arrays, tensor_set)
    decoded, changes = dict(arrays), dict(arrays)
    for part, old in pack_selected(received, selection).items():
        if part in part_sizes(tensor_set) and part in arrays:
            changes[part] = opened_payload(arrays[part], selection.shapes_of(part), code)
            decoded[part] = changes[part] if code.is_exact else old + changes[part]
    return decoded, digest_of(*(changes[name] for name in sorted(changes)))


def stretch(code: Code, number: int, fall: float) -> float:
    """Return how many times further than its training an honest site's update may move a number in round `number`.

    fall: The highest rate of earlier rounds, as a multiple of this round's. With levels from -L to L a number is off by at most one level,
    so what the code left out in all earlier rounds is at most 1 / (L - 1) of their longest move. A code that sends only some numbers, or
    signs, may have left a number out in every earlier round. With low rank, each of the two factors is rounded.
    """
    if code.is_exact:
        return 1.0
    before, levels = fall if number > 1 else 0.0, code.top_level
    if code.method == "levels" and levels > 1:
        return 1 + before / (levels - 1)
    whole = 1 + before * (number - 1)
    together = levels / (levels - 1) if levels > 1 else 2.0
    return whole if code.method == "levels" else whole * together ** (2 if code.method == "rank" else 1)
