"""Measure durations for a run's report; no result depends on them."""

import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager


@contextmanager
def timed(seconds: MutableMapping[str, float], name: str) -> Iterator[None]:
    """Add the wall time of the context to `seconds[name]`."""
    started = time.monotonic()
    try:
        yield
    finally:
        seconds[name] = seconds.get(name, 0.0) + time.monotonic() - started
