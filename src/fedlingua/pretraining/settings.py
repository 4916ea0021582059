"""How a small backbone is trained from nothing."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class PretrainSettings:
    """Ends at `steps`, or at `minutes` when that is above 0 and comes first; only a training that ends at `steps` repeats exactly.

    `tokens_per_batch` counts the padded longer side; the learning rate warms up and then falls with the inverse square root;
    `weight_average` is the decay of the exponential average over the steps that is kept as the result.
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


@dataclass(frozen=True)
class EncoderSettings(PretrainSettings):
    """The same of an encoder. mask_share: of a sequence's pieces, which are to be predicted; shown anew each time."""

    label_smoothing: float = 0.0
    mask_share: float = 0.15
