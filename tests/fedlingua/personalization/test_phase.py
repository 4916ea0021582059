"""What an interrupted phase trained is used again only if it can be read."""

from pathlib import Path

import numpy as np
import pytest

from fedlingua.common.files import json_text, replace_text
from fedlingua.exchange.tensors import save_tensors
from fedlingua.personalization.phase import Phase
from tests.damage import truncate


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    tensors, about = tmp_path / "alone.safetensors", tmp_path / "alone.json"
    save_tensors({"w": np.ones(3, np.float32)}, tensors)
    replace_text(about, json_text({"key": "k", "best": 2}))
    return tensors, about


def test_a_stored_model_counts_for_its_key_alone(files: tuple[Path, Path]) -> None:
    assert Phase._stored(files, "k") == {"key": "k", "best": 2}
    assert Phase._stored(files, "another") is None


@pytest.mark.parametrize("damage", [truncate, lambda file: file.write_bytes(b""), Path.unlink], ids=["cut", "empty", "gone"])
def test_a_model_whose_tensors_cannot_be_read_is_not_stored(files: tuple[Path, Path], damage) -> None:  # type: ignore[no-untyped-def]
    damage(files[0])
    assert Phase._stored(files, "k") is None
