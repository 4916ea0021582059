"""Run Flower's own strategies, or your subclasses of them, unchanged: one instance inside each cluster of each part.

`strategy = "flwr.serverapp.strategy:FedMedian"` names a class, `"flwr.serverapp.strategy:FedTrimmedAvg(beta=0.2)"` adds
arguments, and `"my_file:MyStrategy"` names your subclass. An instance treats a cluster's part as Flower's loop treats a federation:

- `configure_train` gets the cluster's tensors and a grid of its sites; its arrays and its config are sent. Sites use the config keys
  that they know: `learning-rate`, `local-epochs`, and `proximal-mu` of FedProx.
- `aggregate_train` gets the cluster's checked replies: the tensors of that part in one ArrayRecord, and in one MetricRecord
  `num-examples` (also under the key that the instance weights by), `train_loss`, `num-tokens` and `steps`. What it returns becomes the
  cluster's tensors; None leaves the cluster unchanged.
- Attributes that it changes there (FedAdam's moments) are stored in the state; every round makes new instances with them.
"""

import copy
import inspect
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedlingua.common.errors import ConfigError, RunError
from fedlingua.common.languages import nearest
from fedlingua.exchange import protocol
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.state import State
from fedlingua.exchange.tensors import NamedTensors, Tensors
from fedlingua.exchange.traffic import CountedGrid, Traffic
from fedlingua.settings.config import Settings
from strategies.rounds.flower_records import WEIGHT, arrays_of, checked_array, lazy_record, site_of, state_of
from strategies.strategy import SERVER_ROUND, Federated, SiteStrategy, check_first_round, mean_metrics

MEMORY = "stock"
"""Prefix of instances' arrays in a state's memory, and key of their other attributes in its values."""
OURS = {
    "fraction_train": "sites-per-round",
    "min_train_nodes": "quorum",
    "min_available_nodes": "quorum",
    "fraction_evaluate": "evaluate-every",
    "min_evaluate_nodes": "quorum",
}
"""Arguments of Flower's strategies that say how many nodes are asked -> the run's key that does so here."""


class Stock(SiteStrategy):
    """A Flower strategy inside every cluster. make: creates an instance."""

    def __init__(self, of: Federated, make: Callable[[], Strategy]) -> None:
        super().__init__(of)
        self.make = make
        # A class that makes requests of its own may train on other tensors than those that it aggregated.
        self.evaluates_with_training = type(make()).configure_train.__module__.startswith("flwr.")
        self.fresh = _plain(self._instance(State({}), ""))
        self.instances: dict[str, tuple[Strategy, dict[str, Any]]] = {}
        """part/cluster -> the round's instance, and the attributes that its `configure_train` has set"""

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """Make the requests, with what the instances' own `configure_train` return for their clusters."""
        state = state_of(arrays, self.run.state)
        tensors: Any = {part: dict(clusters) for part, clusters in state.tensors.items()}
        merged = dict(config)
        for part, cluster, sites in self.averaged_clusters():
            before, instance = tensors[part][cluster], self._instance(state, f"{part}/{cluster}")
            attributes = dict(vars(instance))
            given = lazy_record(before, state), ConfigRecord(dict(config)), ClusterGrid(grid, sites)
            requests = list(instance.configure_train(server_round, *given))
            if {request.metadata.dst_node_id for request in requests} != set(given[-1].get_node_ids()):
                raise RunError(f"{type(instance).__name__} asks {len(requests)} of {len(sites)} sites; wanted every one")
            content = requests[0].content
            if any(request.content is not content and request.content != content for request in requests):
                raise RunError(f"{type(instance).__name__} asks its sites differently; wanted one content for all of a cluster")
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
        """Return the arrays that the instances' own `aggregate_train` return for their clusters."""
        messages = {site_of(reply): reply for reply in replies}
        state, tensors = self.run.sent, {part: dict(clusters) for part, clusters in self.run.sent.tensors.items()}
        memory, values = dict(state.memory), dict(state.values.get(MEMORY, {}))
        for part, cluster, sites in self.averaged_clusters():
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
        return arrays_of(new), mean_metrics(list(messages.values()))

    def _instance(self, state: State, key: str) -> Strategy:
        """Return a new instance with the stored attributes of the last one. key: part/cluster, or "" for none."""
        instance, prefix = self.make(), f"{MEMORY}/{key}/"
        arrays = {name.removeprefix(prefix): array for name, array in state.memory.items() if name.startswith(prefix)}
        for name, form in state.values.get(MEMORY, {}).get(key, {}).items():
            setattr(instance, name, _from_json(form, arrays))
        return instance


