"""A tiny XLM-R on disk."""

from pathlib import Path

import pytest

from tests.encoders import build_xlmr


@pytest.fixture(scope="session")
def encoder_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """64 positions, whole words and letters as pieces."""
    return build_xlmr(tmp_path_factory.mktemp("encoders") / "tiny")
