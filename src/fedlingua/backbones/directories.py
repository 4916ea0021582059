"""Find a run's backbone, and check it before it is loaded."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fedlingua_demo
from fedlingua.backbones.families import FAMILIES
from fedlingua.backbones.layouts import most_tokens
from fedlingua.backbones.parts import Part
from fedlingua.backbones.published import published_or_local
from fedlingua.common.cache import cache_dir
from fedlingua.common.errors import BackboneError
from fedlingua.settings.config import Settings
from fedlingua.settings.tasks import TaskName


@dataclass(frozen=True)
class BuiltIn:
    """A built-in backbone. directory: where its weights ship; None: `fedlingua` makes them once, in the cache."""

    task: TaskName
    layers: Mapping[Part, int]
    directory: Path | None = None


BUILT_IN: dict[str, BuiltIn] = {
    "demo": BuiltIn("translation", {"encoder": 2, "decoder": 2}, fedlingua_demo.BACKBONE),
    "demo-encoder": BuiltIn("masked-language", {"encoder": 2}),
}
"""Value of `backbone` -> the built-in backbone."""


def backbone_directory(name: str, revision: str = "") -> Path:
    """Return the folder of a run's backbone: built in, trained by `fedlingua pretrain`, local, or downloaded by its hub id.

    Raises:
        BackboneError: the name is none of these, or the backbone cannot be downloaded.
    """
    shipped = BUILT_IN[name].directory if name in BUILT_IN else None
    if shipped is not None:
        return shipped
    made = made_here(name)
    if made is not None:
        return made
    if name in BUILT_IN:
        raise BackboneError(
            f"backbone = {name!r} is not in this machine's cache; make it with `fedlingua pretrain {name}` (a minute)"
        )
    return published_or_local(name, revision)


def made_here(name: str) -> Path | None:
    """Return the folder of a backbone in the cache, by its recipe's name; None without one."""
    directory = cache_dir() / "backbones" / name
    return directory if name and "/" not in name and (directory / "config.json").is_file() else None


def check_kind(task: TaskName, settings: Settings) -> None:
    """Raise BackboneError if the backbone's task is not the run's."""
    if task != settings.task:
        wanted = f"is for task = {task!r}, and the run's is {settings.task!r}"
        raise BackboneError(f"backbone = {settings.backbone!r} {wanted}; change one of them")


def check_fits(config: Any, settings: Settings) -> None:
    """Raise BackboneError if a backbone of this configuration has another task or too few positions for what the run reads and writes."""
    check_kind((family := FAMILIES[config.model_type]).task, settings)
    lengths = {"max-tokens": settings.max_tokens}
    if family.shape == "encoder-decoder":
        lengths["max-decode-tokens"] = settings.max_decode_tokens
    most = most_tokens(config)
    for option, value in lengths.items():
        if most is not None and value > most:
            raise BackboneError(
                f"{option} = {value}, and backbone = {settings.backbone!r} has positions for {most} tokens of a sequence; give "
                f"{option} = {most} or less"
            )
