"""Shapes of the small backbones that are trained from scratch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelSize:
    """Shape of a small M2M-100; the defaults are the demo's."""

    d_model: int = 128
    encoder_layers: int = 2
    decoder_layers: int = 2
    heads: int = 4
    ffn_dim: int = 256
    vocab_size: int = 1000
    dropout: float = 0.1
    max_positions: int = 512


@dataclass(frozen=True)
class EncoderSize:
    """Shape of a small encoder; the defaults are the demo's."""

    d_model: int = 128
    layers: int = 2
    heads: int = 4
    ffn_dim: int = 512
    vocab_size: int = 1200
    dropout: float = 0.1
    max_positions: int = 512
