"""The kinds of TOML files that users write, recognized by their keys, for messages about a file given to the wrong command."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedlingua.common.errors import ConfigError
from fedlingua.settings.table import OPTIONS

EXPERIMENT, SUITE, FEDERATION = "an experiment file", "a suite", "a federation file"
RECIPE, SITE, SERVER = "a recipe", "a site's file", "a server's file"
_USE = {
    EXPERIMENT: "run it with `fedlingua run {}`",
    SUITE: "run it with `fedlingua suite {}`",
    FEDERATION: "name it in an experiment file: federation = {!r}",
    RECIPE: "train it with `fedlingua pretrain {}`",
    SITE: "start it with `fedlingua site start {}`",
    SERVER: "start it with `fedlingua server start {}`",
}


def flat_keys(content: Mapping[str, Any], group: str = "") -> dict[str, Any]:
    """Flatten a file's run config, which may have tables, to keys with dots."""
    flat: dict[str, Any] = {}
    for name, value in content.items():
        key = f"{group}{name}"
        flat |= flat_keys(value, f"{key}.") if isinstance(value, Mapping) else {key: value}
    return flat


def kind_of(content: Mapping[str, Any]) -> str | None:
    """Return the kind of a file by its content; None if unknown."""
    keys = set(flat_keys(content)) - {"task"}  # recipes have it, too
    if keys and keys <= set(OPTIONS):
        return EXPERIMENT
    tells = {"row": SUITE, "corpus": RECIPE, "fleet": SERVER, "control": SERVER, "server": SITE, "site": FEDERATION}
    if "server" in content and keys & set(OPTIONS):  # an experiment file may have a [server], too
        return None
    return next((kind for key, kind in tells.items() if key in content), None)


def refuse_other_kind(path: Path, content: Mapping[str, Any], wanted: str) -> None:
    """Raise ConfigError, which names the command for it, for a file that is clearly of another kind."""
    kind = kind_of(content)
    if kind and kind != wanted:
        raise ConfigError(f"{path} is {kind}; wanted {wanted}; {_USE[kind].format(str(path))}")
