"""Pack tensors into Flower records, unpack and check them, and count the bytes of a message as it is sent."""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message
from flwr.app.message.arraychunk import ArrayChunk
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import (
    InflatableObject,
    get_object_body,
    get_object_children_ids_from_object_content,
    no_object_id_recompute,
)
from numpy.lib import format as npy

from fedlingua.backbones.parts import PARTS
from fedlingua.common.errors import ExchangeError
from fedlingua.exchange.joined import Joined, joined_set, runs
from fedlingua.exchange.tensors import NOTHING, NamedTensors, Tensors, TensorSet, check_forms, not_finite

NPY = "numpy.ndarray"
"""Flower's name for arrays serialized as npy."""
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_MOST_HEADER = 16 * 1024
"""An array's header must end within this many bytes; numpy itself reads no header over 10,000 bytes."""


Packed = dict[tuple[object, ...], tuple[NamedTensors, Array]]
"""Memory addresses of a part's tensors -> the tensors, and the array made of them."""


def pack(tensors: NamedTensors, chosen: TensorSet, packed: Packed | None = None) -> ArrayRecord:
    """Pack a set's tensors as one record with an array for each part; no tensors make an empty record.

    Args:
        packed: Arrays of earlier calls, to which this one adds its own: a part that several sites get (from the same memory) is
            packed once, and therefore hashed, sent and counted once. The tensors must not change between the calls.
    """
    record, packed = ArrayRecord(), {} if packed is None else packed
    for part in PARTS if tensors else ():
        lies = [tensors[spec.name].__array_interface__ for spec in chosen.of_part(part) if spec.size]
        key = (part, *((each["data"], each["shape"], each["strides"]) for each in lies))
        if lies and key not in packed:
            # These are the bytes that `np.save` would write of the concatenation, without the copy that it needs.
            flat = tensors.parts[part][:] if isinstance(tensors, Joined) and tensors.chosen == chosen else None
            pieces, header = runs(tensors, chosen)[part] if flat is None else [flat], BytesIO()
            dtype, shape = np.result_type(*pieces), (sum(piece.size for piece in pieces),)
            described = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
            npy.write_array_header_1_0(header, described)
            data = b"".join([header.getvalue(), *(piece.astype(dtype, copy=False).data for piece in pieces if piece.size)])
            packed[key] = tensors, Array(str(dtype), shape, NPY, data)
        if lies:
            record[part] = packed[key][1]
    return record


def unpack(record: ArrayRecord | None, chosen: TensorSet, finite: bool = True, may_be_empty: bool = False) -> Joined:
    """Check a record and return the set's tensors as views of its bytes. An empty record, if allowed, gives no tensors.

    Raises:
        ExchangeError: An array does not decode; a part is missing, unknown, or of another size or dtype; or, with `finite`, it
            holds NaN or infinity. The message names the part.
    """
    if may_be_empty and not record:
        return Joined({}, NOTHING)
    arrays, wanted = opened(record or ArrayRecord()), joined_set(chosen)
    check_forms({name: (array.dtype, array.shape) for name, array in arrays.items()}, wanted)
    parts = {name: arrays[name] for name in wanted.names}
    if wrong := [part for part, numbers in parts.items() if finite and not np.isfinite(numbers).all()]:
        raise not_finite(wrong[0])
    return Joined(parts, chosen)


view = partial(unpack, finite=False)
"""`unpack` without the check for NaN and infinity."""


def opened(record: Mapping[str, Array]) -> Tensors:
    """Decode a record's npy arrays as read-only views of its bytes. Pickled ones are refused: they could run a sender's code.

    Raises:
        ExchangeError: An array does not decode; the message names it.
    """
    arrays: Tensors = {}
    for name, array in record.items():
        if array.stype != NPY:
            raise ExchangeError(f"tensor {name!r} is serialized as {array.stype!r}; wanted {NPY!r}")
        try:
            start = BytesIO(array.data[:_MOST_HEADER])
            shape, dtype = _read_header(start)
            wanted, got = math.prod(shape) * dtype.itemsize, len(array.data) - start.tell()
            if wanted != got:
                raise _NotNpyError(f"{got} bytes follow its header; its shape {shape} wants {wanted}")
            numbers = np.frombuffer(array.data, dtype, offset=start.tell()) if got else np.empty(0, dtype)
            arrays[name] = numbers.reshape(shape)
        except Exception as error:  # numpy reads a header with Python's own parser, which fails in many ways
            reason = error if isinstance(error, _NotNpyError) else type(error).__name__
            raise ExchangeError(f"tensor {name!r} does not decode ({reason})") from error
    return arrays


