"""Load a backbone and freeze it: a hub id at a pinned revision, or a local directory."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from fedlingua.backbones.codec import Codec, TextCodec
from fedlingua.backbones.convert import KEPT, as_safetensors, files_hash
from fedlingua.backbones.layouts import LAYOUTS
from fedlingua.common.devices import computed_in
from fedlingua.common.errors import BackboneError
from fedlingua.settings.tasks import TaskName

MODELS: dict[TaskName, Any] = {"translation": AutoModelForSeq2SeqLM, "masked-language": AutoModelForMaskedLM}


@dataclass
class Backbone:
    """A frozen model with its codec; `directory` is the folder it was loaded from.

    num_parameters: as published, whatever is attached later.
    """

    name: str
    directory: Path
    model: PreTrainedModel
    codec: Codec
    drawn_with: int | None = None
    """seed of random weights; None: the directory's own"""
    num_parameters: int = field(init=False)

    def __post_init__(self) -> None:
        self.num_parameters = sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def task(self) -> TaskName:
        """What such a model is for."""
        return LAYOUTS[self.model.config.model_type].task

    @cached_property
    def fingerprint(self) -> str:
        """sha256 over the names and bytes of the backbone's files: weights (or the seed of random ones), configuration, tokenizer."""
        endings = KEPT | ({".safetensors"} if self.drawn_with is None else set())
        files = files_hash([file for file in sorted(self.directory.iterdir()) if file.suffix in endings])
        return files if self.drawn_with is None else f"{files}-{self.drawn_with}"


def load_backbone(
    directory: Path, name: str = "", precision: str = "fp32", device: str = "cpu", random_weights: int | None = None
) -> Backbone:
    """Load and freeze the model in `directory`. Safetensors are mapped, not read: processes on one machine share them.

    precision, device: what it is to compute in, and where; `backbones.precision.hold` takes it there. For fp32 its weights are fp32, else
    they keep the dtype they are stored in. random_weights: a seed by which the weights are drawn anew, as before any training.

    No code that comes with a model is run: weights are read from safetensors alone, and a pytorch_model.bin without any is
    converted into the cache first.

    Raises:
        BackboneError: no model there, none that is safe to load, of a type that is not known, or no such device.
    """
    name = name or str(directory)
    logging.disable_progress_bar()  # a bar for every process that maps the same file says nothing
    if device == "cuda" and not torch.cuda.is_available():
        raise BackboneError("device = 'cuda', but torch sees no GPU here; give device = 'cpu', or install torch's CUDA build")
    try:
        directory = as_safetensors(directory)
        config = AutoConfig.from_pretrained(directory, trust_remote_code=False)
        if config.model_type not in LAYOUTS:
            raise BackboneError(f"backbone = {name!r} is of type {config.model_type!r}; wanted one of {', '.join(LAYOUTS)}")
        task = LAYOUTS[config.model_type].task
        tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=False)
        dtype: Any = torch.float32 if computed_in(precision, device) == "fp32" else "auto"
        model = MODELS[task].from_pretrained(directory, dtype=dtype, use_safetensors=True, trust_remote_code=False)
    except (OSError, ValueError, SafetensorError) as error:
        raise BackboneError(f"backbone = {name!r} cannot be loaded: {error}") from error
    codec = _codec(tokenizer, task, name)
    if random_weights is not None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(random_weights)
            model = type(model)(model.config).to(model.dtype)
    model.requires_grad_(False)
    model.eval()
    return Backbone(name, directory, model, codec, random_weights)


def _codec(tokenizer: PreTrainedTokenizerBase, task: TaskName, name: str) -> Codec:
    kind = type(tokenizer).__name__
    if task == "masked-language":
        if tokenizer.mask_token_id is None:
            raise BackboneError(f"backbone = {name!r}: its tokenizer ({kind}) has no mask token; wanted an encoder's, as XLM-R's")
        return TextCodec(tokenizer)
    if not hasattr(tokenizer, "lang_code_to_id"):
        raise BackboneError(f"backbone = {name!r}: its tokenizer ({kind}) knows no languages; wanted M2M-100's or mBART-50's")
    return Codec(tokenizer)
