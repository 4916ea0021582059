"""Coded changes in place of tensors (`send.code`): encode what the sites receive, and decode what a site sent."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fedlingua.common.errors import ExchangeError
from fedlingua.exchange.coding.change import encode_change, opened_payload
from fedlingua.exchange.coding.coder import generator_of
from fedlingua.exchange.held import digest_of
from fedlingua.exchange.joined import Joined, Numbers, flat_parts, join
from fedlingua.exchange.tensors import NamedTensors, Tensors, TensorSet
from fedlingua.selection.masks import pack_selected, part_sizes, selection_of
from fedlingua.settings.codes import Code
from fedlingua.settings.config import Settings
from strategies.aggregation.mean import State

Payloads = Mapping[tuple[str, str], bytes]
"""(hash of a part's old numbers, hash of its new numbers) -> the coded change from old to new"""


def encode_downlink(
    before: State, after: State, tensor_set: TensorSet, settings: Settings, number: int
) -> tuple[State, Payloads]:
    """Code the change that a round makes to the state; return the state that the sites will have after it, and the coded changes.

    What the code leaves out is stored in the state and added to a later change (Karimireddy et al. 2019, algorithm 2).

    Args:
        before: The state whose tensors the sites have.
        after: The state that the method computed in round `number`.
    """
    code = settings.code_down
    tensors = {part: dict(clusters) for part, clusters in after.tensors.items()}
    residuals, payloads = Tensors(after.residuals), dict[tuple[str, str], bytes]()
    for part, clusters in tensors.items():
        of_part = tensor_set.in_part(part)
        for cluster in clusters if of_part.specs else ():
            old, new = (join(state.tensors[part][cluster], of_part)[part] for state in (before, after))
            key = f"{part}.{cluster}"
            if np.array_equal(old, new) and not residuals.get(key, np.zeros(1)).any():
                continue
            draws = generator_of(settings.seed, number, f"cluster {cluster}", part)
            coded = encode_change(old, new, residuals.get(key), of_part.shapes_of(part), code, draws)
            tensors[part][cluster] = Joined({part: coded.numbers}, of_part)
            payloads[digest_of(old), digest_of(coded.numbers)] = coded.payload
            if not code.is_exact:
                residuals[key] = coded.residual
    return replace(after, tensors=tensors, residuals=residuals), payloads


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
