"""Read an experiment file and --set."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedlingua.common.errors import ConfigError
from fedlingua.common.files import read_toml
from fedlingua.settings.checks import refuse_unknown_key, settings_from
from fedlingua.settings.config import Scalar, Settings
from fedlingua.settings.experiment import default_run_config
from fedlingua.settings.kinds import EXPERIMENT, flat_keys, refuse_other_kind
from fedlingua.settings.table import OPTIONS


def read_experiment(path: Path, overrides: Mapping[str, Scalar]) -> Settings:
    """Read and check a run's settings: defaults, overridden by the experiment file, overridden by `overrides`.

    Raises:
        ConfigError: the file is missing or not TOML, or `settings_from` refuses the config.
    """
    content = read_toml(path)
    refuse_other_kind(path, content, EXPERIMENT)
    in_file = {**default_run_config(), **flat_keys(content)}
    try:
        return settings_from({**in_file, **overrides})
    except ConfigError as error:
        mistakes, of_file = str(error).split("\n"), _mistakes(in_file)
        raise ConfigError("\n".join(f"{path if each in of_file else 'command line'}: {each}" for each in mistakes)) from error


def _mistakes(config: Mapping[str, Any]) -> list[str]:
    """Return the reasons to refuse a run config."""
    try:
        settings_from(config)
    except ConfigError as error:
        return str(error).split("\n")
    return []


def given_settings(texts: Iterable[str]) -> dict[str, Scalar]:
    """Parse the run-config keys given by --set, a text option's value as it is; raise ConfigError for a key that is unknown."""
    given: dict[str, Scalar] = {}
    for text in texts:
        key, value = parse_override(text)
        try:
            refuse_unknown_key(key, value)
        except ConfigError as error:
            raise ConfigError(f"command line: {error}") from error
        as_written = OPTIONS[key].value_type is str and type(value) is not str  # such as 0.3
        given[key] = text.partition("=")[2].strip() if as_written else value
    return given


def parse_override(text: str, option: str = "--set", example: str = "rounds=5") -> tuple[str, Any]:
    """Parse `key=value`, a value that is not TOML as a string; raise ConfigError if the key or the "=" is missing."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"{option} {text!r}: wanted key=value, for example {option} {example}")
    try:
        parsed = tomllib.loads(f"value = {value.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    return key.strip(), parsed
