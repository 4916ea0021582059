"""A part that the other side has, and what it becomes: the payload between them. Both sides make the same numbers of it."""

from dataclasses import dataclass

import numpy as np

from fedlingua.common.errors import ExchangeError
from fedlingua.exchange.coding.coder import Shapes, decode, encode
from fedlingua.exchange.joined import Numbers
from fedlingua.settings.codes import Code


@dataclass(frozen=True)
class Coded:
    """payload: what travels; numbers: what the other side makes of it; residual: what is left for the next change. (n,) float32."""

    payload: bytes
    numbers: Numbers
    residual: Numbers


def encode_change(
    old: Numbers, new: Numbers, residual: Numbers | None, shapes: Shapes, code: Code, generator: np.random.Generator
) -> Coded:
    """Code how a part goes from `old` to `new`; an exact code carries the new numbers themselves, which leave no residual.

    For changes that add up, wanted = change + residual, and residual = wanted - C(wanted): Karimireddy et al. 2019, algorithm 2. Where
    `old` is what the other side has, without a residual, `numbers` follow `new`: EF21, Richtárik et al. 2021, algorithm 1.

    Args:
        residual: Of the change before, stored by the caller; None: there is none yet.

    Raises:
        ExchangeError: The residual is another tensor set's, or the numbers cannot be coded.
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
    """Make the new part of the old one and a payload.

    Args:
        payload: As it came.

    Raises:
        ExchangeError: It is not the bytes of a code, or not what this one makes of tensors of these shapes.
    """
    if payload.dtype != np.uint8 or payload.ndim != 1:
        raise ExchangeError(f"a change is {payload.dtype} {payload.shape}; wanted the bytes of a code, uint8 end to end")
    decoded = decode(payload.tobytes(), shapes, code)
    return decoded if code.is_exact else old + decoded
