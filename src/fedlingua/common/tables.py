"""Read tables of a TOML file into dataclasses and check their keys. Every error names its place in the file."""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar, get_args

from fedlingua.common.errors import ConfigError, all_at_once
from fedlingua.common.languages import near_keys, nearest

T = TypeVar("T")
_WANTED = {"tuple": "a list of names"}


def table(raw: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    """Return the table `name` in `raw`, empty if it is missing; raise ConfigError if it is not a table."""
    content = raw.get(name, {})
    if not isinstance(content, dict):
        raise ConfigError(f"{where}: {name} = {content!r}; wanted a table, [{name}] with keys below it")
    return content


def fill(kind: type[T], raw: Mapping[str, Any], where: str) -> T:
    """Make a dataclass from a TOML table whose keys are the fields, written with hyphens.

    Raises:
        ConfigError: an unknown key, a value of another type than the field's default, or none of the field's choices.
    """
    fields = {each.name.replace("_", "-"): each for each in dataclasses.fields(kind)}  # type: ignore[arg-type]
    refuse_unknown(raw, set(fields), where)

    def read(key: str, value: Any) -> Any:
        wanted = type(fields[key].default).__name__
        if wanted == "float" and type(value) is int:
            value = float(value)
        if wanted == "tuple" and isinstance(value, list) and all(isinstance(each, str) for each in value):
            value = tuple(value)
        if type(value).__name__ != wanted:
            raise ConfigError(
                f"{where}: {key} = {value!r} is of type {type(value).__name__}; wanted {_WANTED.get(wanted, wanted)}"
            )
        choices = get_args(fields[key].type) if wanted == "str" else ()
        if choices:
            check_choice(value, choices, f"{where}: {key} =")
        return value

    values = all_at_once(partial(read, *each) for each in raw.items())
    return kind(**{fields[key].name: value for key, value in zip(raw, values, strict=True)})


def check_options(raw: Mapping[str, Any], kind: str, options: Mapping[str, Collection[str]], where: str) -> None:
    """Raise ConfigError for a key that does not go with this kind. options: key -> the kinds that it goes with."""
    for key, owners in options.items():
        if key in raw and kind not in owners:
            raise ConfigError(f"{where}: {key} = {raw[key]!r} goes with {', '.join(owners)}, but this is {kind}; leave it out")


def refuse_unknown(raw: Mapping[str, Any], known: Collection[str], where: str) -> None:
    """Raise ConfigError for unknown keys, and name the nearest known ones."""
    unknown = {key: value for key, value in raw.items() if key not in known}
    if unknown:
        mistakes = [f"{where}: {key} = {value!r}: there is no such key{near_keys(key, known)}" for key, value in unknown.items()]
        raise ConfigError("\n".join(mistakes))


def check_choice(value: str, choices: Iterable[str], what: str) -> None:
    """Raise ConfigError, which lists the choices, for a value that is none of them. what: its place, such as "corpus"."""
    if value not in (names := list(choices)):
        raise ConfigError(f"{what} {value!r} is not known{nearest(value, names)}; choose one of {', '.join(names)}")


def flag(raw: Mapping[str, Any], key: str, where: str) -> bool:
    """Return a key's value, false if it is missing; raise ConfigError for one that is neither true nor false."""
    value = raw.get(key, False)
    if not isinstance(value, bool):
        raise ConfigError(f"{where}: {key} = {value!r}; wanted true or false")
    return value


def count(value: Any, what: str) -> int:
    """Return a whole number, 0 or above; raise ConfigError for anything else."""
    if type(value) is not int or value < 0:
        raise ConfigError(f"{what} = {value!r}; wanted a whole number, 0 or above")
    return value
