"""The form `adapter`: adapter.safetensors has the tensors attached to a backbone, export.json the settings to load them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load_file

from fedlingua.common.errors import RunError
from fedlingua.common.files import sha256
from fedlingua.common.languages import parse_written
from fedlingua.desk.completed import settings_of
from fedlingua.desk.export.facts import public_name
from fedlingua.desk.export.forms import FILE
from fedlingua.desk.translating.models import TrainedModel
from fedlingua.exchange.tensor_sets import write_tensors
from fedlingua.exchange.tensors import Tensors, check_tensors, save_tensors
from fedlingua.exchange.trainable import Trainable
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.config import Settings

TENSORS = "adapter.safetensors"
_AGAIN = "export it again, or copy it again"


def write_adapter(directory: Path, settings: Settings, tensors: Tensors, backbone: str) -> dict[str, Any]:
    """Write the tensors and return their entries of export.json. backbone: its public name."""
    save_tensors(tensors, directory / TENSORS)
    public = replace(  # without paths and without settings of one machine
        settings,
        backbone=backbone,
        comet_model=public_name(settings.comet_model),
        data_dir="",
        run_dir="",
        federation="",
        strategy="",
        device="cpu",
        frozen_bits=0,
        resume=False,
    )
    return {"settings": public.flat(), "sha256": sha256(directory / TENSORS)}


def read_adapter(directory: Path) -> TrainedModel:
    """Read what `write_adapter` wrote; raise RunError if it is no such export, or damaged."""
    try:
        about = RunFolder(directory).read(FILE) or {}
    except RunError as error:
        raise RunError(f"{directory / FILE} is damaged (no whole JSON object); {_AGAIN}") from error
    try:
        if "settings" not in about:
            form = f"; it is of form {about['form']}, which needs no fedlingua" if "form" in about else ""
            raise RunError(
                f"{directory} is not an exported adapter{form}; wanted a folder that `fedlingua export --form adapter` wrote"
            )
        checksum, fingerprint = about["sha256"], about["backbone"]["fingerprint"]
        settings, direction = settings_of(about["settings"]), parse_written(about["direction"])
        site, number = about["site"], about["round"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{directory / FILE} is damaged ({type(error).__name__}: {error}); {_AGAIN}") from error
    file = directory / TENSORS
    try:
        if sha256(file) != checksum:
            raise RunError(f"{file} has been changed (checksum differs); {_AGAIN}")
        tensors = load_file(file)
    except (OSError, SafetensorError) as error:
        raise RunError(f"{file} cannot be read ({error}); {_AGAIN}") from error
    return TrainedModel(settings, fingerprint, direction, site, number, lambda: tensors, ("given",))


def load_adapter(directory: Path, backbone: str = "") -> Trainable:
    """Load the backbone with its adapter: `.model` is a model of transformers, `.backbone.codec` has its tokenizer.

    backbone: its hub id or directory, if other than its recorded name.

    Raises:
        RunError: no exported adapter, or it belongs to another backbone. BackboneError: the backbone cannot be loaded.
    """
    model = read_adapter(directory)
    trainable = model.trainable(backbone)
    assert model.load is not None
    write_tensors(trainable.model, check_tensors(model.load(), trainable.trained))
    return trainable
