"""mBARTs without their files: of the published shape without memory, and tiny ones with random weights."""

from typing import Any

import torch
from transformers import MBartConfig, MBartForConditionalGeneration, PreTrainedModel


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
