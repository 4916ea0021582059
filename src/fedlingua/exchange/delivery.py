"""The final model that a run stores at a site: the trained tensors, and all that is needed to translate without the server.

An adapter is stored as `adapter/adapter.safetensors` and `adapter/adapter_config.json`, a whole model that was trained as
`model.safetensors`. `delivered.json` names the backbone that they belong to and the settings that they were trained with. If the
site keeps an ensemble, the tensors of its second model are in `second.safetensors`.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlingua.common.errors import RunError
from fedlingua.common.files import json_text, replace_text
from fedlingua.exchange.tensors import Tensors, save_tensors
from fedlingua.settings.config import Settings

if TYPE_CHECKING:  # what was delivered is read without torch
    from fedlingua.exchange.trainable import Trainable

ADAPTER = Path("adapter", "adapter.safetensors")
MODEL = Path("model.safetensors")
SECOND = Path("second.safetensors")
_ABOUT = "delivered.json"
SCORES = "scores-"
"""Prefix of the file, named by the site and .json, that tells the site its own scores."""
AGAIN = "restore it, or use another run"


@dataclass(frozen=True)
class Second:
    """The second model of an ensemble.

    beside: The candidate that is the first model. name: The candidate that is the second. share: The second's share of the mean of both
    models' probabilities.
    """

    beside: str
    name: str
    tensors: Tensors
    share: float


def deliver(
    folder: Path, trainable: "Trainable", settings: Settings, site: Mapping[str, Any], second: Second | None = None
) -> None:
    """Store the model's trained tensors in `folder`, and those of an ensemble's second model.

    site: Name, direction and best round, to be written into the files.
    """
    from fedlingua.exchange.tensor_sets import read_tensors

    with suppress(RunError):  # nothing was delivered yet, or a damaged file, which is replaced
        before = delivered_about(folder)
        if before.pop("ensemble", None):  # its second model does not belong to the tensors that are written next
            replace_text(folder / _ABOUT, json_text({**before, "kept": site.get("kept")}))
    tensors = read_tensors(trainable.model, trainable.trained)
    file = folder / (MODEL if trainable.adapter is None else ADAPTER)
    save_tensors(tensors, file)
    about = {**site, "backbone": settings.backbone, "backbone_fingerprint": trainable.backbone.fingerprint}
    if trainable.adapter is not None:
        first = {"kept": second.beside} if second else {}
        replace_text(file.with_name("adapter_config.json"), json_text({**trainable.adapter, **about, **first}))
    if second:
        save_tensors(second.tensors, folder / SECOND)
        about |= {"ensemble": {"first": second.beside, "second": second.name, "share": second.share}}
    replace_text(folder / _ABOUT, json_text({**about, "settings": settings.flat()}))
    if not second:
        (folder / SECOND).unlink(missing_ok=True)


def is_delivered(folder: Path) -> bool:
    """Return whether a run has delivered a model to the folder."""
    return (folder / _ABOUT).is_file()


def delivered_about(folder: Path) -> dict[str, Any]:
    """Read the delivered.json of a folder; raise RunError if it has none, or a damaged one."""
    if not is_delivered(folder):
        raise RunError(f"{folder}: nothing was delivered here; the run has not ended, or trained nothing")
    try:
        about: dict[str, Any] = json.loads((folder / _ABOUT).read_bytes())
    except (OSError, ValueError) as error:
        raise RunError(f"{folder / _ABOUT} is damaged ({error}); {AGAIN}") from error
    return about
