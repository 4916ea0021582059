"""A pre-trained encoder, of a folder in transformers' layout or of a run, under a new head for tags or labels."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from fedlingua.backbones.convert import as_safetensors
from fedlingua.backbones.layouts import most_tokens
from fedlingua.backbones.load import check_tokenizer_files
from fedlingua.common.errors import BackboneError, ConfigError
from fedlingua.desk.export.merging import merge_peft
from fedlingua.desk.translating.models import TrainedModel
from fedlingua.exchange.tensor_sets import TENSOR_SETS, write_tensors
from fedlingua.exchange.tensors import check_tensors

HEADS = {"ner": AutoModelForTokenClassification, "pairs": AutoModelForSequenceClassification}
LONGEST = 256
"""Default length of a sequence in subwords."""


@dataclass(frozen=True)
class Encoder:
    """An encoder without a head. attach: adds what a run attached, adapters or low-rank matrices, to a model with another head."""

    name: str
    config: Any
    tokenizer: PreTrainedTokenizerBase
    tensors: Mapping[str, Tensor]
    attach: Callable[[PreTrainedModel], object] = lambda model: None

    @property
    def fingerprint(self) -> str:
        """sha256 of the tensors and of the tokenizer's pieces."""
        digest = hashlib.sha256(json.dumps(self.tokenizer.get_vocab(), sort_keys=True).encode())
        for name, tensor in sorted(self.tensors.items()):
            digest.update(name.encode())
            digest.update(tensor.numpy().tobytes())
        return digest.hexdigest()

    def with_head(self, task: str, labels: Sequence[str], seed: int) -> PreTrainedModel:
        """Return a model of which all trains, with a head for "ner" or "pairs" that `seed` draws, low-rank matrices merged.

        Raises:
            BackboneError: transformers has no such head for this kind of model, or tensors are missing.
        """
        torch.manual_seed(seed)
        self.config.update({"id2label": dict(enumerate(labels)), "label2id": {label: n for n, label in enumerate(labels)}})
        try:
            model: PreTrainedModel = HEADS[task].from_config(self.config, dtype=torch.float32)
            self.attach(model)
            missing = model.base_model.load_state_dict(self.tensors, strict=False).missing_keys
        except (ValueError, RuntimeError) as error:
            raise BackboneError(f"encoder {self.name} cannot be loaded for {task}: {error}") from error
        # A masked-language model has no pooler, so this is drawn with the head.
        if lacking := [name for name in missing if not name.startswith("pooler.")]:
            raise BackboneError(
                f"encoder {self.name}: its weights lack {len(lacking)} of its parameters, the first {min(lacking)}; wanted a whole "
                "encoder, as save_pretrained writes it"
            )
        merge_peft(model)
        return model.requires_grad_(True)  # attaching froze the rest

    def length(self, asked: int | None) -> int:
        """Return the subwords of a sequence, special tokens included. asked: None is the encoder's limit, up to 256."""
        longest = most_tokens(self.config) or LONGEST
        if asked is not None and not 8 <= asked <= longest:
            raise ConfigError(f"--max-tokens {asked}: wanted 8 to {longest}, the positions of this encoder")
        return asked or min(LONGEST, longest)


def encoder_of_folder(directory: Path, name: str) -> Encoder:
    """Load an encoder, without a head that it may have. No code that comes with it is run, and only safetensors are read.

    Raises:
        BackboneError: there is none, it is not safe to load, or its tokenizer is missing or another model's.
    """
    logging.disable_progress_bar()
    logging.set_verbosity_error()  # otherwise it warns that the head is new, which is intended
    try:
        directory = as_safetensors(directory)
        tokenizer = _tokenizer(directory)
        config = AutoConfig.from_pretrained(directory, trust_remote_code=False)
        model, info = AutoModel.from_pretrained(
            directory, dtype=torch.float32, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise BackboneError(f"encoder {name} cannot be loaded: {error}") from error
    if len(tokenizer) > (rows := model.get_input_embeddings().num_embeddings):
        raise BackboneError(
            f"encoder {name}: its tokenizer has {len(tokenizer)} pieces, its model {rows}; wanted those of one model"
        )
    tensors = {key: tensor for key, tensor in model.state_dict().items() if key not in info["missing_keys"]}
    return Encoder(name, config, tokenizer, tensors)


def encoder_of_run(trained: TrainedModel, name: str) -> Encoder:
    """Load the encoder that a run has trained, in fp32 whatever the run's device and precision; raises what `trainable` does."""
    trainable = trained.trainable(device="cpu", precision="fp32", frozen_bits=0)
    if trained.load:  # otherwise the run trained nothing
        write_tensors(trainable.model, check_tensors(trained.load(), trainable.trained))
    attach = TENSOR_SETS[trained.settings.trained_set].attach
    tensors, tokenizer = trainable.model.base_model.state_dict(), _tokenizer(trainable.backbone.directory)
    return Encoder(name, trainable.model.config, tokenizer, tensors, lambda model: attach(model, trained.settings))


def _tokenizer(directory: Path) -> PreTrainedTokenizerBase:
    # Byte-level tokenizers need the space before each word, as in pre-training.
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(directory, add_prefix_space=True, trust_remote_code=False)
    check_tokenizer_files(tokenizer, directory, "encoder")
    if tokenizer.cls_token_id is None or tokenizer.sep_token_id is None:
        raise BackboneError(
            f"{directory}: its tokenizer has no first and last special token (cls, sep), as BERT's and XLM-R's have"
        )
    return tokenizer
