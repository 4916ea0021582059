"""mBARTs without their files: of the published shape without memory, and tiny ones with random weights."""

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import sentencepiece
import torch
from transformers import MBart50Tokenizer, MBartConfig, MBartForConditionalGeneration, PreTrainedModel


def mbart_50() -> PreTrainedModel:
    """The shape of facebook/mbart-large-50, on torch's meta device: names and shapes, no numbers."""
    config = MBartConfig(
        vocab_size=250054,
        d_model=1024,
        encoder_layers=12,
        decoder_layers=12,
        encoder_attention_heads=16,
        decoder_attention_heads=16,
        encoder_ffn_dim=4096,
        decoder_ffn_dim=4096,
        max_position_embeddings=1024,
        scale_embedding=True,
    )
    with torch.device("meta"):
        return MBartForConditionalGeneration(config)


def tiny_mbart(layers: int = 1, **changes: Any) -> PreTrainedModel:
    """d_model 16, 2 heads, so many layers in each stack, 40 pieces."""
    config = MBartConfig(
        **{
            "vocab_size": 40,
            "d_model": 16,
            "encoder_layers": layers,
            "decoder_layers": layers,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 2,
            "encoder_ffn_dim": 32,
            "decoder_ffn_dim": 32,
            "max_position_embeddings": 64,
            "scale_embedding": True,
            **changes,
        }
    )
    torch.manual_seed(5)
    return MBartForConditionalGeneration(config).eval()


def build_mbart50(directory: Path, sentences: Iterable[str]) -> Path:
    """A tiny mBART-50 with its tokenizer: 300 pieces of these sentences and 52 languages; weights so large that its source tells."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_writer=model, model_type="unigram", vocab_size=300, num_threads=1, minloglevel=2
    )
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    # It puts its own special tokens in the place of SentencePiece's first three.
    tokenizer = MBart50Tokenizer(vocab=[(pieces.id_to_piece(i), pieces.get_score(i)) for i in range(pieces.get_piece_size())])
    # What begins a target in mBART-50 is </s>, and the language after it.
    tiny_mbart(2, vocab_size=len(tokenizer), decoder_start_token_id=2, init_std=0.3, dropout=0.0).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory
