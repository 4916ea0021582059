"""The tensors that a site stores between rounds: what is gone or damaged is named, and what is not needed is removed."""

from pathlib import Path

import numpy as np
import pytest

from fedlingua.common.errors import ExchangeError
from fedlingua.exchange.protocol import START
from fedlingua.exchange.round_files import RoundFiles
from tests.damage import truncate


@pytest.fixture
def files(tmp_path: Path) -> RoundFiles:
    files = RoundFiles(tmp_path / "site" / "residual")
    for stage in ((1, 1), (2, 1)):
        files.save({"w": np.array(stage, np.float32)}, stage)
    return files


def test_a_stage_is_loaded_as_it_was_saved(files: RoundFiles) -> None:
    assert files.load((2, 1))["w"].tolist() == [2, 1]
    assert files.load(START) == {}


def test_a_missing_stage_is_named_with_those_that_are_here(files: RoundFiles) -> None:
    with pytest.raises(ExchangeError, match=r"tensors 0003-1 .* not in residual/; here: 0001-1, 0002-1"):
        files.load((3, 1))


def test_a_damaged_stage_is_named_without_the_sites_path(files: RoundFiles, tmp_path: Path) -> None:
    truncate(files.directory / "0002-1.safetensors")
    with pytest.raises(ExchangeError, match=r"tensors 0002-1 .* damaged in residual/") as raised:
        files.load((2, 1))
    assert str(tmp_path) not in str(raised.value)


def test_other_stages_and_files_that_a_killed_process_left_half_written_are_removed(files: RoundFiles) -> None:
    (files.directory / ".0003-1.safetensors.4711").write_bytes(b"half of i")
    files.forget([(2, 1)])
    assert [file.name for file in files.directory.iterdir()] == ["0002-1.safetensors"]
