"""What dtype a model computes in."""

from contextlib import nullcontext
from typing import Any

import torch
from transformers import PreTrainedModel


def autocast(model: PreTrainedModel, precision: str) -> Any:
    """bf16 arithmetic where it is asked for; fp32 otherwise."""
    return torch.autocast(model.device.type, torch.bfloat16) if precision == "bf16" else nullcontext()
