"""Flower's own strategies, and classes of one's own made from them, as they come: one instance runs inside every cluster of every part.

`strategy = "flwr.serverapp.strategy:FedMedian"` takes a class, `"flwr.serverapp.strategy:FedTrimmedAvg(beta=0.2)"` gives it
arguments, and `"my_file:MyStrategy"` a subclass. A cluster's part is to an instance what a whole federation is to Flower's loop:

- `configure_train` gets the cluster's tensors and a grid of its sites; what it gives goes out: its arrays, and its config where
  sites know the key (`proximal-mu` of FedProx).
- `aggregate_train` gets the cluster's replies, checked: the tensors of that part in one ArrayRecord, and in one MetricRecord
  `num-examples` (and the key that the instance weighs by), `train_loss`, `num-tokens` and `steps`. What it gives is the cluster's next.
  None leaves the cluster as it is.
- What it changes of itself in `aggregate_train` (FedAdam's moments, FedAvgM's momentum) goes into the state, and with it into
  checkpoints; every round makes the instances anew of it.

Who is asked, deadlines, checked replies, the quorum, evaluation and the best round are this project's for every strategy.
"""

import ast
import copy
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedlingua.backbones.parts import PARTS
from fedlingua.clustering.clusters import Clusters
from fedlingua.common.errors import ConfigError, RunError
from fedlingua.common.languages import nearest
from fedlingua.exchange import protocol
from fedlingua.exchange.tensors import Tensors, TensorSet
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.config import Settings
from strategies.aggregation import State
from strategies.flower_records import WEIGHT, arrays_of, checked_array, lazy_record, site_of, state_of
from strategies.registration import Registry
from strategies.strategy import SiteStrategy
from strategies.traffic import CountedGrid, Traffic

MEMORY = "stock"
"""Prefix of what instances remember in a state's memory, and its key in the values."""
OURS = ("min_train_nodes", "min_evaluate_nodes", "min_available_nodes", "fraction_train", "fraction_evaluate")
"""Arguments of Flower's that say how many nodes are asked, which here `quorum` does."""
SERVER_ROUND = "server-round"
"""What Flower adds to a config; a request says its round already."""


class Stock(SiteStrategy):
    """A class of Flower's inside every cluster. make: a new instance of it."""

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        clusters: Clusters,
        tensor_set: TensorSet,
        folder: RunFolder,
        make: Callable[[], Strategy],
    ) -> None:
        super().__init__(settings, registry, clusters, tensor_set, folder)
        self.make = make
        self.instances: dict[str, tuple[Strategy, dict[str, Any]]] = {}
        """part/cluster -> the round's instance, and what its `configure_train` has set of it"""

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """Requests with what the instances' own `configure_train` gives to their clusters."""
        state = state_of(arrays, self.state)
        tensors: Any = {part: dict(clusters) for part, clusters in state.tensors.items()}
        merged = dict(config)
        for part, cluster, sites in self._clusters():
            before, instance = tensors[part][cluster], restored(self.make(), state, f"{part}/{cluster}")
            attributes = dict(vars(instance))
            given = lazy_record(before, state), ConfigRecord(dict(config)), ClusterGrid(grid, sites)
            requests = list(instance.configure_train(server_round, *given))
            if {request.metadata.dst_node_id for request in requests} != set(given[-1].get_node_ids()):
                raise RunError(f"{type(instance).__name__} asks {len(requests)} of {len(sites)} sites; wanted every one")
            content = requests[0].content
            tensors[part][cluster] = taken(next(iter(content.array_records.values())), before, instance)
            for own in content.config_records.values():
                merged |= {key: value for key, value in own.items() if key != SERVER_ROUND}
            settled = {name: value for name, value in vars(instance).items() if attributes.get(name) is not value}
            self.instances[f"{part}/{cluster}"] = instance, settled
        return self._train_requests(
            protocol.TRAIN, server_round, arrays_of(replace(state, tensors=tensors)), grid, ConfigRecord(merged)
        )

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The arrays that the instances' own `aggregate_train` gives to their clusters."""
        messages = {site_of(reply): reply for reply in replies}
        state, tensors = self.sent, {part: dict(clusters) for part, clusters in self.sent.tensors.items()}
        memory, values = dict(state.memory), dict(state.values.get(MEMORY, {}))
        for part, cluster, sites in self._clusters():
            before, key = tensors[part][cluster], f"{part}/{cluster}"
            instance, settled = self.instances[key]
            weight = getattr(instance, "weighted_by_key", WEIGHT)
            if of_cluster := [_part_of(messages[site], before, weight) for site in sites if site in messages]:
                arrays, _ = instance.aggregate_train(server_round, of_cluster)
                if arrays is None:
                    self.note(f"round {server_round}: {type(instance).__name__} leaves the {part} cluster {cluster} as it was")
                    continue
                tensors[part][cluster] = taken(arrays, before, instance)
                own, values[key] = remembered(instance, settled)
                memory |= {f"{MEMORY}/{key}/{name}": array for name, array in own.items()}
        new = replace(state, tensors=tensors, memory=memory, values={**state.values, MEMORY: values})
        return arrays_of(new), self._mean_metrics(list(messages.values()))

    def _clusters(self) -> Iterable[tuple[Any, str, Sequence[str]]]:
        for part in PARTS:
            for cluster, sites in self.clusters[part].items() if self.tensor_set.of_part(part) else ():
                yield part, cluster, sites


