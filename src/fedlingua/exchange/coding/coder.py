"""Encode the change of a part (encoder, decoder or shared, its tensors end to end) as a payload, and decode it. Pure functions.

A payload begins with a checksum of its code and shapes. Then follow float32 numbers (none), the four bytes of all numbers, one plane after
the other (lossless), or levels: which tensors are not all 0, a scale for each of these, the places of their nonzero numbers if these are
few, and the levels of those numbers, otherwise of all. `top` codes the part as one tensor that is 0 except for the chosen numbers; `rank`
codes a matrix as two tensors, its factors. Claims of a payload are checked against the shapes before memory is allocated for them.
"""

from collections.abc import Sequence
from hashlib import sha256
from math import prod
from zlib import crc32

import numpy as np

from fedlingua.common.errors import ExchangeError
from fedlingua.exchange.coding import entropy
from fedlingua.exchange.joined import Numbers
from fedlingua.settings.codes import Code

Shapes = Sequence[tuple[int, ...]]
GREATEST = float(np.float32(1e30))  # largest scale
_BLOCK = 1 << 16
_ITERATIONS, _SPARE_COLUMNS = 3, 4


def generator_of(run_seed: int, round_number: int, site: str, part: str) -> np.random.Generator:
    """Return the generator for random rounding; it draws the same for the same run, round, site and part."""
    digest = sha256(repr((run_seed, round_number, site, part)).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest)))


def encode(change: Numbers, shapes: Shapes, code: Code, generator: np.random.Generator) -> bytes:
    """Encode a part's change: (n,) float32, contiguous, its tensors end to end. shapes: the tensors' shapes, in order.

    Raises:
        ExchangeError: A number is NaN, infinite or, unless the code is none or lossless, over 1e30.
    """
    assert (change.dtype, change.shape) == (np.float32, (sum(map(prod, shapes)),))
    if not _magnitude(change) <= (GREATEST if code.bits else np.finfo(np.float32).max):
        raise ExchangeError("a change holds NaN, infinity or a number over 1e30; train with a lower learning rate")
    mark = _mark(shapes, code)
    if code.method == "none":
        return mark + change.tobytes()
    if code.method == "lossless":
        return mark + b"".join(entropy.encode_plane(plane.copy()) for plane in change.view(np.uint8).reshape(-1, 4).T)
    if code.method == "top":
        count = min(max(1, int(code.share * change.size)), int(np.count_nonzero(change)))
        places = largest([change], count)
        return mark + _encode_levels([change[places]], code, generator, places, change.size if count else 0)
    tensors = []
    for tensor, shape in zip(_pieces(change, list(map(prod, shapes))), shapes, strict=True):
        tensors += factors(tensor.reshape(shape), code.rank, generator) if code.is_factored(shape) else [tensor]
    return mark + _encode_levels(tensors, code, generator)


def decode(payload: bytes, shapes: Shapes, code: Code) -> Numbers:
    """Return the change that a payload encodes: (n,) float32, finite, with the same bits on every machine.

    Raises:
        ExchangeError: The payload is cut, too long, of another code, or not what its code makes of tensors of these shapes.
    """
    mark, payload = entropy.split(payload, 4)
    if mark != _mark(shapes, code):
        raise ExchangeError(f"payload is of another code or of other tensors; wanted {code} of {len(shapes)} tensors")
    size = sum(map(prod, shapes))
    if code.method == "none":
        content, payload = entropy.split(payload, 4 * size)
        change = np.frombuffer(bytearray(content), np.float32)
    elif code.method == "lossless":
        planes = np.empty((size, 4), np.uint8)
        for plane in range(4):
            planes[:, plane], payload = entropy.decode_plane(payload, size)
        change = planes.reshape(-1).view(np.float32)
    else:
        change, payload = _decode_levels(payload, [(size,)] if code.method == "top" else shapes, code)
    if payload:
        raise ExchangeError(f"payload goes on for {len(payload)} bytes after its end; send it again")
    if not np.isfinite(_magnitude(change)):
        raise ExchangeError("payload holds NaN or infinity; wanted finite numbers")
    return change


def factors(matrix: Numbers, rank: int, generator: np.random.Generator) -> list[Numbers]:
    """Return [(m, rank), (n, rank)] float32, whose product is near the best of that rank: PowerSGD, Vogels et al. 2019, algorithm 1.

    It keeps no state: it starts at random, not from the last round's factors, and so needs three iterations and four spare columns.
    """
    scale = _magnitude(matrix) or 1.0
    right = generator.standard_normal((matrix.shape[1], min(rank + _SPARE_COLUMNS, *matrix.shape)), dtype=np.float32)
    for _ in range(_ITERATIONS):
        left = np.linalg.qr(matrix / scale @ right)[0]
        right = (matrix / scale).T @ left
    rows, values, columns = np.linalg.svd(right.T, full_matrices=False)
    root = np.sqrt(values[:rank] * scale)
    return [left @ rows[:, :rank] * root, columns[:rank].T * root]


def largest(pieces: Sequence[Numbers], count: int) -> Numbers:
    """Return the ascending places of the `count` largest magnitudes in float32 arrays end to end; of equal ones, the first."""
    # Without the sign bit, float32 bits sort by magnitude, and NaN comes last.
    magnitudes = np.concatenate([piece.view(np.uint32) & np.uint32(0x7FFFFFFF) for piece in pieces])
    if count == 0:
        return np.empty(0, np.int64)
    least = np.partition(magnitudes, len(magnitudes) - count)[-count]
    chosen = magnitudes > least
    chosen[np.flatnonzero(magnitudes == least)[: count - np.count_nonzero(chosen)]] = True
    return np.flatnonzero(chosen)


