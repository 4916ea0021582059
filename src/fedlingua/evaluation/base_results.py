"""Cache of models' results on a text, keyed by a hash of everything that they depend on.

Those of the untrained backbone are the same for every method, seed and run; those of a trained model serve a resumed run, and all
candidates and runs with the same tensors. Results may hold text, so the folder is readable by its user alone and belongs to one machine;
a deployed site's is in its state folder.
"""

import hashlib
import json
import os
import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import torch

from fedlingua.common.cache import remove_oldest
from fedlingua.common.files import json_hash, replace_text
from fedlingua.exchange.trainable import Trainable
from fedlingua.runs.folder import code_hash, library_versions
from fedlingua.settings.config import Settings

T = TypeVar("T")
MOST_BYTES = 256 * 2**20
"""Largest size of a cache folder; the results that were not used for longest are removed first."""


def base_result(folder: Path, trainable: Trainable, settings: Settings, asked: Sequence[Any], make: Callable[[], T]) -> T:
    """Return the result of `make()` on the untrained backbone, as `stored_result` does."""

    def of_base() -> T:
        with trainable.as_base():
            return make()

    return stored_result(folder, trainable, settings, asked, of_base)


def stored_result(folder: Path, trainable: Trainable, settings: Settings, asked: Sequence[Any], make: Callable[[], T]) -> T:
    """Return the result of `make()`, read from `folder` if it is stored there undamaged. asked: the text, the tensors' hash if any are
    trained, and all settings that `make` depends on. It and the result are JSON values, so that a stored result is equal.
    """
    file = folder / f"{json_hash({**computed_by(trainable, settings), 'asked': asked})}.json"
    content = _read(file)
    if content is None:
        content = json.dumps(make())
        with suppress(OSError):  # on a full disk the next run computes the result again
            _write(file, content)
    result: T = json.loads(content)
    return result


def computed_by(trainable: Trainable, settings: Settings) -> dict[str, Any]:
    """Return what decides a computation's last bits besides its input: backbone, machine, precision and code."""
    model = trainable.model
    gpu = torch.cuda.get_device_name(model.device) if model.device.type == "cuda" else None
    return {
        "backbone": trainable.backbone.fingerprint,
        "dtypes": sorted({str(parameter.dtype) for parameter in model.parameters()}),
        "device": [platform.machine(), torch.get_num_threads(), gpu or torch.backends.cpu.get_cpu_capability()],
        "precision": settings.precision,
        "code": _code(),
    }


def _read(file: Path) -> str | None:
    """Return the stored content; None if there is none, or if it is damaged."""
    try:
        digest, _, content = file.read_text(encoding="utf-8").partition("\n")
        os.utime(file)
    except (OSError, UnicodeDecodeError):
        return None
    return content if digest == _digest(content) else None


def _write(file: Path, content: str) -> None:
    """Write atomically, readable by this user alone, safe beside other writers; then remove old results over MOST_BYTES."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_text(file, f"{_digest(content)}\n{content}", 0o600)
    remove_oldest(file.parent, MOST_BYTES)


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


@cache
def _code() -> dict[str, str]:
    return {**library_versions(), "app": code_hash()}