class ClusterGrid(CountedGrid):
    """A cluster's sites as nodes 1, 2, ...: several of them may be on one of Flower's."""

    def __init__(self, grid: Grid, sites: Sequence[str]) -> None:
        super().__init__(grid, Traffic())
        self._sites = sites

    def get_node_ids(self) -> Iterable[int]:
        return list(range(1, len(self._sites) + 1))


def taken(arrays: ArrayRecord, before: Tensors, instance: Strategy) -> Tensors:
    """An instance's arrays as a cluster's tensors, float32; those that it left alone as they are.

    Raises:
        RunError: other names or shapes than the cluster's, or numbers that are not finite.
    """
    name = type(instance).__name__
    if set(arrays) != set(before):
        raise RunError(f"{name} gave {len(arrays)} arrays; wanted the cluster's {len(before)}, under their names")
    return {key: checked_array(f"{name}'s {key}", arrays[key], old) for key, old in before.items()}


def _part_of(reply: Message, names: Iterable[str], weight: str) -> Message:
    """The reply, with the tensors of one part."""
    content, arrays = reply.content, ArrayRecord()
    for name in names:
        arrays[name] = content.array_records[protocol.ARRAYS][name]
    metrics = content.metric_records[protocol.METRICS]
    metrics = MetricRecord({**metrics, weight: metrics[WEIGHT]})
    mine = copy.copy(reply)
    mine.content = RecordDict({protocol.TASK: content[protocol.TASK], protocol.ARRAYS: arrays, protocol.METRICS: metrics})
    return mine


# --- What instances remember -------------------------------------------------------------------------------------------------


def remembered(instance: Strategy, settled: Mapping[str, Any]) -> tuple[Tensors, dict[str, Any]]:
    """(arrays by name, how they and plain values make up the attributes) of all that an instance changed of itself.

    Args:
        settled: attributes that `configure_train` sets anew each round; they are left out where nothing else changed them.

    Raises:
        RunError: an attribute that no checkpoint can hold; names it.
    """
    arrays: Tensors = {}
    attributes: dict[str, Any] = {}
    fresh = getattr(instance, "_fresh")  # noqa: B009
    for name, value in vars(instance).items():
        if name == "_fresh" or (name in settled and settled[name] is value) or _same(fresh.get(name), value):
            continue
        if isinstance(value, ArrayRecord):
            kind, parts = "record", {key: array.numpy() for key, array in value.items()}
        elif isinstance(value, np.ndarray):
            kind, parts = "array", {"": value}
        elif isinstance(value, list | tuple) and value and all(isinstance(each, np.ndarray) for each in value):
            kind, parts = "list", {str(number): each for number, each in enumerate(value)}
        elif isinstance(value, dict) and value and all(isinstance(each, np.ndarray) for each in value.values()):
            kind, parts = "dict", value
        elif _is_plain(value):
            attributes[name] = {"kind": "value", "value": value}
            continue
        else:
            raise RunError(
                f"{type(instance).__name__}.{name} is a {type(value).__name__}, which no checkpoint can hold; keep arrays, lists or "
                "dicts of arrays, an ArrayRecord, or what JSON holds"
            )
        attributes[name] = {"kind": kind, "keys": list(parts)}
        arrays |= {f"{name}/{key}": np.array(array, order="C") for key, array in parts.items()}
    return arrays, attributes


