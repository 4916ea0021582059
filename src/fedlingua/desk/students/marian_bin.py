"""Read a model file of Marian (`.bin`): 32-bit floats, or the 8-bit integers of intgemm that Firefox and Bergamot use."""

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedlingua.common.errors import BackboneError
from fedlingua.exchange.joined import Numbers

FLOAT32, INT8 = 0x404, 0x4101
EMBEDDING = "Wemb"
MOST_TENSORS = 10_000
_SCALES_OF_ACTIVATIONS = "_QuantMultA"


def read_marian(file: Path) -> dict[str, Numbers]:
    """Return name -> float32 tensor of a version-1 file: headers, names, shapes, padding, then all data.

    Eight-bit matrices are stored transposed, except the embedding, with one scale after the numbers: weight = integer / scale. Scales of
    activations are left out; computing in float32 needs none.

    Raises:
        BackboneError: the file is cut short, of another format, or holds numbers of another type.
    """
    content = file.read_bytes()
    try:
        return dict(_tensors(content, file))
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise BackboneError(f"{file} is cut short or no model file of Marian ({error}); fetch it again") from error


def _tensors(content: bytes, file: Path) -> Iterator[tuple[str, Numbers]]:
    (version, number), place = struct.unpack_from("<QQ", content), 16
    if version != 1 or not 0 < number <= MOST_TENSORS:
        raise BackboneError(f"{file} is no model file of Marian: version {version}, {number} tensors; wanted version 1")
    headers = [struct.unpack_from("<QQQQ", content, place + 32 * each) for each in range(number)]
    place += 32 * number
    names, shapes = [], []
    for length, *_ in headers:
        names.append(content[place : place + length - 1].decode())
        place += length
    for _, _, dimensions, _ in headers:
        shapes.append(struct.unpack_from(f"<{dimensions}i", content, place))
        place += 4 * dimensions
    place += 8 + struct.unpack_from("<Q", content, place)[0]
    for name, shape, (_, kind, _, size) in zip(names, shapes, headers, strict=True):
        data, place = content[place : place + size], place + size
        if not name.startswith("special:") and not name.endswith(_SCALES_OF_ACTIVATIONS):
            yield name, _numbers(data, shape, kind, name, file)


def _numbers(data: bytes, shape: tuple[int, ...], kind: int, name: str, file: Path) -> Numbers:
    count = int(np.prod(shape))
    if kind == FLOAT32:
        return np.frombuffer(data, "<f4", count).reshape(shape)
    if kind != INT8:
        raise BackboneError(f"{file}: {name} has numbers of type {kind:#x}; wanted float32 ({FLOAT32:#x}) or int8 ({INT8:#x})")
    weights: Numbers = np.frombuffer(data, np.int8, count) / np.frombuffer(data, "<f4", 1, offset=count)
    return weights.reshape(shape) if name == EMBEDDING else weights.reshape(shape[::-1]).T
