"""An encoder with a head for tags or labels: a directory in transformers' layout with a BERT, RoBERTa, XLM-R or similar model."""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from torch import Tensor
from transformers import (
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from fedlingua.backbones.convert import as_safetensors, files_hash
from fedlingua.backbones.load import check_tokenizer_files
from fedlingua.backbones.published import KEPT
from fedlingua.common.errors import BackboneError, ConfigError
from fedlingua.desk.finetuning.encoder_of_run import attached
from fedlingua.exchange.delivery import ADAPTER
from fedlingua.settings.config import Settings

HEADS = {"ner": AutoModelForTokenClassification, "pairs": AutoModelForSequenceClassification}
OF_THE_HEAD = ("classifier", "pooler", "score")
"""Prefixes of parameters that may be drawn at random with the head; a masked-language encoder has no pooler."""
HEAD = ("classifier.", "score.")
"""Prefixes of the head's own parameters, which are always drawn."""
LONGEST = 256
"""Default length of a window in subwords."""


@dataclass
class Encoder:
    """A model with its head, all of which trains, and its tokenizer. fingerprint: sha256 over names and bytes of its files.

    adapters: settings of the model's adapters, which transformers does not know; None: a plain model.
    """

    fingerprint: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    max_tokens: int
    adapters: Settings | None = None

    @property
    def budget(self) -> int:
        """Most subwords between the two special tokens of a sequence."""
        return self.max_tokens - 2

    @property
    def rows(self) -> int:
        """Number of pieces that the model has embeddings for, maybe more than the tokenizer has."""
        return len(cast(Tensor, self.model.get_input_embeddings().weight))

    def sequence(self, pieces: Sequence[int]) -> list[int]:
        """Return the ids with the special tokens at both ends."""
        return [self.tokenizer.cls_token_id, *pieces, self.tokenizer.sep_token_id]

    def subwords(self, words: Sequence[str]) -> list[list[int]]:
        """Return the ids of each word, tokenized separately: at least one for every word."""
        if not words:
            return []
        # Text that spells a special token, such as "[SEP]" in a note, is still text, if need be unknown (XLM-R's has "<mask>" as a piece).
        encoded: Any = self.tokenizer(list(words), add_special_tokens=False, split_special_tokens=True, verbose=False)
        special, unknown = set(self.tokenizer.all_special_ids), self.tokenizer.unk_token_id
        return [[unknown if piece in special else piece for piece in ids] or [unknown] for ids in encoded["input_ids"]]


def load_encoder(directory: Path, task: str, labels: Sequence[str], seed: int, max_tokens: int | None, device: str) -> Encoder:
    """Load an encoder and put a head for `labels` on it, drawn by `seed` even if the directory already has a head.

    max_tokens: subwords of a sequence, special tokens included; None: the encoder's limit, up to 256.

    No code that comes with a model is run, and weights are read only from safetensors files.

    Raises:
        BackboneError: there is no encoder, it is not safe to load, or some of its weights are missing.
        ConfigError: it has fewer positions than `max_tokens`.
    """
    if not directory.is_dir():
        raise BackboneError(f"--encoder {directory}: there is no such directory; give one with config.json and model.safetensors")
    if device == "cuda" and not torch.cuda.is_available():
        raise BackboneError("--device cuda, but torch sees no GPU here; give --device cpu, or install torch's CUDA build")
    logging.disable_progress_bar()
    before = logging.get_verbosity()
    logging.set_verbosity_error()  # otherwise it warns that the head is new, which is intended
    torch.manual_seed(seed)  # for the head, and for a missing pooler
    try:
        directory = as_safetensors(directory)
        # Words are tokenized one by one: byte-level tokenizers need the space before each, as in pre-training.
        tokenizer = AutoTokenizer.from_pretrained(directory, add_prefix_space=True, trust_remote_code=False)
        numbered = dict(enumerate(labels))
        model, info = HEADS[task].from_pretrained(
            directory,
            id2label=numbered,
            label2id={label: number for number, label in numbered.items()},
            dtype=torch.float32,
            output_loading_info=True,
            use_safetensors=True,
            trust_remote_code=False,
            ignore_mismatched_sizes=True,  # of another number of labels
        )
        model = _with_drawn_head(model, info["missing_keys"], seed)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise BackboneError(f"encoder {directory} cannot be loaded for {task}: {error}") from error
    finally:
        logging.set_verbosity(before)
    check_tokenizer_files(tokenizer, directory, f"encoder {directory}")
    # Other missing weights would be drawn at random, too: the checkpoint is one of another kind of model.
    lacking = [key for key in info["missing_keys"] if not any(part in key for part in OF_THE_HEAD)]
    lacking += [key for key, *_ in info["mismatched_keys"] if not key.startswith(HEAD)]
    if lacking:
        raise BackboneError(
            f"encoder {directory}: {len(lacking)} of its parameters are not in its weights, or with another shape, the first "
            f"{min(lacking)}; wanted a whole encoder, as save_pretrained writes it"
        )
    if tokenizer.cls_token_id is None or tokenizer.sep_token_id is None:
        raise BackboneError(
            f"encoder {directory}: its tokenizer has no first and last special token (cls, sep), as BERT's and XLM-R's have"
        )
    files = [file for file in sorted(directory.iterdir()) if file.suffix in KEPT | {".safetensors"}]
    files += [file for file in (directory / ADAPTER,) if file.is_file()]
    adapters = attached(model, directory)
    model.requires_grad_(True)  # attaching adapters freezes the rest
    encoder = Encoder(files_hash(files), model.to(device), tokenizer, _length(model, max_tokens), adapters)
    if len(tokenizer) > encoder.rows:
        raise BackboneError(
            f"encoder {directory}: its tokenizer has {len(tokenizer)} pieces, its model {encoder.rows}; wanted those of one model"
        )
    return encoder


def _with_drawn_head(model: PreTrainedModel, missing: Container[str], seed: int) -> Any:
    """Return the model with the head that an encoder without one gets, if its head was among the weights. missing: what was not."""
    if all(name in missing for name in model.state_dict() if name.startswith(HEAD)):
        return model
    stored = {name: tensor for name, tensor in model.state_dict().items() if name not in missing and not name.startswith(HEAD)}
    torch.manual_seed(seed)
    return type(model).from_pretrained(None, config=model.config, state_dict=stored, dtype=torch.float32)


def _length(model: PreTrainedModel, asked: int | None) -> int:
    """Return the tokens of a sequence, limited by the encoder's positions; RoBERTa's positions begin after the padding's."""
    positions = getattr(getattr(model.base_model, "embeddings", None), "position_embeddings", None)
    longest = int(getattr(model.config, "max_position_embeddings", LONGEST))
    if positions is not None and positions.padding_idx is not None:
        longest -= positions.padding_idx + 1
    if asked is not None and not 8 <= asked <= longest:
        raise ConfigError(f"--max-tokens {asked}: wanted 8 to {longest}, the positions of this encoder")
    return asked or min(LONGEST, longest)
