"""Take values out of JSON that may lack them or hold another type: a run that is going or broken still gets a page.

A dataclass of pydantic whose fields have the types below takes any object: what is missing or of another type is None, 0 or empty.
"""

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, TypeVar

from pydantic import PlainValidator, TypeAdapter

LARGEST = 1e18
"""Of what a run can have measured; sums and plots of more run over."""
Read = TypeVar("Read")


def number(value: Any) -> float | None:
    """The value as a number; None for anything else, NaN, infinity and what is beyond `LARGEST`, which would spoil sums and plots."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= LARGEST else None  # NaN is not, and neither is a whole number that no float holds


def whole(value: Any) -> int | None:
    known = number(value)
    return None if known is None else int(known)


def share(value: Any) -> float | None:
    """The value as a share of a whole, 0 to 1, or None."""
    known = number(value)
    return known if known is not None and 0 <= known <= 1 else None


def text(value: Any, otherwise: str = "") -> str:
    """The value as text; `otherwise` if missing."""
    return otherwise if value is None else str(value)


def mapping(value: Any) -> dict[str, Any]:
    """The value as an object with text keys, half characters of them replaced; empty for anything else."""
    return {str(key).encode(errors="replace").decode(): item for key, item in value.items()} if isinstance(value, dict) else {}


def objects(value: Any) -> dict[str, dict[str, Any]]:
    """Those items of an object that are objects themselves."""
    return {key: mapping(item) for key, item in mapping(value).items() if isinstance(item, dict)}


def sequence(value: Any) -> list[Any]:
    """The value as a list; empty for anything else."""
    return list(value) if isinstance(value, list) else []


def numbers(value: Any) -> dict[str, float]:
    """Those items of an object that are numbers."""
    known = {key: number(item) for key, item in mapping(value).items()}
    return {key: item for key, item in known.items() if item is not None}


def integers(value: Any) -> dict[str, int]:
    """Those items of an object that are numbers, as whole ones."""
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
    """A JSON object as a dataclass. known: fields that the object lacks."""
    model: Any = kind
    names = [field.name for field in fields(model)]
    values = {name: value for name, value in {**content, **known}.items() if name in names}
    read: Read = _adapter(model).validate_python(values)
    return read
