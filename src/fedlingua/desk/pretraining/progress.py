"""What is told of a pre-training while it goes on."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Progress:
    """Where a pre-training stands: `done` in 0..1, losses in nats a token, BLEU (0-100) by direction where dev was translated."""

    step: int
    done: float
    seconds: float
    train_loss: float
    dev_loss: float
    bleu: Mapping[str, float] = field(default_factory=dict)
