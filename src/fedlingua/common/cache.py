"""The user's cache directory, and a lock that lets only one process at a time make an entry."""

import os
from contextlib import AbstractContextManager
from pathlib import Path

from fedlingua.common.files import held


def cache_dir() -> Path:
    """Return `$XDG_CACHE_HOME/fedlingua`; by default ~/.cache/fedlingua."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedlingua"


def base_results_dir() -> Path:
    """Return the folder where simulations store the results of untrained backbones (fedlingua.evaluation.base_results)."""
    return cache_dir() / "base-results"


def remove_oldest(folder: Path, most_bytes: int) -> None:
    """Remove the files of a folder that were not used for longest, down to a size."""
    with os.scandir(folder) as entries:
        known = sorted(((about := each.stat()).st_mtime, about.st_size, each.path) for each in entries)
    for _, size, old in reversed(known):
        most_bytes -= size
        if most_bytes < 0:
            Path(old).unlink(missing_ok=True)


def making(directory: Path) -> AbstractContextManager[None]:
    """Hold the lock of a directory that is being made: one process makes it while others wait."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    return held(directory.parent / f".{directory.name}.lock")
