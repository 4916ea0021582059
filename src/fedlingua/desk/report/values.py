"""Read JSON objects as dataclasses even if values are missing or of a wrong type, so that a broken run still gets a page.

A pydantic dataclass with fields of the types below accepts any object. Missing values and values of a wrong type become None, 0 or empty.
"""

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, TypeVar

from pydantic import PlainValidator, TypeAdapter

from fedlingua.desk.json_values import integers, number, numbers, sequence, share, text, whole

Read = TypeVar("Read")

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
    """Read a JSON object as a dataclass, without other keys. known: Fields that are missing from the object or replace its own."""
    read: Read = _adapter(kind).validate_python({**content, **known})
    return read
