"""The user's cache: what can be made again, made once, by one process at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_dir() -> Path:
    """`$XDG_CACHE_HOME/fedlingua`, or the same under the home directory."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedlingua"


def base_results_dir() -> Path:
    """Where simulations keep what backbones make of texts before any training."""
    return cache_dir() / "base-results"


@contextmanager
def making(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory that is about to be made: one process makes it while others wait for its result."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with (directory.parent / f".{directory.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
