"""Tensors as Flower records, and the bytes of a message as the transport sends it."""

import numpy as np
from flwr.app import Array, ArrayRecord, Message
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree

from fedlingua.errors import ExchangeError
from fedlingua.exchange.joined import join, joined_set, separate
from fedlingua.exchange.tensor_sets import Tensors, TensorSet, check_tensors


def pack(tensors: Tensors, chosen: TensorSet) -> ArrayRecord:
    """A set's tensors as one record with an array for each part; no tensors make an empty record."""
    return to_record(join(tensors, chosen))


def unpack(record: ArrayRecord, chosen: TensorSet) -> Tensors:
    """The set's tensors out of a record, checked: every part, its size, dtype and numbers.

    Raises:
        ExchangeError: an array that does not decode, or what `check_tensors` refuses; names the part.
    """
    return separate(check_tensors(from_record(record), joined_set(chosen)), chosen)


def to_record(tensors: Tensors) -> ArrayRecord:
    """Named arrays as a record, in their order."""
    return ArrayRecord({name: Array(np.asarray(array, order="C")) for name, array in tensors.items()})


def from_record(record: ArrayRecord) -> Tensors:
    """A record's arrays, each in memory of its own; npy without pickle, so that nothing that comes in is run.

    Raises:
        ExchangeError: an array that does not decode; names it.
    """
    tensors: Tensors = {}
    for name, array in record.items():
        if array.stype != "numpy.ndarray":
            raise ExchangeError(f"tensor {name!r} is serialized as {array.stype!r}; wanted 'numpy.ndarray'")
        try:
            decoded: object = array.numpy()
            if not isinstance(decoded, np.ndarray):  # numpy's reader takes a zip of arrays (npz) for as good
                raise ExchangeError(f"tensor {name!r} is no single array (got {type(decoded).__name__}); wanted npy")
            tensors[name] = np.array(decoded)
        except ExchangeError:
            raise
        except Exception as error:  # numpy reads a header with Python's own parser, which fails in many ways
            raise ExchangeError(f"tensor {name!r} does not decode ({type(error).__name__})") from error
    return tensors


def message_bytes(message: Message) -> int:
    """Length of the serialized message: its tree of object ids, and every object once, as the transport sends them.

    Objects of equal content (two zero biases of one shape, say) are one object on the wire and count once.
    """
    objects = sum(len(item.deflate()) for item in get_all_nested_objects(message).values())
    return objects + int(get_object_tree(message).ByteSize())
