"""Load large modules quickly."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Spare the garbage collector what is loaded: it would go through a million objects of torch and transformers again and again."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
