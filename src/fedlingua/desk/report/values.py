"""Take values out of JSON that may lack them or hold another type: a run that is going or broken still gets a page."""

from typing import Any

LARGEST = 1e18
"""Of what a run can have measured; sums and plots of more run over."""


def number(value: Any) -> float | None:
    """The value as a number; None for anything else, NaN, infinity and what is beyond `LARGEST`, so that no sum or plot is spoilt by it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= LARGEST else None  # NaN is not, and neither is a whole number that no float holds


def whole(value: Any) -> int | None:
    """The value as a whole number, or None."""
    found = number(value)
    return None if found is None else int(found)


def text(value: Any, otherwise: str = "") -> str:
    """The value as text; what is not there reads as `otherwise`."""
    return otherwise if value is None else str(value)


def mapping(value: Any) -> dict[str, Any]:
    """The value as an object with text keys; empty for anything else."""
    return {str(key): item for key, item in value.items()} if isinstance(value, dict) else {}


def objects(value: Any) -> dict[str, dict[str, Any]]:
    """Those items of an object that are objects themselves."""
    return {key: mapping(item) for key, item in mapping(value).items() if isinstance(item, dict)}


def sequence(value: Any) -> list[Any]:
    """The value as a list; empty for anything else."""
    return list(value) if isinstance(value, list) else []


def numbers(value: Any) -> dict[str, float]:
    """Those items of an object that are numbers."""
    found = {key: number(item) for key, item in mapping(value).items()}
    return {key: item for key, item in found.items() if item is not None}


def integers(value: Any) -> dict[str, int]:
    """Those items of an object that are numbers, as whole ones."""
    return {key: int(item) for key, item in numbers(value).items()}