def _encode_levels(
    tensors: Sequence[Numbers], code: Code, generator: np.random.Generator, places: Numbers | None = None, size: int = 0
) -> bytes:
    """Encode tensors as levels. places: if the numbers are given as one tensor, their places among `size` numbers."""
    scales = np.array([_scale(tensor, code) for tensor in tensors], np.float32)
    held = [(tensor.ravel(), scale) for tensor, scale in zip(tensors, scales, strict=True) if scale > 0]
    blocks = ((tensor[start : start + _BLOCK], scale) for tensor, scale in held for start in range(0, tensor.size, _BLOCK))
    levels = np.concatenate([np.empty(0, np.int8), *(_rounded(block, scale, code, generator) for block, scale in blocks)])
    head = np.packbits(scales > 0).tobytes() + scales[scales > 0].tobytes()
    # If 0 is likely, places cost less than Huffman's whole bits. If only a few signs are 0, places do not pay: these decode as +.
    enough = (0.9 if code.bits == 1 else 0.5 if code.bits > 4 else 0.3) * levels.size
    size = size or levels.size
    if places is not None or np.count_nonzero(levels) < enough:
        nonzero = np.flatnonzero(levels)
        levels, places = levels[nonzero], nonzero if places is None else places[nonzero]
    symbols = (levels + np.int8(code.top_level)).view(np.uint8)
    if levels.size < size or code.bits == 1:  # no symbol stands for 0
        symbols -= levels > 0
    head += entropy.encode_places(levels if places is None else places, size)
    return head + entropy.encode_symbols(symbols, code.bits)


def _decode_levels(payload: bytes, shapes: Shapes, code: Code) -> tuple[Numbers, bytes]:
    forms = [[side * code.rank for side in shape] if code.is_factored(shape) else [prod(shape)] for shape in shapes]
    sizes = np.array([size for form in forms for size in form], np.int64)
    head, payload = entropy.split(payload, -(-len(sizes) // 8))
    bits = np.unpackbits(np.frombuffer(head, np.uint8)).astype(bool)
    if bits[len(sizes) :].any():
        raise ExchangeError(f"payload names tensors after its {len(sizes)}; wanted zeros in the rest of the last byte")
    there = bits[: len(sizes)]
    content, payload = entropy.split(payload, 4 * int(there.sum()))
    scales = np.zeros(len(sizes), np.float32)
    scales[there] = np.frombuffer(content, np.float32)
    if (wrong := there & ~((scales > 0) & (scales <= GREATEST))).any():
        raise ExchangeError(f"payload has a scale of {scales[wrong][0]}; wanted one over 0 and up to {GREATEST:g}")
    size = int(sizes[there].sum())
    places, count, payload = entropy.decode_places(payload, size)
    alphabet = np.arange(-code.top_level, code.top_level + 1, dtype=np.int8)
    if count < size or code.bits == 1:
        alphabet = alphabet[alphabet != 0]
    levels = np.zeros(size, np.int8)
    levels[places], payload = entropy.decode_symbols(payload, count, code.bits, alphabet)
    change = np.zeros(sum(map(prod, shapes)), np.float32)
    coded = zip(_pieces(levels, sizes * there), scales.tolist(), strict=True)
    for target, shape in zip(_pieces(change, list(map(prod, shapes))), shapes, strict=True):
        numbers, scale = next(coded)
        if code.is_factored(shape):
            others, other_scale = next(coded)
            scale = min(scale * other_scale, GREATEST)
            if scale:  # products of whole numbers below 2^24 are exact, in whatever order they are added
                left, right = (side.reshape(-1, code.rank).astype(np.float32) for side in (numbers, others))
                np.matmul(left, right.T, out=target.reshape(shape))
            target /= np.float32(code.top_level**2)
        elif scale:
            np.divide(numbers, np.float32(code.top_level), out=target)
        target *= np.float32(scale)
    return change, payload


def _rounded(numbers: Numbers, scale: np.float32, code: Code, generator: np.random.Generator) -> Numbers:
    """Return int8 levels of numbers from -scale to scale. Random rounding is unbiased (QSGD: Alistarh et al. 2017, §3.1)."""
    if code.bits == 1:
        return np.sign(numbers).astype(np.int8)
    levels = numbers / scale
    levels *= code.top_level
    if code.nearest:
        return np.rint(levels, out=levels).astype(np.int8)
    # A draw is the middle of one of 2^16 steps. It uses PCG64's raw bits, because a Generator's methods may change with numpy.
    draws = generator.bit_generator.random_raw(-(-numbers.size // 4)).view(np.uint16)[: numbers.size]
    levels += (draws.astype(np.float32) + np.float32(0.5)) * np.float32(2**-16)
    return np.floor(levels, out=levels).astype(np.int8)


def _mark(shapes: Shapes, code: Code) -> bytes:
    return crc32(repr((code, [[int(side) for side in shape] for shape in shapes])).encode()).to_bytes(4, "little")


def _scale(tensor: Numbers, code: Code) -> float:
    """Return the largest magnitude; for signs the mean nonzero one, which has the least error (Karimireddy et al. 2019, §4)."""
    if code.bits == 1:
        return float(np.abs(tensor).sum(dtype=np.float64)) / max(1, np.flatnonzero(tensor).size)
    return _magnitude(tensor)


def _magnitude(numbers: Numbers) -> float:
    """Return the largest magnitude, without an array of all magnitudes; NaN if any number is NaN."""
    return float(np.maximum(numbers.max(), -numbers.min())) if numbers.size else 0.0


def _pieces(numbers: Numbers, sizes: Sequence[int] | Numbers) -> list[Numbers]:
    return np.split(numbers, np.cumsum(sizes))[:-1]
