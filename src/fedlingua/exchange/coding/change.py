"""Code the change from the part that the other side has to the new one. Both sides compute the same numbers from the payload."""

from dataclasses import dataclass

import numpy as np

from fedlingua.common.errors import ExchangeError
from fedlingua.exchange.coding.coder import Shapes, decode, encode
from fedlingua.exchange.joined import Numbers
from fedlingua.settings.codes import Code


@dataclass(frozen=True)
class Coded:
    """A coded change. payload: what travels. numbers, residual: the decoded part, and what the code left out, (n,) float32."""

    payload: bytes
    numbers: Numbers
    residual: Numbers


def encode_change(
    old: Numbers, new: Numbers, residual: Numbers | None, shapes: Shapes, code: Code, generator: np.random.Generator
) -> Coded:
    """Code the change of a part from `old` to `new`. An exact code carries the new numbers themselves and leaves no residual.

    For changes that are added up: wanted = change + residual, next residual = wanted - C(wanted) (Karimireddy et al. 2019, algorithm 2).
    If `old` is what the other side has, and no residual is given, `numbers` follow `new`: EF21 (Richtárik et al. 2021, algorithm 1).

    Args:
        residual: What the previous change left out, as the caller stored it; None: nothing yet.

    Raises:
        ExchangeError: The residual belongs to another tensor set, or the numbers cannot be coded.
    """
    wanted = new if code.is_exact else new - old
    if residual is not None and not code.is_exact:
        if residual.shape != wanted.shape:
            raise ExchangeError(f"the residual has {residual.size} numbers; wanted {wanted.size}: start from a full copy")
        wanted = wanted + residual
    payload = encode(wanted, shapes, code, generator)
    decoded = decode(payload, shapes, code)
    return Coded(payload, decoded if code.is_exact else old + decoded, wanted - decoded)


def decode_change(old: Numbers, payload: Numbers, shapes: Shapes, code: Code) -> Numbers:
    """Return the new part, given the old one and a received payload; raises as `opened_payload` does."""
    decoded = opened_payload(payload, shapes, code)
    return decoded if code.is_exact else old + decoded


def opened_payload(payload: Numbers, shapes: Shapes, code: Code) -> Numbers:
    """Return what a received payload holds: a part's change or, of an exact code, its new numbers.

    Raises:
        ExchangeError: The payload is not the bytes of a code, or not what this code makes of tensors of these shapes.
    """
    if payload.dtype != np.uint8 or payload.ndim != 1:
        raise ExchangeError(f"a change is {payload.dtype} {payload.shape}; wanted the bytes of a code, uint8 end to end")
    return decode(payload.tobytes(), shapes, code)
