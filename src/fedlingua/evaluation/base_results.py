"""Cache of the untrained backbone's results on a text, keyed by a hash of everything that they depend on.

They are the same for every method, seed and run, and take as long as scoring a trained model. Results may hold text, so the folder
is readable by its user alone and belongs to one machine; a deployed site's is in its state folder.
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

from fedlingua.common.files import json_hash, replace_text
from fedlingua.exchange.trainable import Trainable
from fedlingua.runs.folder import code_hash, library_versions
from fedlingua.settings.config import Settings

T = TypeVar("T")
MOST_BYTES = 256 * 2**20
"""Largest size of a cache folder; the results that were not used for longest are removed first."""


def base_result(folder: Path, trainable: Trainable, settings: Settings, asked: Sequence[Any], make: Callable[[], T]) -> T:
    """Return the result of `make()` on the untrained backbone, read from `folder` if it is stored there undamaged. asked: the
    text and all settings that `make` depends on. It and the result are JSON values, so that a stored result is equal.
    """
    model = trainable.model
    gpu = torch.cuda.get_device_name(model.device) if model.device.type == "cuda" else None
    decided = {
        "backbone": trainable.backbone.fingerprint,
        "dtypes": sorted({str(parameter.dtype) for parameter in model.parameters()}),
        "device": [platform.machine(), torch.get_num_threads(), gpu or torch.backends.cpu.get_cpu_capability()],
        "precision": settings.precision,
        "code": _code(),
        "asked": asked,
    }
    file = folder / f"{json_hash(decided)}.json"
    content = _read(file)
    if content is None:
        with trainable.as_base():
            content = json.dumps(make())
        with suppress(OSError):  # on a full disk the next run computes the result again
            _write(file, content)
    result: T = json.loads(content)
    return result


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
    room = MOST_BYTES
    with os.scandir(file.parent) as entries:
        known = sorted(((about := each.stat()).st_mtime, about.st_size, each.path) for each in entries)
    for _, size, old in reversed(known):
        room -= size
        if room < 0:
            Path(old).unlink(missing_ok=True)


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


@cache
def _code() -> dict[str, str]:
    return {**library_versions(), "app": code_hash()}
