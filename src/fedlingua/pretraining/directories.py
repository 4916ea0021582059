"""Where a run's backbone lies, and what can be told of it before it is loaded."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlingua.backbones.layouts import LAYOUTS
from fedlingua.backbones.pruning import thirds
from fedlingua.backbones.published import local_or_pinned, published_or_local
from fedlingua.cache import cache_dir
from fedlingua.config import Settings
from fedlingua.errors import BackboneError
from fedlingua.pace import Note
from fedlingua.parts import Part
from fedlingua.pretraining import demo, demo_encoder
from fedlingua.tasks import TaskName


@dataclass(frozen=True)
class BuiltIn:
    """A backbone that is trained here, once. directory: where it lies, trained when it is not there yet. hash: of what decides it."""

    task: TaskName
    layers: Mapping[Part, int]
    directory: Callable[[Note | None], Path]
    hash: Callable[[], str]


BUILT_IN: dict[str, BuiltIn] = {
    "demo": BuiltIn(
        "translation",
        {"encoder": demo.SIZE.encoder_layers, "decoder": demo.SIZE.decoder_layers},
        demo.demo_backbone,
        demo.demo_hash,
    ),
    "demo-encoder": BuiltIn(
        "masked-language", {"encoder": demo_encoder.SIZE.layers}, demo_encoder.demo_encoder, demo_encoder.demo_encoder_hash
    ),
}
"""One line a backbone that needs no file: `backbone` -> how it is had."""


def backbone_directory(name: str, revision: str = "") -> Path:
    """Where a run's backbone lies: one that is built in (trained when it is not there yet), the name of a recipe that `fedlingua pretrain`
    has trained, a directory, or a hub id.

    Raises:
        BackboneError: none of these.
    """
    if name in BUILT_IN:
        return BUILT_IN[name].directory(None)
    pretrained = cache_dir() / "backbones" / name
    if name and "/" not in name and (pretrained / "config.json").is_file():
        return pretrained
    return published_or_local(name, revision)


def known_backbone(name: str, revision: str = "") -> None:
    """Refuse a name behind which no backbone stands; nothing is trained or fetched for it.

    Raises:
        BackboneError: neither built in, nor trained here from a recipe, nor a directory of transformers' layout, nor a pinned hub id.
    """
    if name in BUILT_IN or (name and "/" not in name and (cache_dir() / "backbones" / name / "config.json").is_file()):
        return
    found = local_or_pinned(name, revision)
    if isinstance(found, Path) and not (found / "config.json").is_file():
        raise BackboneError(
            f"backbone = {name!r}: {found} has no config.json, so no model lies there; give a directory as save_pretrained writes it"
        )


def check_backbone(settings: Settings) -> None:
    """Refuse a backbone that is not there or is of another task, and a pruning that keeps nothing, before one is trained; of one that only
    the hub has, the rest is checked once it is here.

    Raises:
        BackboneError: with the numbers.
    """
    name = settings.backbone
    known_backbone(name, settings.backbone_revision)
    places = (cache_dir() / "backbones" / name, Path(name).expanduser())
    config: dict[str, Any] = next(
        (json.loads((place / "config.json").read_text()) for place in places if (place / "config.json").is_file()), {}
    )
    layers = BUILT_IN[name].layers if name in BUILT_IN else {}
    if config.get("model_type") in LAYOUTS:
        stacks = LAYOUTS[config["model_type"]].stacks
        layers = {part: int(config[stack.size_key]) for part, stack in stacks.items() if stack.size_key in config}
    task = LAYOUTS[config["model_type"]].task if config.get("model_type") in LAYOUTS else None
    task = BUILT_IN[name].task if name in BUILT_IN else task
    if task not in (None, settings.task):
        raise BackboneError(f"backbone = {name!r} is for task = {task!r}, and the run's is {settings.task!r}; change one of them")
    thirds(layers, settings.adapter_layers)
