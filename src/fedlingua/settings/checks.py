"""Checks of a run config, made once, when it is read.

Flower passes flat scalars and checks no types, so every mistake that users can make in them is found here, before anything loads.
The table of options says which values a key takes; conflicts.py says which keys exclude each other.
"""

import dataclasses
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from fedlingua.common.errors import ConfigError, all_at_once
from fedlingua.common.languages import near_keys
from fedlingua.common.tables import check_choice
from fedlingua.settings.config import Scalar, Settings
from fedlingua.settings.conflicts import conflicts, typed
from fedlingua.settings.removed import refuse_removed
from fedlingua.settings.table import OPTIONS

_KINDS = {
    int: "a whole number, such as 3",
    float: "a number, such as 0.5",
    str: 'text in quotation marks, "{}"',
    bool: "true or false",
}
"""Type of a value -> the type in words, with an example or, for text, with what was given."""


def settings_from(run_config: Mapping[str, Any]) -> Settings:
    """Check a whole run config and return it as `Settings`.

    Raises:
        ConfigError: has a line for each key that is unknown, has a wrong type, or is out of its choices or range; without such
            keys, it names the missing keys; if none is missing, it has a line for each conflict of keys.
    """
    values = dict(all_at_once(partial(_read, key, value) for key, value in run_config.items()))
    if missing := [key for key in OPTIONS if key not in run_config]:
        raise ConfigError(
            f"the run config lacks {', '.join(missing)}; their defaults are in pyproject.toml, [tool.flwr.app.config]"
        )
    settings = Settings(**values)  # type: ignore[arg-type]
    if excluded := list(conflicts(settings)):
        raise ConfigError("\n".join(excluded))
    return settings


def _read(key: str, value: Any) -> tuple[str, Scalar]:
    """Check one key; return its attribute of `Settings` and its value."""
    refuse_unknown_key(key, value)
    option = OPTIONS[key]
    if isinstance(value, list) and option.listed:
        value = ", ".join(map(str, value))
    if type(value) is int and option.value_type is float:
        value = float(value)
    if (got := type(value)) is not option.value_type:
        wanted = f"{option.value_type.__name__}, {_KINDS[option.value_type].format(typed(value))}"
        raise ConfigError(f"{key} = {value!r} is of type {got.__name__}; wanted {wanted}")
    if option.check:
        option.check(value)
    elif option.choices:
        check_choice(value, option.choices, f"{key} =")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{key} = {value!r}; wanted a finite number")
    if (option.least is not None and value < option.least) or (option.above is not None and value <= option.above):
        raise ConfigError(f"{key} = {value!r} is too small; wanted {option.bounds}")
    if (option.most is not None and value > option.most) or (option.below is not None and value >= option.below):
        raise ConfigError(f"{key} = {value!r} is too large; wanted {option.bounds}")
    return option.attribute, value


BY_ROUND = ("learning-rate", "local-epochs")
"""Keys that a strategy of one's own may set for a round, in the config of its `configure_train`."""


def for_round(settings: Settings, config: Mapping[str, Any]) -> Settings:
    """Return the settings of a round's training, in which a strategy's config may set keys of `BY_ROUND`.

    Raises:
        ConfigError: A value is of another type or out of its range, the rate is 0, or another key needs equal rounds.
    """
    by_round = {key: value.item() if hasattr(value, "item") else value for key, value in config.items() if key in BY_ROUND}
    if not by_round:
        return settings
    changed = dataclasses.replace(settings, **dict(_read(key, value) for key, value in by_round.items()))  # type: ignore[arg-type]
    if not by_round.get("learning-rate", 1):
        raise ConfigError("learning-rate = 0 in a round's config; wanted more than 0")
    needs_equal = {
        "dp.epsilon": settings.trains_privately,
        "optimizer-state": settings.optimizer_state == "kept",
        "schedule": settings.schedule != "constant",
        "warmup-steps": settings.warmup_steps > 0,
        "sample.replacement": settings.draws_in_passes,
    }
    if changed.local_epochs != settings.local_epochs and (why := [key for key, holds in needs_equal.items() if holds]):
        raise ConfigError(
            f"local-epochs = {changed.local_epochs} in a round's config, and the run's {why[0]} = {settings.flat()[why[0]]!r} needs rounds "
            f"of equal length; leave local-epochs out of the config, or give {why[0]} its default"
        )
    return changed


def refuse_unknown_key(key: str, value: Any) -> None:
    """Raise ConfigError for an unknown key, with the nearest ones, or what became of it."""
    refuse_removed(key, value)
    if key not in OPTIONS:
        raise ConfigError(f"{key} = {value!r}: there is no such key{near_keys(key, OPTIONS)}; all: docs/options.md")


def choices_of(key: str) -> tuple[str, ...]:
    """Return the values that a key may have; empty if these are numbers or free text."""
    if key not in OPTIONS:
        return ()
    return ("true", "false") if OPTIONS[key].value_type is bool else tuple(filter(None, OPTIONS[key].choices))
