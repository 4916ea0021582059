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
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedlingua.backbones.parts import PARTS
from fedlingua.common.errors import ConfigError, RunError
from fedlingua.common.languages import nearest
from fedlingua.exchange import protocol
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.tensors import NamedTensors, Tensors
from fedlingua.settings.config import Settings
from strategies.aggregation import State
from strategies.flower_records import WEIGHT, arrays_of, checked_array, lazy_record, site_of, state_of
from strategies.strategy import Federated, SiteStrategy
from strategies.traffic import CountedGrid, Traffic

MEMORY = "stock"
"""Prefix of what instances remember in a state's memory, and its key in the values."""
OURS = ("min_train_nodes", "min_evaluate_nodes", "min_available_nodes", "fraction_train", "fraction_evaluate")
"""Arguments of Flower's that say how many nodes are asked, which here `quorum` does."""
SERVER_ROUND = "server-round"
"""What Flower adds to a config; a request says its round already."""


class Stock(SiteStrategy):
    """A class of Flower's inside every cluster. make: a new instance of it."""

    def __init__(self, of: Federated, make: Callable[[], Strategy]) -> None:
        super().__init__(of)
        self.make = make
        self.fresh = _plain(self._instance(State({}), ""))
        self.instances: dict[str, tuple[Strategy, dict[str, Any]]] = {}
        """part/cluster -> the round's instance, and what its `configure_train` has set of it"""

    @property
    def rides(self) -> bool:
        return super().rides and type(self.make()).configure_train.__module__.startswith("flwr.")

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """Requests with what the instances' own `configure_train` gives to their clusters."""
        state = state_of(arrays, self.state)
        tensors: Any = {part: dict(clusters) for part, clusters in state.tensors.items()}
        merged = dict(config)
        for part, cluster, sites in self._clusters():
            before, instance = tensors[part][cluster], self._instance(state, f"{part}/{cluster}")
            attributes = dict(vars(instance))
            given = lazy_record(before, state), ConfigRecord(dict(config)), ClusterGrid(grid, sites)
            requests = list(instance.configure_train(server_round, *given))
            if {request.metadata.dst_node_id for request in requests} != set(given[-1].get_node_ids()):
                raise RunError(f"{type(instance).__name__} asks {len(requests)} of {len(sites)} sites; wanted every one")
            content = requests[0].content
            tensors[part][cluster] = taken(next(iter(content.array_records.values())), before, instance)
            for own in content.config_records.values():
                wanted = {key: value for key, value in own.items() if key != SERVER_ROUND}
                if clash := [key for key in wanted if merged.get(key, wanted[key]) != wanted[key]]:
                    raise RunError(f"{type(instance).__name__} gives clusters different values of {clash[0]}; a site has one")
                merged |= wanted
            settled = {name: value for name, value in vars(instance).items() if attributes.get(name) is not value}
            self.instances[f"{part}/{cluster}"] = instance, settled
        return super().configure_train(server_round, arrays_of(replace(state, tensors=tensors)), ConfigRecord(merged), grid)

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
                own, values[key] = remembered(instance, self.fresh, settled)
                memory |= {f"{MEMORY}/{key}/{name}": array for name, array in own.items()}
        new = replace(state, tensors=tensors, memory=memory, values={**state.values, MEMORY: values})
        return arrays_of(new), self._mean_metrics(list(messages.values()))

    def _instance(self, state: State, key: str) -> Strategy:
        """A new instance with what the one of that part and cluster remembered."""
        instance, prefix = self.make(), f"{MEMORY}/{key}/"
        for name in set(OURS) & set(vars(instance)):
            setattr(instance, name, 1)
        arrays = {name.removeprefix(prefix): array for name, array in state.memory.items() if name.startswith(prefix)}
        for name, form in state.values.get(MEMORY, {}).get(key, {}).items():
            setattr(instance, name, _from_json(form, arrays))
        return instance

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


def taken(arrays: ArrayRecord, before: NamedTensors, instance: Strategy) -> NamedTensors:
    """An instance's arrays as a cluster's tensors, float32; those that it left alone as they are.

    Raises:
        RunError: other names or shapes than the cluster's, or numbers that are not finite.
    """
    name = type(instance).__name__
    if set(arrays) != set(before):
        raise RunError(f"{name} gave {len(arrays)} arrays; wanted the cluster's {len(before)}, under their names")
    both = {key: (checked_array(f"{name}'s {key}", arrays[key], old), old) for key, old in before.items()}
    return before if all(new is old for new, old in both.values()) else {key: new for key, (new, _) in both.items()}


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


def remembered(instance: Strategy, fresh: Mapping[str, Any], settled: Mapping[str, Any]) -> tuple[Tensors, dict[str, Any]]:
    """(arrays, attributes as JSON holds them beside these) of what an instance has that a new one has not.

    Args:
        fresh: a new instance's attributes, as JSON holds them.
        settled: those that `configure_train` sets anew each round; left out where `aggregate_train` has not touched them.

    Raises:
        RunError: an attribute that no checkpoint can hold; names it.
    """
    memory: Tensors = {}
    attributes: dict[str, Any] = {}
    for name, value in vars(instance).items():
        if name in settled and settled[name] is value:
            continue
        arrays: Tensors = {}
        try:
            form = _as_json(value, name, arrays)
        except TypeError as error:
            if name in fresh:  # a function that it was made with
                continue
            raise RunError(
                f"{type(instance).__name__}.{name} holds a {error}, which no checkpoint can; give it arrays, ArrayRecords, or what "
                "JSON holds"
            ) from None
        if arrays or form != fresh.get(name):
            memory |= arrays
            attributes[name] = form
    return memory, attributes


def _plain(instance: Strategy) -> dict[str, Any]:
    """A new instance's attributes as JSON holds them; None for what it does not."""
    plain: dict[str, Any] = {}
    for name, value in vars(instance).items():
        with suppress(TypeError):
            plain[name] = None
            plain[name] = _as_json(value, name, {})
    return plain


def _as_json(value: Any, name: str, arrays: Tensors) -> Any:
    """A value as JSON holds it, with arrays by their names, which go into `arrays`.

    Raises:
        TypeError: with the type that no checkpoint can hold.
    """
    if isinstance(value, np.ndarray | Array):
        arrays[name] = np.array(value if isinstance(value, np.ndarray) else value.numpy(), order="C")
        return {"array": name, "flower": isinstance(value, Array)}
    if isinstance(value, ArrayRecord | dict):
        entries = [[key, _as_json(each, f"{name}/{key}", arrays)] for key, each in value.items()]
        return {"entries": entries, "flower": isinstance(value, ArrayRecord)}
    if isinstance(value, list | tuple):
        return [_as_json(each, f"{name}/{place}", arrays) for place, each in enumerate(value)]
    if value is None or isinstance(value, str | int | float):
        return value
    raise TypeError(type(value).__name__)


def _from_json(form: Any, arrays: Mapping[str, Numbers]) -> Any:
    if isinstance(form, list):
        return [_from_json(each, arrays) for each in form]
    if not isinstance(form, dict):
        return form
    if "array" in form:
        return Array(arrays[form["array"]]) if form["flower"] else arrays[form["array"]].copy()
    entries = {key: _from_json(each, arrays) for key, each in form["entries"]}
    return ArrayRecord(entries) if form["flower"] else entries


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