def restored(instance: Strategy, state: State, key: str) -> Strategy:
    """A new instance with what the one of that part and cluster remembered."""
    for name in set(OURS) & set(vars(instance)):
        setattr(instance, name, 1)
    instance.__dict__["_fresh"] = {
        name: copy.deepcopy(value) if _is_plain(value) else value for name, value in vars(instance).items()
    }
    for name, form in state.values.get(MEMORY, {}).get(key, {}).items():
        arrays = {part: state.memory[f"{MEMORY}/{key}/{name}/{part}"].copy() for part in form.get("keys", ())}
        values: dict[str, Any] = {
            "value": form.get("value"),
            "array": arrays.get(""),
            "list": list(arrays.values()),
            "dict": arrays,
        }
        kind = form["kind"]
        value = ArrayRecord({part: Array(array) for part, array in arrays.items()}) if kind == "record" else values[kind]
        setattr(instance, name, value)
    return instance


def _same(fresh: Any, value: Any) -> bool:
    return fresh is value or (_is_plain(fresh) and _is_plain(value) and bool(fresh == value))


def _is_plain(value: Any) -> bool:
    """Whether JSON holds it."""
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(each) for key, each in value.items())
    return value is None or isinstance(value, str | int | float | bool)


# --- By name -----------------------------------------------------------------------------------------------------------------


def named_class(settings: Settings) -> tuple[type[Any], dict[str, Any]]:
    """The class that `strategy` names, and the arguments that it is given there.

    Raises:
        ConfigError: no such module or class, or arguments that are not name=value.
    """
    module_name, _, call = settings.strategy.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(
            f"strategy = {settings.strategy!r}: cannot import {module_name!r} ({error}); it has to lie beside pyproject.toml"
        ) from error
    class_name = call.partition("(")[0]
    named = getattr(module, class_name, None)
    if not (isinstance(named, type) and issubclass(named, Strategy)):
        near = nearest(class_name, vars(module))
        raise ConfigError(f"strategy = {settings.strategy!r}: {module_name} has no strategy {class_name!r}{near}")
    try:
        parsed = ast.parse(call, mode="eval").body
        keywords = parsed.keywords if isinstance(parsed, ast.Call) and not parsed.args else []
        arguments = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in keywords}
        if isinstance(parsed, ast.Call) and (parsed.args or None in [keyword.arg for keyword in keywords]):
            raise ValueError("arguments have names")
    except (SyntaxError, ValueError) as error:
        raise ConfigError(
            f"strategy = {settings.strategy!r}: its arguments do not read; give them as in FedTrimmedAvg(beta=0.2)"
        ) from error
    return named, arguments


def maker(settings: Settings, named: type[Strategy], arguments: Mapping[str, Any]) -> Callable[[], Strategy]:
    """What makes an instance; `client_learning_rate`, where a class asks for it (QFedAvg), is the run's `learning-rate`.

    Raises:
        ConfigError: arguments that the class does not take, or that are this project's to say.
    """
    known = inspect.signature(named).parameters
    given = dict(arguments)
    if (rate := known.get("client_learning_rate")) and rate.default is rate.empty:
        given.setdefault("client_learning_rate", settings.step_learning_rate)
    for name in given:
        if name not in known:
            raise ConfigError(f"strategy = {settings.strategy!r}: {named.__name__} takes no {name!r}{nearest(name, known)}")
        if name in OURS:
            raise ConfigError(f"strategy = {settings.strategy!r}: {name} says how many sites are asked; here `quorum` does")

    def make() -> Strategy:
        return named(**given)

    try:
        made = make()
    except (TypeError, ValueError) as error:
        raise ConfigError(f"strategy = {settings.strategy!r}: {named.__name__} cannot be made ({error})") from error
    if (share := getattr(made, "fraction_train", 1.0)) != 1.0:
        raise ConfigError(f"strategy = {settings.strategy!r}: it has fraction_train = {share}; here `quorum` says who is asked")
    return make
