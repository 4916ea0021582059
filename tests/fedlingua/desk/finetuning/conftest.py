"""A tiny XLM-R on disk, and what it can be asked."""

from pathlib import Path

import pytest

from fedlingua.desk.finetuning.encoder import Encoder, load_encoder
from tests.encoders import build_xlmr


@pytest.fixture(scope="session")
def encoder_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """64 positions, whole words and letters as pieces."""
    return build_xlmr(tmp_path_factory.mktemp("encoders") / "tiny")


@pytest.fixture
def encoder(encoder_directory: Path) -> Encoder:
    """With a head for three tags, and windows of 8: six subwords between the special ones."""
    return load_encoder(encoder_directory, "ner", ["O", "B-Drug", "I-Drug"], seed=1, max_tokens=8, device="cpu")
