"""What an error says without its message."""

import errno
import os
import resource
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import save_file

from fedlingua.common.errors import without_words


def of(error: BaseException) -> str:
    try:
        raise error
    except BaseException as caught:
        return without_words(caught)


def test_the_systems_reason_is_told_without_the_path() -> None:
    told = of(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/state/Frau Müller"))
    assert told.startswith("OSError (No space left on device) at test_errors.py:")
    assert "Müller" not in told


@pytest.mark.parametrize(
    "error", [ValueError("Frau Müller"), OSError("Frau Müller"), OSError(5, "Frau Müller"), OSError("Frau", "Müller")]
)
def test_words_that_are_not_the_systems_are_not_told(error: Exception) -> None:
    assert of(error).startswith(f"{type(error).__name__} at test_errors.py:")


def test_tensors_that_cannot_be_written_have_the_systems_reason(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        save_file({"a": np.zeros(1000)}, tmp_path / "a.safetensors")
    except SafetensorError as error:
        told = without_words(error)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert told.startswith("SafetensorError (File too large) at test_errors.py:")
