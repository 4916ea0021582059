"""Readers of parallel text: TSV, Moses pairs and n-way files, plain or gzipped, on disk or in a zip.

Only "\\n" ends a line. `str.splitlines` also splits at U+2028, NEL and VT, which stand inside sentences, and so shifts one side of a
pair of files against the other.
"""

import gzip
import io
import re
import zipfile
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from glob import escape, glob
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from fedlingua.common.errors import ConfigError, CorpusError
from fedlingua.common.languages import Direction, matching


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


def side_paths(path: Path, direction: Direction) -> tuple[Path, Path]:
    """The two files of a Moses pair that is called X: X.de and X.fr; called X.gz: X.de.gz and X.fr.gz."""
    stem = path.name.removesuffix(".gz")
    suffix = path.name.removeprefix(stem)
    pattern = path.parent / f"{stem}.{{}}{suffix}"
    return spelled(pattern, direction.source), spelled(pattern, direction.target)


def spelled(pattern: Path, code: str) -> Path:
    """The file that has a language's code for {}, or the only one that has another spelling of it there: X.iw where there is no X.he."""
    before, _, after = str(pattern).rpartition("{}")
    file = Path(before + code + after)
    others = [] if file.is_file() else glob(f"{escape(before)}*{escape(after)}")
    found = matching(code, [other[len(before) : len(other) - len(after)] for other in others])
    return Path(before + found[0] + after) if len(found) == 1 else file


UNREADABLE = (EOFError, OSError, RuntimeError, zlib.error, zipfile.BadZipFile)
"""What is raised of a file that is damaged, or that one may not read; a RuntimeError of a zip that is encrypted or packed otherwise."""

LINE_BYTES = 4 << 20
"""Most of a line, or of a note: a sentence has a thousandth, and a file that is all one line would lie whole in memory."""
UNPACKED_BYTES, UNPACKED_TIMES = 64 << 20, 200
"""What is packed may become so large, and beyond that so many times its size; text becomes 3 to 20 times as large."""


def tsv_columns(entry: Mapping[str, Any], where: str) -> tuple[int, int]:
    """`columns` of a table that names a TSV file: the source's and the target's, counted from 0.

    Raises:
        ConfigError: not two whole numbers, 0 or above.
    """
    columns = entry.get("columns", [0, 1])
    if not isinstance(columns, list) or [type(c) for c in columns] != [int, int] or min(columns) < 0:
        raise ConfigError(f"{where}: columns = {columns!r}; wanted two column numbers counted from 0, for example [0, 1]")
    return columns[0], columns[1]


def read_pairs(files: TsvFile | LineFiles) -> Iterator[Pair]:
    """Yield the pairs as they stand, empty sides included, in file order.

    Raises:
        CorpusError: a missing or empty file, bad UTF-8, too few columns or now more and now fewer, files of unequal length; with file and
            line.
    """
    if isinstance(files, TsvFile):
        yield from _read_tsv(files)
    else:
        yield from _read_line_files(files)


def _read_tsv(files: TsvFile) -> Iterator[Pair]:
    wanted, width = max(files.source_column, files.target_column) + 1, 0
    for number, line in enumerate(read_lines(files.path), start=1):
        columns = line.split("\t")
        width = width or len(columns)
        if len(columns) < wanted:
            raise CorpusError(
                f"{files.path}, line {number}: got {len(columns)} column(s), wanted {wanted} separated by TAB; "
                "mend the line, or give columns"
            )
        if len(columns) != width:
            raise CorpusError(
                f"{files.path}, line {number}: got {len(columns)} columns, and line 1 has {width}; with a TAB inside a sentence nobody "
                "knows where the other one begins, so mend the line"
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
    """Yield the lines of a UTF-8 file, gzipped when its name ends in .gz, without their "\n" (and without a "\r" before it).

    A mark of UTF-8 at the beginning, as some editors set it, is no part of the first line.

    Raises:
        CorpusError: missing, empty, not gzip though named so, not UTF-8, or with the line ends of old Macs; with file and line.
    """
    try:
        with opened(path) as stream:
            yield from lines_of(stream, path, may_be_empty=False)
    except UNREADABLE as error:
        raise CorpusError(damaged(path, "line 0", error)) from None


def lines_of(stream: IO[bytes], path: Path | zipfile.Path | str, may_be_empty: bool = True) -> Iterator[str]:
    """The lines of a stream. path: where they come from, for errors.

    Raises:
        CorpusError: as `read_lines`, of what is there.
    """
    number = 0
    try:
        for raw in iter(partial(stream.readline, LINE_BYTES + 1), b""):
            number += 1
            if number == 1:
                raw = _checked_start(raw, path)
            if len(raw) > LINE_BYTES:
                raise CorpusError(f"{path}, line {number}: has more than {LINE_BYTES:,} bytes; cut it, or check its line ends")
            if number % 16 == 0:
                check_growth(stream, path)
            yield raw.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"{path}, line {number}: byte {error.start + 1} of the line is not UTF-8 ({error.reason}); convert the file to UTF-8"
        ) from None
    except UNREADABLE as error:
        raise CorpusError(damaged(path, f"line {number}", error)) from None
    if number == 0 and not may_be_empty:
        raise CorpusError(empty(path))


