"""Where a run config comes from: the app's defaults, an experiment file over them, --set over both."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedlingua.common.errors import ConfigError
from fedlingua.common.files import APP_DIR, read_toml
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Scalar, Settings
from fedlingua.settings.kinds import EXPERIMENT, refuse_other_kind
from fedlingua.settings.methods import method_named


def default_run_config(app_dir: Path = APP_DIR) -> dict[str, Scalar]:
    """The defaults, from the app's pyproject.toml."""
    with (app_dir / "pyproject.toml").open("rb") as stream:
        config: dict[str, Scalar] = tomllib.load(stream)["tool"]["flwr"]["app"]["config"]
    return config


def config_of_run(config: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """A run's config, with the defaults of keys that have come since; adapters stay where they stood before there was `adapter-place`."""
    whole = {**default_run_config(), **config}
    method = method_named(str(whole["method"]))
    if "adapter-place" not in config and method and (whole["tensor-set"] or method.tensor_set) == "adapters":
        whole["adapter-place"] = "before-dropout"
    return whole


def read_experiment(path: Path, overrides: Mapping[str, Scalar]) -> Settings:
    """Defaults, then the experiment file's keys, then `overrides`; checked.

    Raises:
        ConfigError: no such file, not TOML, or what `settings_from` refuses.
    """
    content = read_toml(path)
    refuse_other_kind(path, content, EXPERIMENT)
    in_file = {**default_run_config(), **content}
    try:
        return settings_from({**in_file, **overrides})
    except ConfigError as error:
        raise ConfigError(f"{path if _wrong_already(in_file, str(error)) else 'command line'}: {error}") from error


def _wrong_already(config: Mapping[str, Any], told: str) -> bool:
    """Whether a run config would be refused in the same words."""
    try:
        settings_from(config)
    except ConfigError as error:
        return str(error) == told
    return False


def parse_override(text: str, option: str = "--set", example: str = "rounds=5") -> tuple[str, Any]:
    """Read `key=value` as given to an option of the command line: the value is TOML where it parses as TOML, else a string.

    Raises:
        ConfigError: no key, or no "=".
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"{option} {text!r}: wanted key=value, for example {option} {example}")
    try:
        parsed = tomllib.loads(f"value = {value.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    return key.strip(), parsed
