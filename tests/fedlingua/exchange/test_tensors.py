"""Named tensors: what is refused at the border, and how they are written."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedlingua.common.errors import ExchangeError
from fedlingua.exchange.tensors import Tensors, TensorSet, TensorSpec, check_tensors, save_tensors

WANTED = TensorSet("toy", (TensorSpec("b", (2, 2), "encoder", 0), TensorSpec("a", (3,), "decoder", None)))


@pytest.fixture
def good() -> Tensors:
    return {"a": np.array([1, 2, 3], np.float32), "b": np.array([[1, 2], [3, 4]], np.float32)}


def test_good_tensors_pass_and_come_in_the_sets_order(good: Tensors) -> None:
    checked = check_tensors(good, WANTED)
    assert list(checked) == ["b", "a"]
    assert all(checked[name] is good[name] for name in good)


def infinite(tensors: Tensors) -> None:
    tensors["b"][1, 0] = np.inf


def not_a_number(tensors: Tensors) -> None:
    tensors["b"][0, 1] = np.nan


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda t: t.pop("b"), r"tensor 'b' is missing; wanted all 2"),
        (lambda t: t.update(c=t["a"]), r"does not have, 'c' first"),
        (lambda t: t.update(b=t["b"].reshape(4)), r"tensor 'b' has shape \(4,\); wanted \(2, 2\)"),
        (lambda t: t.update(b=t["b"].astype(np.float64)), r"tensor 'b' is float64; wanted float32"),
        (lambda t: t.update(b=t["b"].astype(np.float16)), r"tensor 'b' is float16; wanted float32"),
        (not_a_number, r"tensor 'b' holds NaN or infinity"),
        (infinite, r"tensor 'b' holds NaN or infinity"),
    ],
    ids=["missing", "extra", "shape", "float64", "float16", "nan", "inf"],
)
def test_a_wrong_tensor_is_refused_by_name(good: Tensors, spoil: Callable[[Tensors], object], message: str) -> None:
    spoil(good)
    with pytest.raises(ExchangeError, match=message):
        check_tensors(good, WANTED)


GRID = np.arange(12, dtype=np.float32).reshape(3, 4)
VIEWS = {
    "transposed": GRID.T,
    "fortran": np.asfortranarray(GRID),
    "columns": GRID[:, ::2],
    "backwards": GRID[::-1],
    "broadcast": np.broadcast_to(GRID[0], (3, 4)),
    "big-endian": GRID.T.astype(">f4"),
    "number": np.array(2, np.float32),
}
"""Arrays whose bytes in memory are not those of their numbers in order, and one without axes."""


def test_a_view_is_written_as_the_numbers_that_it_shows(tmp_path: Path) -> None:
    save_tensors(VIEWS, tmp_path / "views.safetensors")
    stored = load_file(tmp_path / "views.safetensors")
    for name, array in VIEWS.items():
        assert stored[name].shape == array.shape, name
        assert np.array_equal(stored[name], array), name


def test_a_file_is_on_disk_before_it_has_its_name_and_its_folder_after(
    good: Tensors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = list[tuple[str, list[str]]]()

    def noted(path: Path) -> None:
        synced.append((path.name.partition(".safetensors")[0], [file.name for file in tmp_path.glob("[!.]*")]))

    monkeypatch.setattr("fedlingua.exchange.tensors.to_disk", noted)
    save_tensors(good, tmp_path / "w.safetensors")
    assert synced == [(".w", []), (tmp_path.name, ["w.safetensors"])]


def test_a_write_that_fails_leaves_nothing(good: Tensors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="No space left"):
        save_tensors(good, tmp_path / "w.safetensors")
    assert list(tmp_path.iterdir()) == []
