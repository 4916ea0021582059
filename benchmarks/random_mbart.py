"""An mBART-50 with random weights and a small vocabulary of its own in the tokenizer: everything of the real one but what it knows."""

import multiprocessing
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import MBart50Tokenizer, MBartConfig, MBartForConditionalGeneration, PretrainedConfig
from transformers.models.mbart50.tokenization_mbart50 import FAIRSEQ_LANGUAGE_CODES

Config = TypeVar("Config", bound=PretrainedConfig)


@dataclass(frozen=True)
class Shape:
    """Size of an mBART; vocab_size 0: as many as the tokenizer has."""

    d_model: int
    layers: int
    heads: int
    ffn_dim: int
    vocab_size: int


PUBLISHED = Shape(d_model=1024, layers=12, heads=16, ffn_dim=4096, vocab_size=250054)
TINY = Shape(d_model=32, layers=2, heads=2, ffn_dim=64, vocab_size=0)


def config_of(kind: Callable[..., Config], shape: Shape, **more: Any) -> Config:
    """A configuration of this shape, encoder and decoder alike, for 1,024 positions. more: what else is not transformers' default."""
    return kind(
        vocab_size=shape.vocab_size,
        d_model=shape.d_model,
        encoder_layers=shape.layers,
        decoder_layers=shape.layers,
        encoder_attention_heads=shape.heads,
        decoder_attention_heads=shape.heads,
        encoder_ffn_dim=shape.ffn_dim,
        decoder_ffn_dim=shape.ffn_dim,
        max_position_embeddings=1024,
        **more,
    )


def make_backbone(directory: Path, words: Iterable[str], shape: Shape = PUBLISHED) -> None:
    """Write model and tokenizer; in a process of its own, so that the memory of making it is gone before anything is measured."""
    maker = multiprocessing.get_context("spawn").Process(target=_make, args=(directory, sorted(set(words)), shape))
    maker.start()
    maker.join()
    if maker.exitcode:
        raise SystemExit(f"the backbone could not be made (exit status {maker.exitcode})")


def _make(directory: Path, words: list[str], shape: Shape) -> None:
    vocab = [
        ("<s>", 0.0),
        ("<pad>", 0.0),
        ("</s>", 0.0),
        ("<unk>", 0.0),
        *((f"▁{word}", -5.0) for word in words),
        ("<mask>", 0.0),
    ]
    tokenizer = MBart50Tokenizer(vocab=vocab, src_lang=FAIRSEQ_LANGUAGE_CODES[0])
    tokenizer.save_pretrained(directory)
    shape = replace(shape, vocab_size=shape.vocab_size or len(tokenizer))
    config = config_of(MBartConfig, shape, activation_function="relu", scale_embedding=True, decoder_start_token_id=2)
    torch.manual_seed(0)
    MBartForConditionalGeneration(config).save_pretrained(directory)
