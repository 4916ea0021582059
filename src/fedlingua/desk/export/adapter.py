"""What was attached to the backbone, as this project loads it again: adapter.safetensors, and all that it fits on in export.json."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from fedlingua.common.errors import RunError
from fedlingua.common.hashing import sha256
from fedlingua.common.languages import parse_written
from fedlingua.desk.export.facts import public_name
from fedlingua.desk.export.place import FILE
from fedlingua.desk.trained import Trained
from fedlingua.exchange.tensor_sets import write_tensors
from fedlingua.exchange.tensors import Tensors, check_tensors
from fedlingua.exchange.trainable import Trainable
from fedlingua.runs.finished import settings_of
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.config import Settings

TENSORS = "adapter.safetensors"


def write_adapter(directory: Path, trained: Trained, tensors: Tensors, backbone: str) -> dict[str, Any]:
    """Write the tensors; what comes back belongs in export.json. backbone: its name, as others are to read it."""
    save_file(dict(tensors), directory / TENSORS)
    return {"settings": public(trained.settings, backbone).flat(), "sha256": sha256(directory / TENSORS)}


def public(settings: Settings, backbone: str) -> Settings:
    """A run's settings without any path, and without what is a machine's own."""
    return replace(
        settings,
        backbone=backbone,
        comet_model=public_name(settings.comet_model),
        data_dir="",
        run_dir="",
        federation="",
        strategy="",
        device="cpu",
        processes=1,
        resume=False,
    )


def read_adapter(directory: Path) -> Trained:
    """What `write_adapter` wrote.

    Raises:
        RunError: no such export, or it is damaged. ConfigError: its settings are not those of this version.
    """
    try:
        told = RunFolder(directory).read(FILE) or {}
    except RunError as error:
        raise RunError(f"{directory / FILE} is damaged (no whole JSON object); export it again, or copy it anew") from error
    try:
        if "settings" not in told:
            form = f"; it is of form {told['form']}, which needs no fedlingua" if "form" in told else ""
            raise RunError(
                f"{directory} is no exported adapter{form}; wanted a folder that `fedlingua export --form adapter` wrote"
            )
        about = {key: told[key] for key in ("sha256", "site", "round")} | {"fingerprint": told["backbone"]["fingerprint"]}
        settings, direction = settings_of(told["settings"]), parse_written(told["direction"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"{directory / FILE} is damaged ({type(error).__name__}: {error}); export it again, or copy it anew"
        ) from error
    file = directory / TENSORS
    try:
        if sha256(file) != about["sha256"]:
            raise RunError(f"{file} is not what was written (checksum differs); export it again, or copy it anew")
        tensors = load_file(file)
    except (OSError, SafetensorError) as error:
        raise RunError(f"{file} cannot be read ({error}); export it again, or copy it anew") from error
    return Trained(settings, about["fingerprint"], tensors, direction, about["site"], about["round"])


def load_adapter(directory: Path, backbone: str = "") -> Trainable:
    """The backbone with what was trained on it in its places: `.model` is a model of transformers, `.backbone.codec` its tokenizer.

    backbone: where it lies, if not where its name says.

    Raises:
        RunError: no exported adapter, or another backbone. BackboneError: the backbone cannot be loaded.
    """
    trained = read_adapter(directory)
    trainable = trained.trainable(backbone=backbone) if backbone else trained.trainable()
    assert trained.tensors is not None
    write_tensors(trainable.model, check_tensors(trained.tensors, trainable.trained))
    return trainable
