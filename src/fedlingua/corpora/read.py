"""Readers of parallel text: TSV, Moses pairs and n-way files, plain or gzipped, on disk or in a zip.

Only "\\n" ends a line. `str.splitlines` also splits at U+2028, NEL and VT, which stand inside sentences, and so shifts one side of a
pair of files against the other.
"""

import gzip
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fedlingua.errors import ConfigError, CorpusError


class Pair(NamedTuple):
    """One sentence and its translation."""

    source: str
    target: str


@dataclass(frozen=True)
class TsvFile:
    """Two columns in one file; `source_column` says which of them is translated from."""

    path: Path
    source_column: int = 0
    target_column: int = 1


@dataclass(frozen=True)
class LineFiles:
    """Two files whose line i is the same sentence: Moses pairs, and any two languages of an n-way corpus."""

    source_path: Path | zipfile.Path
    target_path: Path | zipfile.Path


CorpusFiles = TsvFile | LineFiles


def tsv_columns(entry: Mapping[str, Any], where: str) -> tuple[int, int]:
    """`columns` of a table that names a TSV file: the source's and the target's, counted from 0.

    Raises:
        ConfigError: not two whole numbers, 0 or above.
    """
    columns = entry.get("columns", [0, 1])
    if not isinstance(columns, list) or [type(c) for c in columns] != [int, int] or min(columns) < 0:
        raise ConfigError(f"{where}: columns = {columns!r}; wanted two column numbers counted from 0, for example [0, 1]")
    return columns[0], columns[1]


def read_pairs(files: CorpusFiles) -> Iterator[Pair]:
    """Yield the pairs as they stand, empty sides included, in file order.

    Raises:
        CorpusError: a missing or empty file, bad UTF-8, too few columns, files of unequal length; with file and line.
    """
    if isinstance(files, TsvFile):
        yield from _read_tsv(files)
    else:
        yield from _read_line_files(files)


def _read_tsv(files: TsvFile) -> Iterator[Pair]:
    wanted = max(files.source_column, files.target_column) + 1
    for number, line in enumerate(read_lines(files.path), start=1):
        columns = line.split("\t")
        if len(columns) < wanted:
            raise CorpusError(
                f"{files.path}, line {number}: got {len(columns)} column(s), wanted {wanted} separated by TAB; "
                "mend the line, or give source_column and target_column"
            )
        yield Pair(columns[files.source_column], columns[files.target_column])


def _read_line_files(files: LineFiles) -> Iterator[Pair]:
    source, target = read_lines(files.source_path), read_lines(files.target_path)
    number = 0
    while True:
        left, right = next(source, None), next(target, None)
        if left is None and right is None:
            return
        number += 1
        if left is None or right is None:
            shorter = files.source_path if left is None else files.target_path
            longer = files.target_path if left is None else files.source_path
            rest = number + sum(1 for _ in (target if left is None else source))
            raise CorpusError(
                f"{shorter} ends after line {number - 1}, but {longer} has {rest} lines; "
                "line i of both files has to be the same sentence, so both need the same number of lines"
            )
        yield Pair(left, right)


def read_lines(path: Path | zipfile.Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, gzipped when its name ends in .gz, without their "\\n" (and without a "\\r" before it).

    Raises:
        CorpusError: missing, empty, not gzip though named so, or not UTF-8; with file and line.
    """
    if not path.is_file():
        raise CorpusError(f"{path}: there is no such file; check the path, or the folder given as data-dir")
    number = 0
    try:
        with path.open("rb") as file, gzip.open(file) if path.name.endswith(".gz") else nullcontext(file) as stream:
            for raw in stream:
                number += 1
                yield raw.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"{path}, line {number}: byte {error.start + 1} of the line is not UTF-8 ({error.reason}); convert the file to UTF-8"
        ) from None
    except (EOFError, OSError, zlib.error, zipfile.BadZipFile) as error:
        # Without the words of gzip, and without it as the cause: it quotes the first bytes of what is none.
        kind = "zip" if isinstance(path, zipfile.Path) else "gzip"
        what = getattr(error, "strerror", None) or type(error).__name__
        raise CorpusError(f"{path}, after line {number}: cannot be read ({what}); is it a whole {kind} file?") from None
    if number == 0:
        raise CorpusError(f"{path} is empty; a corpus needs at least one line")
