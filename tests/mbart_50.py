"""The shape of facebook/mbart-large-50, without memory."""

import torch
from transformers import MBartConfig, MBartForConditionalGeneration, PreTrainedModel


def mbart_50() -> PreTrainedModel:
    """On torch's meta device: names and shapes, no numbers."""
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