def to_record(tensors: NamedTensors) -> ArrayRecord:
    """Pack named arrays as a record, in their order."""
    return ArrayRecord({name: Array(np.asarray(array, order="C")) for name, array in tensors.items()})


def from_record(record: ArrayRecord) -> Tensors:
    """Copy a record's arrays, each into its own memory; raise ExchangeError, which names the array, if one does not decode."""
    return {name: array.copy() for name, array in opened(record).items()}


class _NotNpyError(Exception):
    """A serialized array is not of the form that `to_record` writes; the message says how it differs."""


def _read_header(start: BytesIO) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = npy.read_magic(start)
    if version not in _HEADERS:
        raise _NotNpyError(f"npy of version {version}; wanted 1.0 or 2.0")
    shape, fortran, dtype = _HEADERS[version](start)
    if dtype.hasobject:
        raise _NotNpyError("it holds Python objects; wanted numbers")
    if fortran:
        raise _NotNpyError("its columns come first (Fortran order); wanted rows first")
    return shape, dtype


@contextmanager
def bounded_arrays(most_bytes: int) -> Iterator[None]:
    """Limit the bytes of the arrays that Flower inflates in this process within the context, whatever messages ask for.

    An array's descriptor lists its chunks, and may list one chunk a thousand times, so that few bytes on the wire become many in memory.
    Honest arrays repeat chunks, too (of zeros); therefore the bytes are limited and not the repetition. In every version and transport
    Flower inflates by `Array.inflate`, inside the grid's `pull_messages`; only there can the size be checked beforehand.

    Raises:
        ExchangeError: from the call that inflates; names the bytes asked for and the limit.
    """
    flowers, asked = Array.__dict__["inflate"], 0

    def inflate(cls: type[Array], content: bytes, children: dict[str, InflatableObject] | None = None) -> Array:
        nonlocal asked
        numbers = get_object_children_ids_from_object_content(content)
        sizes = [len(chunk.data) if isinstance(chunk := (children or {})[number], ArrayChunk) else 0 for number in numbers]
        asked += sum(sizes[place] for place in json.loads(get_object_body(content, Array))["arraychunk_ids"])
        if asked > most_bytes:
            raise ExchangeError(f"its arrays are of {asked} bytes; wanted at most {most_bytes}")
        made: Array = flowers.__func__(cls, content, children)
        return made

    Array.inflate = classmethod(inflate)  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Array.inflate = flowers  # type: ignore[method-assign]


def message_bytes(message: Message) -> int:
    """Return the bytes of the serialized message: its tree of object ids, and every object once, as the transport sends them.

    Objects of equal content (such as two zero biases of one shape) are one object on the wire and count once. An array is hashed only the
    first time and its numbers are never copied, so an array that many messages share costs next to nothing after the first.
    """
    with no_object_id_recompute():  # otherwise every level above serializes and hashes all below it again
        tree, lengths = ObjectTree(object_id=message.object_id), dict[str, int]()
        pending: list[tuple[ObjectTree, InflatableObject]] = [(tree, message)]
        while pending:
            place, item = pending.pop()
            if isinstance(item, ArrayChunk):  # an empty chunk's bytes, with this length in place of its 0, and the data
                length = len(item.data)
                lengths[place.object_id] = len(ArrayChunk(memoryview(b"")).deflate()) - len("0") + len(str(length)) + length
            else:
                lengths[place.object_id] = len(item.deflate())
            pending += [(place.children.add(object_id=number), child) for number, child in (item.children or {}).items()]
    return int(tree.ByteSize()) + sum(lengths.values())
