"""Layers of one's own (`layers`): each is a class in a file beside pyproject.toml. What it returns is checked, and an error names it."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fedlingua.common.errors import ConfigError, ExchangeError, FedlinguaError, RunError, without_words
from fedlingua.exchange.joined import Joined, flat_parts, join
from fedlingua.exchange.measured_change import NO_CHANGE, change_of
from fedlingua.exchange.selected import everything
from fedlingua.exchange.state import State, checked_state
from fedlingua.exchange.tensors import NamedTensors, TensorSet, check_tensors
from fedlingua.layers.layer import Incoming, Layer, Layers, Outgoing, Training
from fedlingua.settings.config import Settings
from fedlingua.settings.own_code import check_arguments, named_class

HOOKS = {name: each for name, each in vars(Layer).items() if inspect.isfunction(each) and name != "__init__"}
AT_SITE, OF_A_REPLY = ("texts", "training", "update", "measured"), ("reply", "hides")
"""Hooks whose errors a site's error reply tells, and those whose errors refuse a site's reply. Any other error ends the run."""
TAKEN = {"rounds", "optimizer", "state", "received", "residual", "selection", "secure", "private", "choice", "adapter"}
"""Folders that a site has already."""


class OwnLayers(Layers):
    """Classes in files of one's own that `layers` names, in its order."""

    def __init__(self, settings: Settings) -> None:
        """Make them; raise ConfigError for a class that is no layer, or takes or defines something else than a run passes."""
        super().__init__(settings, [_made(name, settings) for name in settings.own_layers])
        self._names = dict(zip(self.list, settings.own_layers, strict=True))

    def _of(self, layer: Layer, hook: str) -> Any:
        who, check = f"layers = {self._names[layer]!r}: {hook}", CHECKS.get(hook)

        def call(*given: Any) -> Any:
            try:
                if check is None:
                    return getattr(layer, hook)(*given)
                own = [dict(each) if isinstance(each, dict) else each for each in given]  # which it may change
                return check(who, layer, getattr(layer, hook)(*own), *given)
            except FedlinguaError:
                raise
            except Exception as error:
                if hook in AT_SITE:
                    raise
                said = f"{who} raised {without_words(error)}: {error}"
                if hook in OF_A_REPLY:
                    raise ExchangeError(said) from error
                raise RunError(f"{said}; mend it, and continue with --resume") from error

        return call


def _made(name: str, settings: Settings) -> Layer:
    named, arguments = named_class("layers", name, "fedlingua.layers.layer.Layer")
    check_arguments("layers", name, named, Layer, arguments)
    own = [hook for hook in HOOKS if getattr(named, hook) is not HOOKS[hook]]
    if not own:
        raise ConfigError(f"layers = {name!r}: {named.__name__} defines no hook; wanted one or more of {', '.join(HOOKS)}")
    for hook in own:
        given = inspect.signature(HOOKS[hook]).parameters
        try:
            inspect.signature(getattr(named, hook)).bind(*given)
        except TypeError as error:
            raise ConfigError(
                f"layers = {name!r}: {named.__name__}.{hook} does not take what a run passes ({error}); wanted ({', '.join(given)})"
            ) from error
    layer: Layer = named(settings, **arguments)
    if taken := sorted(set(layer.folders) & TAKEN):
        raise ConfigError(
            f"layers = {name!r}: {named.__name__}.folders has {taken[0]!r}, a folder of every site; give another name"
        )
    return layer


# --- What a hook returns ---------------------------------------------------------------------------------------------------------


def _same(who: str, given: NamedTensors, before: NamedTensors, wanted: TensorSet) -> NamedTensors:
    """Return tensors that a layer gave in place of others; raise ExchangeError unless they have the names, shapes and type of these."""
    if given is before:
        return before
    try:
        return check_tensors(given, wanted)
    except (ExchangeError, AttributeError) as error:
        raise ExchangeError(
            f"{who} gave other tensors than it got: {error}; give a dict with every name, its shape and type"
        ) from error


def _update(who: str, layer: Layer, result: Any, site: Any, task: Any, going: Outgoing) -> Outgoing:
    if not isinstance(result, Outgoing):
        raise ExchangeError(f"{who} gave {type(result).__name__}; wanted an Outgoing, as replace(going, update=...) makes")
    return replace(result, update=_same(who, result.update, going.update, site.trainable.tensor_set))


def _replies(who: str, layer: Layer, result: Any, number: int, trained: dict[str, Training]) -> dict[str, Training]:
    """Return them with each changed update measured again, and in a file if it is large."""
    if not (isinstance(result, dict) and result.keys() <= trained.keys()):
        gave = ", ".join(map(str, result)) if isinstance(result, dict) else type(result).__name__
        raise RunError(f"{who} gave {gave}; wanted a dict of those that count of {', '.join(trained)}")
    run, counted = layer.run, dict[str, Training]()
    for site, training in result.items():
        if not isinstance(training, Training):
            raise RunError(
                f"{who} gave {type(training).__name__} for {site}; wanted a Training, as replace(trained[site], ...) makes"
            )
        before, counted[site] = trained[site].update.tensors, training
        try:
            tensors = _same(who, training.update.tensors, before, run.tensor_set)
        except ExchangeError as error:
            raise RunError(str(error)) from error
        if tensors is not before:
            joined, change = Joined(join(tensors, run.tensor_set), run.tensor_set), training.change
            if change is not NO_CHANGE:
                sent = training.update.selection or everything(run.tensor_set)
                change = change_of(joined, flat_parts(run.received_by(site), run.tensor_set), sent)
            update = replace(training.update, tensors=run.update_files.store(site, joined))
            counted[site] = replace(training, update=update, change=change)
    return counted


def _state(who: str, layer: Layer, result: Any, number: int, before: State, after: State) -> State:
    state = checked_state(who, result, after)
    try:
        for part, clusters in result.tensors.items():
            for cluster, given in clusters.items() if layer.run.tensor_set.of_part(part) else ():
                _same(who, given, after.tensors[part][cluster], layer.run.tensor_set.in_part(part))
    except ExchangeError as error:
        raise RunError(str(error)) from error
    return state


def _reply(who: str, layer: Layer, result: Any, incoming: Incoming) -> Incoming:
    if not isinstance(result, Incoming):
        raise RunError(f"{who} gave {type(result).__name__}; wanted the Incoming that it got, or another")
    return result


CHECKS: dict[str, Callable[..., Any]] = {"update": _update, "reply": _reply, "replies": _replies, "state": _state}
"""Hook -> what checks its result: (who, layer, result, *arguments of the hook) -> the result."""
