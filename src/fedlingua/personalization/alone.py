"""Models that this machine's sites trained alone in any run, each in a file named by a hash of all that it depends on.

The folder is readable by its user alone; a deployed site's is in its state folder.
"""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from fedlingua.common.cache import remove_oldest
from fedlingua.exchange.tensors import NamedTensors, Tensors, digest_of, save_tensors

MOST_BYTES = 2 * 2**30
"""Largest size of the folder; the models that were not used for longest are removed first."""


def find(folder: Path, key: str) -> tuple[Tensors, dict[str, Any]] | None:
    """Return the tensors of a model and the record of its training; None if there is none, or if it is damaged."""
    file = folder / f"{key}.safetensors"
    try:
        with safe_open(file, "numpy") as stored:
            about, tensors = stored.metadata() or {}, {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        os.utime(file)
        record: dict[str, Any] = json.loads(about["record"])
    except (OSError, SafetensorError, KeyError, ValueError):
        return None
    return (tensors, record) if about.get("digest") == digest_of(about["record"], dict(sorted(tensors.items()))) else None


def store(folder: Path, key: str, tensors: NamedTensors, record: dict[str, Any]) -> None:
    """Store a model; on a full disk the next run trains it again."""
    text = json.dumps(record)
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        digest = digest_of(text, dict(sorted(tensors.items())))
        save_tensors(tensors, folder / f"{key}.safetensors", {"record": text, "digest": digest})
        remove_oldest(folder, MOST_BYTES)
