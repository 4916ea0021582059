"""A JSON object a line: what is checked of each, whoever reads it. Errors name file and line and never quote the text."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedlingua.common.errors import CorpusError
from fedlingua.corpora.read import read_lines


def read_objects(path: Path, wanted: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (file and line, object) for every line that is not blank. wanted: what has to be in it, in words.

    Raises:
        CorpusError: as `read_lines`, or a line that is no JSON object.
    """
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        here = f"{path}, line {number}"
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            # Without the parser's words, and without it as the cause: both can hold the line.
            raise CorpusError(f"{here}: is no JSON object; wanted one a line, with {wanted}") from None
        yield here, found


def check_text(value: Any, field: str, here: str) -> str:
    """The value of a field that has to be text.

    Raises:
        CorpusError: it is none, or holds what no file or hash takes.
    """
    if not isinstance(value, str):
        raise CorpusError(f"{here}: {field!r} is of type {type(value).__name__}; wanted a string")
    if has_half_character(value):
        raise CorpusError(f"{here}: {field!r} holds half a character (a lone surrogate); mend its escapes")
    return value


def has_half_character(text: str) -> bool:
    """Whether a lone surrogate is in it, which JSON can say and no encoding can write."""
    return any("\ud800" <= character <= "\udfff" for character in text)
