"""States and updates as Flower's hooks take and return them: real ArrayRecords whose numbers are read on access.

A hook may leave a record unchanged, modify it, or make its own. Unchanged arrays are taken back without a copy.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict

from fedlingua.common.errors import RunError
from fedlingua.exchange import protocol
from fedlingua.exchange.expected import Sums
from fedlingua.exchange.joined import Flat, Joined, Numbers, Some
from fedlingua.exchange.records import NPY
from fedlingua.exchange.state import State, checked_numbers
from fedlingua.exchange.tensors import Tensors, TensorSet
from fedlingua.exchange.updates import Update

WEIGHT, LOSS = "num-examples", "train_loss"
"""Keys of a reply's metrics, as Flower's strategies expect them: the site's weight, and its training loss in nats a token."""


class LazyArray(Array):
    """A Flower Array over float32 numbers of a state or update, in an array or a file. place: Their part, cluster and name in a state."""

    def __init__(self, numbers: Flat | Numbers, shape: tuple[int, ...], source: State | Update, *place: Any) -> None:
        self.dtype, self.shape, self.stype = "float32", shape, NPY
        self.numbers, self.source, self.place = numbers, source, place

    @property
    def data(self) -> bytes:  # type: ignore[override]
        """The bytes in npy format, made on each access."""
        return Array(self.numpy()).data

    def numpy(self) -> Numbers:
        """Return a copy, which may be written to, as Flower's own does."""
        numbers = self.numbers if isinstance(self.numbers, np.ndarray) else self.numbers[: len(self.numbers)]
        return np.array(numbers, order="C").reshape(self.shape)


def lazy_record(tensors: Mapping[str, Numbers], source: State | Update) -> ArrayRecord:
    """Return tensors as a record, by their names."""
    record = ArrayRecord()
    for name, tensor in tensors.items():
        record[name] = LazyArray(tensor, tensor.shape, source)
    return record


# --- States ------------------------------------------------------------------------------------------------------------------


def arrays_of(state: State) -> ArrayRecord:
    """Return all clusters' tensors as a record: by name if a part has one cluster, otherwise by cluster/name."""
    record = ArrayRecord()
    for part, clusters in state.tensors.items():
        for cluster, tensors in clusters.items():
            for name, tensor in tensors.items():
                key = name if len(clusters) == 1 else f"{cluster}/{name}"
                record[key] = LazyArray(tensor, tensor.shape, state, part, cluster, name)
    return record


def state_of(arrays: ArrayRecord, before: State) -> State:
    """Return the state that `arrays_of` was given, with the tensors that a hook has replaced; raise RunError if they are not its own.

    before: The state at the beginning of the round, for a record that a hook has made anew.
    """
    sources = [array.source for array in arrays.values() if isinstance(array, LazyArray) and isinstance(array.source, State)]
    state = sources[0] if sources else before
    assert isinstance(state, State)
    if arrays and not sources and before.memory:
        raise RunError(
            "a hook returned a new record, but the method stores more than tensors; change the one that super() returned"
        )
    own: dict[str, Any] = dict(arrays_of(state))
    if set(arrays) != set(own):
        raise RunError(f"a hook gave the arrays {', '.join(sorted(arrays)) or 'none'}; wanted those of the state: {len(own)}")
    changed = {key for key, array in arrays.items() if not (isinstance(array, LazyArray) and array.source is state)}
    if not changed:
        return state
    tensors: Any = {part: {cluster: dict(old) for cluster, old in clusters.items()} for part, clusters in state.tensors.items()}
    for key in changed:
        part, cluster, name = own[key].place
        tensors[part][cluster][name] = checked_array("a hook", key, arrays[key], own[key].numbers)
    return replace(state, tensors=tensors)


def checked_array(who: str, name: str, array: Array, before: Numbers) -> Numbers:
    """Return an array as float32; raise RunError for another shape than before, or numbers that are not finite."""
    if isinstance(array, LazyArray) and getattr(array.numbers, "__array_interface__", None) == before.__array_interface__:
        return before
    return checked_numbers(who, name, array.numpy(), before.shape)


# --- Updates -----------------------------------------------------------------------------------------------------------------


def content_of(update: Update, sums: Sums, tensor_set: TensorSet, task: Any) -> RecordDict:
    """Return a checked training reply's content: an ArrayRecord with the site's tensors, a MetricRecord with weight and loss."""
    arrays, shapes = ArrayRecord(), {spec.name: spec.shape for spec in tensor_set.specs}
    tensors = update.tensors if isinstance(update.tensors, Joined) else Some(update.tensors, update.tensors)
    for name in tensors:
        arrays[name] = LazyArray(tensors.flat(name), shapes[name], update)
    metrics: dict[str, Any] = {
        WEIGHT: update.num_examples,
        LOSS: update.loss,
        "num-tokens": sums.get("num_tokens", 0),
        "steps": sums["steps"],
    }
    return RecordDict({protocol.TASK: task, protocol.ARRAYS: arrays, protocol.METRICS: MetricRecord(metrics)})


def site_of(message: Message) -> str:
    """Return the site that a request goes to, or a checked reply came from."""
    return str(message.content.config_records[protocol.TASK]["site"])


def update_of(reply: Message) -> Update:
    """Return the update that `content_of` was given, or what a hook has replaced it with."""
    arrays, metrics = next(iter(reply.content.array_records.values())), next(iter(reply.content.metric_records.values()))
    weight: Any = metrics[WEIGHT]
    sources = {id(source): source for array in arrays.values() for source in [getattr(array, "source", None)]}
    if len(sources) == 1 and isinstance(update := next(iter(sources.values())), Update):
        return update if weight == update.num_examples else replace(update, num_examples=weight)
    tensors: Tensors = {name: array.numpy() for name, array in arrays.items()}
    loss: Any = metrics.get(LOSS, 0.0)
    return Update(site_of(reply), tensors, weight, loss=loss)
