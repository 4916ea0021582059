"""What a run leaves at a site at its end: the trained tensors, and all that it takes to translate with them without the server.

Of what was attached to the backbone `adapter/` holds `adapter.safetensors` and `adapter_config.json`; where the whole model trains,
`model.safetensors` holds it. `delivered.json` says what they fit on and which settings they were trained under.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from safetensors.numpy import load_file

from fedlingua.common.errors import RunError
from fedlingua.common.files import replace_text
from fedlingua.exchange.tensors import Tensors, save_tensors
from fedlingua.settings.config import Settings

if TYPE_CHECKING:  # what was delivered is read without torch
    from fedlingua.exchange.trainable import Trainable

ADAPTER = Path("adapter", "adapter.safetensors")
_MODEL = Path("model.safetensors")
_ABOUT = "delivered.json"
SCORES = "scores-"
"""Before a site's name and .json: what the site itself is told of its scores."""
_AGAIN = "restore it, or use another run"


def deliver(folder: Path, trainable: "Trainable", settings: Settings, site: Mapping[str, Any]) -> None:
    """Keep the trained tensors that the model holds now; `site`: its name, direction and best round, as the files say them."""
    from fedlingua.exchange.tensor_sets import read_tensors

    tensors = read_tensors(trainable.model, trainable.whole)
    file = folder / (_MODEL if trainable.adapter is None else ADAPTER)
    save_tensors(tensors, file)
    about = {**site, "backbone": settings.backbone, "backbone_fingerprint": trainable.backbone.fingerprint}
    if trainable.adapter is not None:
        _write(file.with_name("adapter_config.json"), {**trainable.adapter, **about})
    _write(folder / _ABOUT, {**about, "settings": settings.flat()})


def is_delivered(folder: Path) -> bool:
    """Whether a run has left there all that it takes to translate."""
    return (folder / _ABOUT).is_file()


def delivered(folder: Path) -> tuple[Tensors, dict[str, Any]]:
    """What `deliver` kept: the trained tensors, and what stands in delivered.json.

    Raises:
        RunError: nothing was delivered there, or the tensors are not there any more, or are damaged.
    """
    if not is_delivered(folder):
        raise RunError(f"{folder}: nothing was delivered here; the run has not ended, or trained nothing")
    files = [folder / name for name in (ADAPTER, _MODEL) if (folder / name).is_file()]
    if not files:
        raise RunError(f"{folder}: the delivered tensors are gone; wanted {ADAPTER} or {_MODEL}")
    try:
        return load_file(files[0]), delivered_about(folder)
    except (OSError, SafetensorError) as error:
        raise RunError(f"{files[0]} is damaged ({error}); {_AGAIN}") from error


def delivered_about(folder: Path) -> dict[str, Any]:
    """What stands in delivered.json, of a folder that has one.

    Raises:
        RunError: it is damaged.
    """
    try:
        about: dict[str, Any] = json.loads((folder / _ABOUT).read_bytes())
    except (OSError, ValueError) as error:
        raise RunError(f"{folder / _ABOUT} is damaged ({error}); {_AGAIN}") from error
    return about


def _write(file: Path, content: Mapping[str, Any]) -> None:
    replace_text(file, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
