"""Read values from JSON in which they may be missing or of another type: an unfinished or broken run still gets a page.

A pydantic dataclass with fields of the types below takes any object: what is missing or of another type is None, 0 or empty.
"""

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, TypeVar

from pydantic import PlainValidator, TypeAdapter

LARGEST = 1e18
"""Greatest magnitude accepted as a measurement; beyond it sums and plots overflow."""
Read = TypeVar("Read")


def number(value: Any) -> float | None:
    """Return the value as a number; None for anything else, NaN, infinity and magnitudes above `LARGEST`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= LARGEST else None  # false for NaN and for an integer that no float can hold


def whole(value: Any) -> int | None:
    known = number(value)
    return None if known is None else int(known)


def share(value: Any) -> float | None:
    """Return the value as a share of a whole, 0 to 1, or None."""
    known = number(value)
    return known if known is not None and 0 <= known <= 1 else None


def text(value: Any, otherwise: str = "") -> str:
    """Return the value as text; `otherwise` if missing."""
    return otherwise if value is None else str(value)


def mapping(value: Any) -> dict[str, Any]:
    """Return the value as an object with text keys, lone surrogates in them replaced; empty for anything else."""
    return {str(key).encode(errors="replace").decode(): item for key, item in value.items()} if isinstance(value, dict) else {}


def objects(value: Any) -> dict[str, dict[str, Any]]:
    """Return those items of an object that are objects themselves."""
    return {key: mapping(item) for key, item in mapping(value).items() if isinstance(item, dict)}


def sequence(value: Any) -> list[Any]:
    """Return the value as a list; empty for anything else."""
    return list(value) if isinstance(value, list) else []


def numbers(value: Any) -> dict[str, float]:
    """Return those items of an object that are numbers."""
    known = {key: number(item) for key, item in mapping(value).items()}
    return {key: item for key, item in known.items() if item is not None}


def integers(value: Any) -> dict[str, int]:
    """Return those items of an object that are numbers, truncated to integers."""
    return {key: int(item) for key, item in numbers(value).items()}


Number = Annotated[float | None, PlainValidator(number)]
Amount = Annotated[float, PlainValidator(lambda value: number(value) or 0.0)]
Whole = Annotated[int | None, PlainValidator(whole)]
Share = Annotated[float | None, PlainValidator(share)]
Text = Annotated[str, PlainValidator(text)]
Texts = Annotated[list[str], PlainValidator(lambda value: [text(each) for each in sequence(value)])]
Numbers = Annotated[dict[str, float], PlainValidator(numbers)]
Integers = Annotated[dict[str, int], PlainValidator(integers)]


_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


def read_as(kind: type[Read], content: dict[str, Any], **known: Any) -> Read:
    """Read a JSON object as a dataclass. known: fields that the object lacks, or that replace its own."""
    model: Any = kind
    names = [field.name for field in fields(model)]
    values = {name: value for name, value in {**content, **known}.items() if name in names}
    read: Read = _adapter(model).validate_python(values)
    return read
