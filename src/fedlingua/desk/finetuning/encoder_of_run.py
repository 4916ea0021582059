"""The encoder that a run has pre-trained, as a directory in transformers' layout, from which fine-tuning starts.

If the whole model trained, the weights are the run's. With adapters and low-rank additions the backbone's weights are unchanged, and
`adapter/` beside them holds the trained tensors. `attached` adds these to the encoder again, under any head; transformers alone does
not.
"""

import shutil
from dataclasses import replace
from pathlib import Path

from safetensors.numpy import load_file
from transformers import PreTrainedModel

from fedlingua.backbones.parts import is_adapter
from fedlingua.backbones.published import KEPT
from fedlingua.common.cache import making
from fedlingua.common.folders import replace_folder
from fedlingua.desk.completed import same_backbone, settings_of
from fedlingua.desk.export.merging import merge_peft
from fedlingua.desk.finetuning.settings import encoder_run
from fedlingua.exchange.delivery import ADAPTER, delivered
from fedlingua.exchange.tensor_sets import TENSOR_SETS, read_tensors, tensor_set, write_tensors
from fedlingua.exchange.tensors import Tensors, save_tensors
from fedlingua.exchange.trainable import Trainable
from fedlingua.runs.folder import RunFolder, json_text, replace_text
from fedlingua.settings.config import Settings


def encoder_directory(run: Path, site: str | None = None) -> Path:
    """Return the folder, made in the run folder if missing. site: needed if sites end with different encoders."""
    completed, name = encoder_run(run, site)
    folder, settings = completed.folder, completed.settings
    left = folder.directory / "sites" / name
    directory = folder.directory / "encoder" / name
    made = directory / "config.json"
    if made.is_file():
        return directory
    with making(directory):
        if not made.is_file():  # another process may have made it meanwhile
            tensors, about = delivered(left)
            # In fp32, whatever the run's device and precision.
            in_full = replace(settings, device="cpu", precision="fp32", frozen_bits=0)
            trainable = same_backbone(in_full, about["backbone_fingerprint"])
            replace_folder(directory, lambda aside: _write(aside, trainable, tensors, settings))
    return directory


def _write(directory: Path, trainable: Trainable, tensors: Tensors, settings: Settings) -> None:
    whole = trainable.adapter is None
    for file in trainable.backbone.directory.iterdir():
        if file.suffix in KEPT or (not whole and file.suffix == ".safetensors"):
            shutil.copy(file, directory / file.name)
    if whole:
        write_tensors(trainable.model, tensors)
        trainable.model.save_pretrained(directory)
    else:
        _write_adapter(directory, tensors, settings)


def _write_adapter(directory: Path, tensors: Tensors, settings: Settings) -> None:
    (directory / ADAPTER).parent.mkdir()
    save_tensors(tensors, directory / ADAPTER)
    portable = replace(settings, data_dir="", run_dir="", federation="")  # no path of the machine that ran it
    replace_text((directory / ADAPTER).with_name(_SETTINGS), json_text(portable.flat()))


def attached(model: PreTrainedModel, directory: Path) -> Settings | None:
    """Add the tensors that `encoder_directory` stored beside the backbone's weights to a model of these weights, whatever its head.

    Low-rank additions are merged into the weights, so that the model is a plain one again. Return the settings of the adapters, which stay
    attached because the backbone's weights cannot express them; None if the model is plain.
    """
    file = directory / ADAPTER
    if not file.is_file():
        return None
    settings = settings_of(RunFolder(file.parent).read(_SETTINGS) or {})
    TENSOR_SETS[settings.trained_set].attach(model, settings)
    write_tensors(model, load_file(file))
    if any(is_adapter(name) for name, _ in model.named_parameters()):
        return settings
    merge_peft(model)
    return None


def save_with_adapters(model: PreTrainedModel, settings: Settings, directory: Path) -> None:
    """Write a model with adapters as `encoder_directory` does: weights without them, and `adapter/` beside, for `attached`."""
    plain = {name: tensor for name, tensor in model.state_dict().items() if not is_adapter(name)}
    model.save_pretrained(directory, state_dict=plain)
    chosen = tensor_set(model, settings.trained_set, settings.adapter_layers)
    _write_adapter(directory, read_tensors(model, chosen), settings)


_SETTINGS = "settings.json"
