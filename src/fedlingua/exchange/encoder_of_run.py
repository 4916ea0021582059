"""The encoder that a run has pre-trained, as a directory in transformers' layout: what fine-tuning begins with.

Where the whole model trained its weights are the run's. Of adapters and low-rank additions the backbone's weights stay as they are, and
`adapter/` beside them holds what was trained, which `attached` puts in again under whatever head the encoder has.
"""

import os
import shutil
from pathlib import Path

from safetensors.numpy import load_file
from transformers import PreTrainedModel

from fedlingua.backbones.convert import KEPT
from fedlingua.config_checks import settings_from
from fedlingua.errors import RunError
from fedlingua.exchange.delivery import ADAPTER, delivered, is_delivered
from fedlingua.exchange.tensor_sets import TENSOR_SETS, write_tensors
from fedlingua.exchange.trainable import build_trainable
from fedlingua.languages import nearest
from fedlingua.runs import RunFolder, json_text, replace_text


def encoder_directory(run: Path, site: str | None = None) -> Path:
    """The directory, made in the run folder when it is not there yet. site: whose; needed where sites end with different ones.

    Raises:
        RunError: no such run or site, one that has not come to its end, trained nothing, or no encoder; sites with different ones, and none
            named; a backbone that has changed since.
    """
    folder = RunFolder(run)
    about = folder.read("run.json")
    if about is None:
        raise RunError(f"{run} is no run folder: it has no run.json")
    settings = settings_from(about["config"])
    if settings.task != "masked-language":
        raise RunError(f"{run}: task = {settings.task!r} trains no encoder; wanted a run with task = 'masked-language'")
    name = site or _only_site(folder)
    left = folder.directory / "sites" / name
    if not is_delivered(left):
        there = [one.name for one in sorted((folder.directory / "sites").glob("*")) if is_delivered(one)]
        raise RunError(
            f"{run}: nothing was delivered to site {name!r}{nearest(name, there)}; delivered: {', '.join(there) or 'to nobody'}"
        )
    directory = folder.directory / "encoder" / name
    if (directory / "config.json").is_file():
        return directory
    tensors, told = delivered(left)
    trainable = build_trainable(settings)
    if trainable.backbone.fingerprint != told["backbone_fingerprint"]:
        raise RunError(
            f"backbone = {settings.backbone!r} is not the one that {run} was trained on; give the run its own backbone again"
        )
    aside = directory.with_name(f".{name}.{os.getpid()}")
    aside.mkdir(parents=True)
    try:
        whole = trainable.adapter is None
        for file in trainable.backbone.directory.iterdir():
            if file.suffix in KEPT or (not whole and file.suffix == ".safetensors"):
                shutil.copy(file, aside / file.name)
        if whole:
            write_tensors(trainable.model, tensors)
            trainable.model.save_pretrained(aside)
        else:
            (aside / ADAPTER).parent.mkdir()
            shutil.copy(left / ADAPTER, aside / ADAPTER)
            replace_text((aside / ADAPTER).with_name(_SETTINGS), json_text(settings.flat()))
        aside.rename(directory)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return directory


def attached(model: PreTrainedModel, directory: Path) -> None:
    """Put what `encoder_directory` left beside the backbone's weights into a model of these weights, whatever its head; nothing where
    there is none.
    """
    file = directory / ADAPTER
    if not file.is_file():
        return
    settings = settings_from(RunFolder(file.parent).read(_SETTINGS) or {})
    TENSOR_SETS[settings.trained_set].attach(model, settings)
    write_tensors(model, load_file(file))


def _only_site(folder: RunFolder) -> str:
    """Any site, where all end with the same tensors."""
    clusters = folder.read("clusters.json") or {}
    if any(len(named) > 1 for named in clusters.values()):
        sites = list(folder.read("sites.json") or {})
        raise RunError(f"{folder.directory}: its sites have different encoders; say whose with --site, one of {', '.join(sites)}")
    return next(iter(folder.read("sites.json") or {}), "")


_SETTINGS = "settings.json"