def _checked_start(raw: bytes, path: Path | zipfile.Path | str) -> bytes:
    """The first line, which tells of a file that is another encoding's, or has no line ends of ours."""
    if raw.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) or 3 * raw.count(0) > len(raw):
        raise CorpusError(f"{path}, line 1: this is UTF-16; convert the file to UTF-8, as with iconv -f UTF-16 -t UTF-8")
    if b"\r" in raw.rstrip(b"\r") and not raw.endswith(b"\n"):
        ends = raw.count(b"\r")
        raise CorpusError(
            f'{path}, line 1: the file has {ends} carriage returns and no line feed, and only "\\n" ends a line; convert its line ends'
        )
    return raw.removeprefix(BOM_UTF8)


@contextmanager
def opened(path: Path | zipfile.Path) -> Iterator[IO[bytes]]:
    """A file's bytes, unpacked when its name ends in .gz.

    Raises:
        CorpusError: there is no such file. UNREADABLE: while it is read.
    """
    if not path.is_file():
        raise CorpusError(f"{path}: there is no such file; check the path, or the folder given as data-dir")
    with path.open("rb") as file:
        if path.name.endswith(".gz"):
            with gzip.open(file) as unpacked:
                yield io.BufferedReader(cast(Any, unpacked), 1 << 17)
        else:
            yield io.BufferedReader(cast(Any, file), 1 << 17) if isinstance(path, zipfile.Path) else file


def check_growth(stream: IO[bytes], path: Path | zipfile.Path | str) -> None:
    """Refuse, with a CorpusError, what becomes larger as it is unpacked than text does; a few hundred kB can become a gigabyte."""
    packs = isinstance(path, zipfile.Path) or (isinstance(path, Path) and path.suffix == ".gz")
    if packs and (size := stream.tell()) > UNPACKED_BYTES:
        packed = path.root.getinfo(path.at).compress_size if isinstance(path, zipfile.Path) else Path(path).stat().st_size
        if size > UNPACKED_TIMES * packed:
            raise CorpusError(f"{path}: becomes more than {UNPACKED_TIMES} times as large, which no text does; check what it is")


def damaged(path: Path | zipfile.Path | str, last: str, error: Exception) -> str:
    """What is wrong with a file that breaks off or cannot be unpacked. last: what was read of it last, as in "line 3".

    Without the words of gzip, and not to be raised with it as the cause: it quotes the first bytes of what is none.
    """
    kind = "zip" if isinstance(path, zipfile.Path) else "gzip"
    what = getattr(error, "strerror", None) or type(error).__name__
    return f"{path}, after {last}: cannot be read ({what}); is it a whole {kind} file?"


def empty(path: Path | zipfile.Path | str) -> str:
    """What is wrong with a file that nothing stands in."""
    return f"{path} is empty; a corpus needs at least one line"


def on_one_line(sentence: str) -> str:
    """A space for every line break with the white space around it: formats that have one inside a sentence mean no more by it."""
    return _BREAK.sub(" ", sentence) if "\n" in sentence else sentence


_BREAK = re.compile(r"[ \t\r]*\n[ \t\r\n]*")
