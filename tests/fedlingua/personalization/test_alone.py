"""Models trained alone are found where all that decides them is the same, undamaged, and leave no more than the folder may hold."""

import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from fedlingua.exchange.trainable import build_trainable
from fedlingua.personalization import alone
from fedlingua.personalization.phase import SiteModel
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Scalar
from tests.damage import truncate

TENSORS = {"b": np.ones(3, np.float32), "a": np.arange(4, dtype=np.float32)}


def flip(file: Path) -> None:
    """Change the last number."""
    content = bytearray(file.read_bytes())
    content[-2] ^= 1
    file.write_bytes(content)


def test_a_model_comes_back_with_its_record_for_its_key_and_its_user_alone(tmp_path: Path) -> None:
    alone.store(tmp_path / "alone", "k", TENSORS, {"best": 2, "dev_losses": [None, 0.1]})
    found = alone.find(tmp_path / "alone", "k")
    assert found is not None
    assert found[1] == {"best": 2, "dev_losses": [None, 0.1]}
    assert all(np.array_equal(found[0][name], array) for name, array in TENSORS.items())
    assert alone.find(tmp_path / "alone", "another") is None
    assert stat.S_IMODE((tmp_path / "alone").stat().st_mode) == 0o700


@pytest.mark.parametrize("damage", [truncate, flip, lambda file: file.write_bytes(b"")], ids=["cut", "flipped", "empty"])
def test_a_damaged_model_is_not_found(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    alone.store(tmp_path, "k", TENSORS, {})
    damage(tmp_path / "k.safetensors")
    assert alone.find(tmp_path, "k") is None


def test_the_models_not_used_for_longest_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone.store(tmp_path, "first", TENSORS, {})
    os.utime(tmp_path / "first.safetensors", (0, 0))
    monkeypatch.setattr(alone, "MOST_BYTES", 1.5 * (tmp_path / "first.safetensors").stat().st_size)
    alone.store(tmp_path, "second", TENSORS, {})
    assert [file.name for file in tmp_path.iterdir()] == ["second.safetensors"]


def test_whatever_decides_the_model_is_in_its_key(tiny_run_config: dict[str, Scalar]) -> None:
    settings = settings_from({**tiny_run_config, "keep.choose": True, "method": "adapter-fed"})
    site = SiteModel("court", build_trainable(settings), settings, [], *cast(Any, (None, None, None)), "text")
    others = [
        replace(site, text="other text"),
        replace(site, site="bank"),
        replace(site, settings=replace(settings, learning_rate=0.5)),
        replace(site, trainable=replace(site.trainable, initial={**site.trainable.initial, "x": np.ones(1, np.float32)})),
    ]
    keys = [site.key_of_alone("alone", 8), site.key_of_alone("second alone", 8), site.key_of_alone("alone", 9)]
    assert len({*keys, *(other.key_of_alone("alone", 8) for other in others)}) == 7
    assert replace(site, settings=replace(settings, method="adapter-families")).key_of_alone("alone", 8) == keys[0]
