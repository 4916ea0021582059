"""`fedlingua translate`: line for line, from a file or standard input."""

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TextIO

from fedlingua.corpora.read import read_lines
from fedlingua.errors import ConfigError, CorpusError
from fedlingua.languages import parse_direction
from fedlingua.translator import Translator

CHUNK = 64
"""Lines translated together: enough to batch by length, few enough that a pipe flows."""


def translate_lines(run: Path, site: str | None, direction: str | None, file: Path | None, output: TextIO) -> None:
    """Write one line for each line read; an empty line stays empty.

    Raises:
        ConfigError: neither site nor direction, or both. RunError, BackboneError: what the run cannot give.
    """
    if (site is None) == (direction is None):
        raise ConfigError("translate needs either --site or --direction; the run's sites stand in its sites.json")
    if file is not None and not file.is_file():
        raise CorpusError(f"{file}: there is no such file; give a text with a sentence a line, or none to read standard input")
    translator = (
        Translator.of_site(run, site) if site else Translator.of_direction(run, parse_direction(direction or "", "--direction"))
    )
    translate_with(translator, file, output)


def translate_with(translator: Translator, file: Path | None, output: TextIO) -> None:
    """Write one line for each line of the file, or of standard input."""
    lines = read_lines(file) if file else _standard_input()
    while chunk := list(islice(lines, CHUNK)):
        output.write("".join(f"{line}\n" for line in translator.translate(chunk)))
        output.flush()


def _standard_input() -> Iterator[str]:
    for number, raw in enumerate(sys.stdin.buffer, start=1):
        try:
            yield raw.decode("utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise CorpusError(f"standard input, line {number}: not UTF-8 ({error.reason}); convert the text to UTF-8") from error
