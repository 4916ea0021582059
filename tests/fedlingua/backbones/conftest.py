"""What a model is asked in these tests."""

import pytest
import torch
from torch import Tensor


@pytest.fixture
def tokens() -> dict[str, Tensor]:
    """Two sentences, the second padded on both sides."""
    return {
        "input_ids": torch.tensor([[5, 9, 7, 2], [6, 8, 2, 1]]),
        "attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]),
        "decoder_input_ids": torch.tensor([[2, 11, 12], [2, 13, 1]]),
    }
