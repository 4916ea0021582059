"""Federated training of multilingual translation models: what server and sites share; fedlingua.desk.api on demand."""

from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any

__all__ = ["FedlinguaError", "Run", "__version__", "compare", "load", "run", "suite"]


def __getattr__(name: str) -> Any:
    if name not in __all__ or not find_spec("fedlingua.desk"):  # no node has it
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    return metadata.version("fedlingua") if name == "__version__" else getattr(import_module("fedlingua.desk.api"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
