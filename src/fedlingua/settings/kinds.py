"""The kinds of TOML files that a user writes, told apart by their keys: a file given to the wrong command is called by its name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedlingua.common.errors import ConfigError
from fedlingua.settings.config import known_keys

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


def kind_of(content: Mapping[str, Any]) -> str | None:
    """What a file's content makes it; None where nothing tells."""
    tells = {"row": SUITE, "corpus": RECIPE, "fleet": SERVER, "control": SERVER, "server": SITE, "site": FEDERATION}
    for key, kind in tells.items():
        if key in content:
            return kind
    keys = set(content) - {"task"}  # which a recipe has too
    return EXPERIMENT if keys and keys <= set(known_keys()) else None


def refuse_other_kind(path: Path, content: Mapping[str, Any], wanted: str) -> None:
    """Refuse a file that is clearly of another kind.

    Raises:
        ConfigError: what it is, what was wanted, and what it is for.
    """
    kind = kind_of(content)
    if kind not in (None, wanted):
        assert kind is not None
        raise ConfigError(f"{path} is {kind}; wanted {wanted}; {_USE[kind].format(str(path))}")
