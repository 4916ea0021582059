"""How an encoder is fine-tuned, as the user asks for it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class FineTuning:
    """How an encoder is fine-tuned; the whole of it trains."""

    epochs: int = 10
    learning_rate: float = 5e-5
    batch_size: int = 16
    seed: int = 2022
    precision: str = "fp32"
    warm_up: float = 0.1
    """share of all steps over which the rate rises"""
    weight_decay: float = 0.01
    """of matrices; biases and norms keep theirs"""
    max_norm: float = 1.0
    """L2 norm that a step's gradient is clipped to"""
