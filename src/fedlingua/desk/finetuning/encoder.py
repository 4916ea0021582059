"""An encoder with a head for tags or labels: a directory in transformers' layout, of BERT, RoBERTa, XLM-R or their like."""

from collections.abc import Sequence
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
from fedlingua.backbones.published import KEPT
from fedlingua.common.errors import BackboneError, ConfigError
from fedlingua.desk.finetuning.encoder_of_run import attached
from fedlingua.exchange.delivery import ADAPTER
from fedlingua.settings.config import Settings

HEADS = {"ner": AutoModelForTokenClassification, "pairs": AutoModelForSequenceClassification}
OF_THE_HEAD = ("classifier", "pooler", "score")
"""Names in a checkpoint's parameters that a head may have to draw anew; a masked-language encoder comes without a pooler."""
LONGEST = 256
"""Subwords of a window where nothing else is asked for."""


@dataclass
class Encoder:
    """A model with its head, which trains whole, and its tokenizer. fingerprint: sha256 over names and bytes of its files.

    adapters: settings of those that it has, which transformers knows nothing of; None: a plain model.
    """

    name: str
    fingerprint: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    max_tokens: int
    adapters: Settings | None = None

    @property
    def budget(self) -> int:
        """Subwords between the two special ones of a sequence."""
        return self.max_tokens - 2

    @property
    def rows(self) -> int:
        """Pieces that the model has embeddings for; may be more than the tokenizer has."""
        return len(cast(Tensor, self.model.get_input_embeddings().weight))

    def sequence(self, pieces: Sequence[int]) -> list[int]:
        """Ids with the special ones at both ends."""
        return [self.tokenizer.cls_token_id, *pieces, self.tokenizer.sep_token_id]

    def subwords(self, words: Sequence[str]) -> list[list[int]]:
        """Ids of each word, tokenized separately: at least one for every word."""
        if not words:
            return []
        # Text that spells a special token is text: "[SEP]" in a note ends nothing.
        encoded: Any = self.tokenizer(list(words), add_special_tokens=False, split_special_tokens=True, verbose=False)
        return [ids or [self.tokenizer.unk_token_id] for ids in encoded["input_ids"]]


def load_encoder(
    directory: Path, task: str, labels: Sequence[str], seed: int, max_tokens: int | None, device: str, name: str = ""
) -> Encoder:
    """Load an encoder and put a head for `labels` on it, drawn by `seed`.

    max_tokens: subwords of a sequence with the special ones; None takes what the encoder can, up to 256. name: what it is called; "" takes
    the directory's.

    No code that comes with a model is run: weights are read from safetensors alone.

    Raises:
        BackboneError: no encoder there, none that is safe to load, or one whose weights are not all there.
        ConfigError: more tokens than it has positions for.
    """
    if not directory.is_dir():
        raise BackboneError(f"--encoder {directory}: there is no such directory; give one with config.json and model.safetensors")
    if device == "cuda" and not torch.cuda.is_available():
        raise BackboneError("--device cuda, but torch sees no GPU here; give --device cpu, or install torch's CUDA build")
    logging.disable_progress_bar()
    before, name = logging.get_verbosity(), name or directory.resolve().name
    logging.set_verbosity_error()  # else it warns that the head is new, which it is meant to be
    torch.manual_seed(seed)  # of the head, and of a pooler that is not there
    try:
        directory = as_safetensors(directory)
        # Words come one by one: byte-level tokenizers have to see the space before them, as they did in pre-training.
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
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise BackboneError(f"encoder {directory} cannot be loaded for {task}: {error}") from error
    finally:
        logging.set_verbosity(before)
    _check_whole(directory, info["missing_keys"])
    if tokenizer.cls_token_id is None or tokenizer.sep_token_id is None:
        raise BackboneError(
            f"encoder {directory}: its tokenizer has no first and last special token (cls, sep), as BERT's and XLM-R's have"
        )
    files = [file for file in sorted(directory.iterdir()) if file.suffix in KEPT | {".safetensors"}]
    files += [file for file in (directory / ADAPTER,) if file.is_file()]
    adapters = attached(model, directory)
    model.requires_grad_(True)  # what is attached freezes the rest
    encoder = Encoder(name, files_hash(files), model.to(device), tokenizer, _length(model, max_tokens), adapters)
    if len(tokenizer) > encoder.rows:
        raise BackboneError(
            f"encoder {directory}: its tokenizer has {len(tokenizer)} pieces, its model {encoder.rows}; wanted those of one model"
        )
    return encoder


def _check_whole(directory: Path, missing: set[str]) -> None:
    """Refuse weights that would be drawn at random although they are not the head's: a checkpoint of something else."""
    lacking = sorted(key for key in missing if not any(part in key for part in OF_THE_HEAD))
    if lacking:
        raise BackboneError(
            f"encoder {directory}: {len(lacking)} of its parameters are not in its weights, the first {lacking[0]}; wanted a whole "
            "encoder, as save_pretrained writes it"
        )


def _length(model: PreTrainedModel, asked: int | None) -> int:
    """Tokens of a sequence, held to the encoder's positions: RoBERTa's begin after the padding's."""
    positions = getattr(getattr(model.base_model, "embeddings", None), "position_embeddings", None)
    longest = int(getattr(model.config, "max_position_embeddings", LONGEST))
    if positions is not None and positions.padding_idx is not None:
        longest -= positions.padding_idx + 1
    if asked is not None and not 8 <= asked <= longest:
        raise ConfigError(f"--max-tokens {asked}: wanted 8 to {longest}, the positions of this encoder")
    return asked or min(LONGEST, longest)
