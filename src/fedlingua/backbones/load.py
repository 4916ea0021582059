"""Load a backbone from its directory and freeze it."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from fedlingua.backbones.codec import Codec, TextCodec
from fedlingua.backbones.codec_causal import CausalCodec
from fedlingua.backbones.codec_marian import MarianCodec
from fedlingua.backbones.codec_t5 import T5Codec
from fedlingua.backbones.convert import as_safetensors
from fedlingua.backbones.families import FAMILIES, Shape, check_type
from fedlingua.backbones.fingerprint import BackboneFiles
from fedlingua.backbones.precision import cast
from fedlingua.backbones.student import MODEL_TYPE as STUDENT
from fedlingua.common.devices import check_cuda, computed_in
from fedlingua.common.errors import BackboneError
from fedlingua.settings.tasks import TaskName

MODELS: dict[Shape, Any] = {
    "encoder-decoder": AutoModelForSeq2SeqLM,
    "decoder": AutoModelForCausalLM,
    "encoder": AutoModelForMaskedLM,
}


@dataclass(kw_only=True)
class Backbone(BackboneFiles):
    """A loaded, frozen backbone. num_parameters: as published, without what is attached later."""

    model: PreTrainedModel
    num_parameters: int = field(init=False)

    def __post_init__(self) -> None:
        self.num_parameters = sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def task(self) -> TaskName:
        """The task of the model's family."""
        return FAMILIES[self.model.config.model_type].task


def load_backbone(
    directory: Path,
    name: str = "",
    precision: str = "fp32",
    device: str = "cpu",
    random_weights: int | None = None,
    as_stored: bool = False,
) -> Backbone:
    """Load and freeze the model in `directory`; safetensors are memory-mapped, so processes on one machine share them.

    precision, device: of later computation; `backbones.precision.hold` moves the model there. For bf16, or if `as_stored`, weights keep
    their stored dtype, otherwise they become fp32. random_weights: seed to draw new weights with, as before any training.

    No code that comes with a model is run: weights are read from safetensors alone; a pytorch_model.bin without any is converted into
    the cache first.

    Raises:
        BackboneError: there is no model, it is not safe to load or of an unknown type, or the device is missing.
    """
    name = name or str(directory)
    logging.disable_progress_bar()  # many processes map the same file, and their progress bars are useless
    check_cuda(device)
    try:
        directory = as_safetensors(directory)
        config = AutoConfig.from_pretrained(directory, trust_remote_code=False)
        check_type(config.model_type, name)
        tokenizer = _tokenizer(directory, name)
        dtype: Any = "auto" if as_stored or computed_in(precision, device) == "bf16" else torch.float32
        kind = MODELS[FAMILIES[config.model_type].shape]
        how: dict[str, Any] = {"use_safetensors": True, "trust_remote_code": False, "output_loading_info": True}
        model, loaded = kind.from_pretrained(directory, dtype=dtype, config=_with_its_head(config, directory), **how)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise BackboneError(f"backbone = {name!r} cannot be loaded: {error}") from error
    if lacking := sorted(loaded["missing_keys"]):
        first = ", ".join(lacking[:3])
        raise BackboneError(
            f"backbone = {name!r}: its weights lack {len(lacking)} of the model's tensors, first {first}; fetch it anew"
        )
    _check_rows(tokenizer, model, name)
    codec = _codec(tokenizer, model.config, name)
    if random_weights is not None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(random_weights)
            dtype, model = model.dtype, type(model)(model.config)
            cast(model, dtype)
    model.requires_grad_(False)
    model.eval()
    return Backbone(name=name, directory=directory, codec=codec, drawn_with=random_weights, model=model)


def _with_its_head(config: Any, directory: Path) -> Any:
    """Return a model's configuration with the kind of head that its weights have: DeBERTa's published ones do not say which."""
    if config.model_type == "deberta-v2" and "legacy" not in json.loads((directory / "config.json").read_text(encoding="utf-8")):
        for file in directory.glob("*.safetensors"):
            with safe_open(file, "pt") as weights:
                config.legacy = config.legacy and not any(name.startswith("lm_predictions.") for name in weights.keys())  # noqa: SIM118
    return config


def _check_rows(tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel, name: str) -> None:
    """Raise BackboneError if text or padding can have ids for which the model has no embedding; special tokens of other use may."""
    rows = int(model.get_input_embeddings().num_embeddings)  # type: ignore[arg-type]
    if len(tokenizer) <= rows:
        return
    unused = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    unused -= {tokenizer.pad_token_id, tokenizer.mask_token_id}
    most = max(number for number in tokenizer.get_vocab().values() if number not in unused)
    if most >= rows:
        raise BackboneError(
            f"backbone = {name!r}: its tokenizer has the id {most}, and its model embeddings for {rows} ids; give the tokenizer that the "
            "model was saved with, or enlarge the model (resize_token_embeddings) and save both"
        )


def _tokenizer(directory: Path, name: str) -> PreTrainedTokenizerBase:
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(directory, trust_remote_code=False)
    except Exception as error:  # tokenizers of different families fail with different errors
        raise BackboneError(
            f"backbone = {name!r} cannot be loaded: {directory} has no tokenizer that its model's family reads ({error}); put its "
            "files there"
        ) from error
    check_tokenizer_files(tokenizer, directory, f"backbone = {name!r}")
    return tokenizer


def check_tokenizer_files(tokenizer: PreTrainedTokenizerBase, directory: Path, where: str) -> None:
    """Raise BackboneError if a tokenizer was loaded from none of its files: transformers makes an empty one, which knows no word."""
    files = {"tokenizer.json", *tokenizer.vocab_files_names.values()} - {"tokenizer_config.json"}
    if not any((directory / file).is_file() for file in files):
        raise BackboneError(f"{where}: {directory} has no tokenizer; put one of {', '.join(sorted(files))} there")


def _codec(tokenizer: PreTrainedTokenizerBase, config: Any, name: str) -> Codec:
    kind, start_id = type(tokenizer).__name__, getattr(config, "decoder_start_token_id", None)
    shape = FAMILIES[config.model_type].shape
    if shape == "encoder":
        if tokenizer.mask_token_id is None:
            raise BackboneError(f"backbone = {name!r}: its tokenizer ({kind}) has no mask token; wanted an encoder's, as XLM-R's")
        return TextCodec(tokenizer)
    if shape == "decoder":
        return CausalCodec(tokenizer)
    if config.model_type in ("marian", STUDENT):
        return MarianCodec(tokenizer, start_id)
    codec = Codec(tokenizer, start_id)
    if config.model_type == "t5":
        codec = T5Codec(tokenizer, start_id, getattr(config, "task_specific_params", None))
    if not codec.writes:
        raise BackboneError(
            f"backbone = {name!r}: its tokenizer ({kind}) knows no languages; wanted one with a token for each, as M2M-100's, NLLB's, "
            "mBART-50's or MADLAD's"
        )
    return codec