class ClusterGrid(CountedGrid):
    """A cluster's sites as nodes 1, 2, ...: one of Flower's nodes may host several of them."""

    def __init__(self, grid: Grid, sites: Sequence[str]) -> None:
        super().__init__(grid, Traffic())
        self._sites = sites

    def get_node_ids(self) -> Iterable[int]:
        return list(range(1, len(self._sites) + 1))


def taken(arrays: ArrayRecord, before: NamedTensors, instance: Strategy) -> NamedTensors:
    """Return an instance's arrays as the cluster's tensors in float32; arrays that it left unchanged are not copied.

    Raises:
        RunError: Names or shapes differ from the cluster's, or numbers are not finite.
    """
    name = type(instance).__name__
    if set(arrays) != set(before):
        raise RunError(f"{name} gave {len(arrays)} arrays; wanted the cluster's {len(before)}, under their names")
    both = {key: (checked_array(name, key, arrays[key], old), old) for key, old in before.items()}
    return before if all(new is old for new, old in both.values()) else {key: new for key, (new, _) in both.items()}


def _part_of(reply: Message, names: Iterable[str], weight: str) -> Message:
    """Return the reply with the tensors `names` of one part, and the site's weight also under the key `weight`."""
    content, arrays = reply.content, ArrayRecord()
    for name in names:
        arrays[name] = content.array_records[protocol.ARRAYS][name]
    metrics = content.metric_records[protocol.METRICS]
    metrics = MetricRecord({**metrics, weight: metrics[WEIGHT]})
    mine = copy.copy(reply)
    mine.content = RecordDict({protocol.TASK: content[protocol.TASK], protocol.ARRAYS: arrays, protocol.METRICS: metrics})
    return mine


# --- The state of instances ---------------------------------------------------------------------------------------------------


RANDOM = (np.random.Generator, np.random.RandomState, random.Random)
"""Objects that change with each use, although no attribute does."""


def remembered(instance: Strategy, fresh: Mapping[str, Any], settled: Mapping[str, Any]) -> tuple[Tensors, dict[str, Any]]:
    """Return the attributes in which an instance differs from a new one: (arrays, JSON forms that refer to them by name).

    Args:
        fresh: A new instance's attributes in JSON's types.
        settled: Attributes that `configure_train` sets anew each round; left out unless `aggregate_train` has changed them.
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
            if name in fresh and not isinstance(value, RANDOM):  # its constructor was given it, such as a function or a logger
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
    """Return a new instance's attributes in JSON's types; None for those that JSON cannot hold."""
    plain: dict[str, Any] = {}
    for name, value in vars(instance).items():
        with suppress(TypeError):
            plain[name] = None
            plain[name] = _as_json(value, name, {})
    return plain


def _as_json(value: Any, name: str, arrays: Tensors) -> Any:
    """Return a value in JSON's types, which refers to its arrays, put into `arrays`, by name; raise TypeError for any other value."""
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
    if isinstance(value, np.generic):
        return value.item()
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


# --- Making instances ---------------------------------------------------------------------------------------------------------


def maker(settings: Settings, named: type[Strategy], arguments: Mapping[str, Any]) -> Callable[[], Strategy]:
    """Return a function that makes instances; a required `client_learning_rate` (QFedAvg) is the run's `learning-rate`.

    Raises:
        ConfigError: The class does not take an argument or its value, or the argument is one that `quorum` replaces.
    """
    known = inspect.signature(named).parameters
    given = dict(arguments)
    if (rate := known.get("client_learning_rate")) and rate.default is rate.empty:
        given.setdefault("client_learning_rate", settings.step_learning_rate)
    for name in given:
        if name not in known:
            raise ConfigError(f"strategy = {settings.strategy!r}: {named.__name__} takes no {name!r}{nearest(name, known)}")
        if name in OURS:
            raise _asks(settings, name, given[name])

    def make() -> Strategy:
        instance = named(**given)
        for name in set(OURS) & set(vars(instance)):
            setattr(instance, name, 1)
        return instance

    try:
        made = named(**given)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"strategy = {settings.strategy!r}: {named.__name__} cannot be made ({error})") from error
    if (share := getattr(made, "fraction_train", 1.0)) != 1.0:
        raise _asks(settings, "fraction_train", share)
    check_first_round(settings, make)
    return make


def _asks(settings: Settings, name: str, value: Any) -> ConfigError:
    key = OURS[name]
    example = f", such as {key} = {value}" if key == "sites-per-round" else ""
    return ConfigError(
        f"strategy = {settings.strategy!r}: {name} says how many sites are asked; give the key {key} instead{example}"
    )
