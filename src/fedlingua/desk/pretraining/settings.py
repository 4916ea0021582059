"""Sizes of small backbones, and settings for training one from scratch."""

from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class ModelSize:
    """Shape of a small M2M-100: [model] of a recipe. The demo's is `desk.pretraining.demo.SIZE`."""

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
    """Shape of a small encoder: [model] of a recipe. The demo encoder's is `desk.pretraining.demo.ENCODER_SIZE`."""

    d_model: int = 128
    layers: int = 2
    heads: int = 4
    ffn_dim: int = 512
    vocab_size: int = 1200
    dropout: float = 0.1
    max_positions: int = 512


@dataclass(frozen=True)
class PretrainSettings:
    """Settings of a pre-training. It ends after `steps`, or after `minutes` if that is above 0 and earlier (not exactly repeatable).

    `tokens_per_batch` counts the padded longer side. The learning rate warms up and then falls with the inverse square root.
    `weight_average` is the decay of the exponential average over the steps, which is the result. `sampling_temperature`: 1 takes
        every pair once per epoch; above 1, each direction (for an encoder: language) is weighted by size ** (1 / temperature).
    """

    steps: int = 3000
    minutes: float = 0.0
    tokens_per_batch: int = 1500
    learning_rate: float = 2e-3
    warmup_steps: int = 300
    label_smoothing: float = 0.1
    weight_average: float = 0.998
    max_tokens: int = 128
    precision: Literal["fp32", "bf16"] = "fp32"
    threads: int = 2
    seed: int = 2022
    sampling_temperature: float = 1.0
    device: Literal["cpu", "cuda"] = "cpu"


@dataclass(frozen=True)
class EncoderSettings(PretrainSettings):
    """Settings of an encoder's pre-training. mask_share: share of a sequence's pieces to predict, drawn anew each time."""

    label_smoothing: float = 0.0
    mask_share: float = 0.15


@dataclass(frozen=True)
class Watching:
    """What is evaluated and stored during a pre-training; it changes no training step.

    evaluate_every: steps between evaluations on the dev text, by dev loss and, for a model that translates, BLEU; 0: ten in all,
    or one every 500 steps if that is more, with BLEU only at the last unless keep = "best". dev_sentences: number of each
    direction's sentences that are translated, greedily; 0: none. keep: the weights of the last step, or of the evaluation with
    the lowest dev loss. checkpoint_minutes: minutes between checkpoints; 0: none, so an interrupted training cannot continue.
    """

    evaluate_every: int = 0
    dev_sentences: int = 60
    keep: Literal["last", "best"] = "last"
    checkpoint_minutes: float = 10.0


_LATER = {"sampling_temperature", "device"}
"""Settings added after the names of backbones had come to contain the hash of their settings."""


def decisive(settings: PretrainSettings) -> dict[str, Any]:
    """Return the settings that a built-in backbone's hash is made from.

    Settings added later count only if they are not at their defaults, so that no existing backbone has to be trained again."""
    defaults = asdict(type(settings)())
    return {key: value for key, value in asdict(settings).items() if key not in _LATER or value != defaults[key]}
