"""Find a run's backbone, and check it before it is loaded."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fedlingua_demo
from fedlingua.backbones.families import FAMILIES
from fedlingua.backbones.layouts import most_tokens
from fedlingua.backbones.parts import Part
from fedlingua.backbones.pruning import thirds
from fedlingua.backbones.published import local_or_pinned, published_or_local
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


def known_backbone(name: str, revision: str = "") -> None:
    """Raise BackboneError unless the name is that of a backbone; train and download nothing."""
    if name in BUILT_IN or made_here(name):
        return
    place = local_or_pinned(name, revision)
    if isinstance(place, Path) and not (place / "config.json").is_file():
        raise BackboneError(
            f"backbone = {name!r}: {place} has no config.json, so it holds no model; give a folder as save_pretrained writes it"
        )


def check_backbone(settings: Settings) -> None:
    """Check before training that the backbone exists, is of the run's task, and keeps layers after pruning.

    Raises:
        BackboneError: one of these does not hold. If the backbone must be downloaded, task and layers are checked later.
    """
    name = settings.backbone
    known_backbone(name, settings.backbone_revision)
    files = [place / "config.json" for place in (cache_dir() / "backbones" / name, Path(name).expanduser())]
    config: dict[str, Any] = next((json.loads(file.read_text()) for file in files if file.is_file()), {})
    layers = BUILT_IN[name].layers if name in BUILT_IN else {}
    family = FAMILIES.get(config.get("model_type", ""))
    if family:
        layers = {part: int(config[key]) for part, key in family.layers.items() if key in config}
    task = BUILT_IN[name].task if name in BUILT_IN else family.task if family else None
    if task is not None:
        check_kind(task, settings)
    thirds(layers, settings.adapter_layers)


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
