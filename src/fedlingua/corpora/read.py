"""Readers of lines: TSV, Moses pairs, n-way files and OPUS's zips, JSON lines, and documents, one a line or a file; plain or gzipped.

Only "\\n" ends a line. `str.splitlines` also splits at U+2028, NEL and VT, which occur inside sentences, and so would shift one
file of a pair against the other. `datasets` and pyarrow split there too, or quote text in their errors, so neither is used here.
"""

import csv
import gzip
import io
import json
import os
import re
import zipfile
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from glob import escape, glob
from itertools import islice, zip_longest
from pathlib import Path, PurePosixPath
from typing import IO, Any, Generic, NamedTuple, TypeVar, cast

from fedlingua.common.errors import CorpusError
from fedlingua.common.files import wide_encoding
from fedlingua.common.languages import Direction, is_tag, matching
from fedlingua.common.visible import is_blank

T_co = TypeVar("T_co", covariant=True)
AnyPath = Path | zipfile.Path


class Pair(NamedTuple):
    """One sentence and its translation."""

    source: str
    target: str


class Corpus(Generic[T_co]):
    """A source of text in one of the formats of formats.py: pairs, or documents in one language."""

    path: AnyPath

    def read(self) -> Iterator[T_co]:
        """Yield the entries in file order, holding only a few in memory.

        Pairs are not cleaned, and their sides may be empty; documents of white space alone are left out.

        Raises:
            CorpusError: the corpus cannot be read; names file and line, and never quotes the text.
        """
        raise NotImplementedError

    def paths(self) -> Sequence[AnyPath]:
        """Return the files that have to exist."""
        return [self.path]

    def missing(self) -> str:
        """Return a message about the first missing file; empty if all files exist. Raises CorpusError for what is there, but unusable."""
        gone = next((path for path in self.paths() if not path.is_file()), None)
        return f"{gone}: there is no such file" if gone else ""


@dataclass(frozen=True)
class TsvFile(Corpus[Pair]):
    """A file with source and target in two of its columns, counted from 0; also with fields quoted as in CSV, and, where its name ends in
    .csv, separated as there. Of `parts` shares of its lines, share `part`, as in LineFiles."""

    path: Path
    source_column: int = 0
    target_column: int = 1
    part: int = 1
    parts: int = 1

    def read(self) -> Iterator[Pair]:
        wanted, width = max(self.source_column, self.target_column) + 1, 0
        for number, columns in read_rows(self.path):
            width = width or len(columns)
            if len(columns) < wanted:
                raise CorpusError(
                    f"{self.path}, line {number}: got {len(columns)} column(s), wanted {wanted}"
                    f"{'' if _is_csv(self.path) else ' separated by TAB'}; mend the line, or give columns"
                )
            if len(columns) != width:
                raise CorpusError(
                    f"{self.path}, line {number}: got {len(columns)} columns, and line 1 has {width}; a separator inside a "
                    "sentence without quotes leaves open where the other one begins, so mend the line"
                )
            if (number - self.part) % self.parts == 0:
                yield Pair(columns[self.source_column], columns[self.target_column])


@dataclass(frozen=True)
class LineFiles(Corpus[Pair]):
    """Two files whose lines i are the same sentence: Moses pairs, or any two languages of an n-way corpus.

    Of `parts` shares, share `part` has lines part, part + parts, ..., so that sites can divide an n-way corpus between them.
    """

    source_path: AnyPath
    target_path: AnyPath
    part: int = 1
    parts: int = 1

    def read(self) -> Iterator[Pair]:
        lines = enumerate(zip_longest(read_lines(self.source_path), read_lines(self.target_path)), start=1)
        for number, (left, right) in lines:
            if left is None or right is None:
                shorter, longer = self.paths() if left is None else reversed(self.paths())
                raise CorpusError(
                    f"{shorter} ends after line {number - 1}, but {longer} has {number + sum(1 for _ in lines)} lines; "
                    "line i of both files must be the same sentence, so both need the same number of lines"
                )
            if (number - self.part) % self.parts == 0:
                yield Pair(left, right)

    def paths(self) -> Sequence[AnyPath]:
        return [self.source_path, self.target_path]


@dataclass(frozen=True)
class PairDocuments(Corpus[Pair]):
    """Pairs whose documents a file names: its line i is the name of pair i's document. Of `parts` shares, share `part`, as in LineFiles."""

    pairs: Corpus[Pair]
    file: Path
    part: int = 1
    parts: int = 1

    def read(self) -> Iterator[Pair]:
        return self.pairs.read()

    def names(self) -> Iterator[str]:
        """Yield the name of each pair's document, in the pairs' order; raise CorpusError if a line is empty."""
        for number, name in enumerate(read_lines(self.file), start=1):
            if not name.strip():
                raise CorpusError(f"{self.file}, line {number}: is empty; wanted the name of the document of pair {number}")
            if (number - self.part) % self.parts == 0:
                yield name.strip()

    def paths(self) -> Sequence[AnyPath]:
        return [*self.pairs.paths(), self.file]


def side_paths(path: Path, direction: Direction) -> tuple[Path, Path]:
    """Return the two files of the Moses pair X: X.de and X.fr; of X.gz: X.de.gz and X.fr.gz."""
    stem = path.name.removesuffix(".gz")
    suffix = path.name.removeprefix(stem)
    pattern = path.parent / f"{stem}.{{}}{suffix}"
    return spelled(pattern, direction.source), spelled(pattern, direction.target)


def spelled(pattern: Path, code: str) -> Path:
    """Return the file with a language's code for {}, or the only one with another spelling of it: X.iw if there is no X.he.

    X.de_tok and X.de-old, which are other text, do not take the place of X.de: what stands for {} has to be a valid tag.
    """
    before, _, after = str(pattern).rpartition("{}")
    file = Path(before + code + after)
    others = [] if file.is_file() else glob(f"{escape(before)}*{escape(after)}")
    codes = matching(code, filter(is_tag, [other[len(before) : len(other) - len(after)] for other in others]))
    return Path(before + codes[0] + after) if len(codes) == 1 else file


MOST_DIRECTORY = 1_000_000
"""Most bytes of a zip's list of members, which is read into memory whole, each member as half a kilobyte."""
UNREADABLE = (EOFError, OSError, RuntimeError, zlib.error, zipfile.BadZipFile)
"""Errors of a file that is damaged or may not be read; RuntimeError: an encrypted zip, or an unsupported compression."""

LINE_BYTES = 4 << 20
"""Longest line or note. A sentence has about a thousandth of that; a file that is one long line would fill the memory."""
UNPACKED_BYTES, UNPACKED_TIMES = 64 << 20, 200
"""A packed file may unpack to this many bytes, or to this multiple of its packed size if that is more; text grows 3 to 20 times."""


def read_lines(path: AnyPath, may_be_empty: bool = False) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, gzipped when its name ends in .gz, without their line ends ("\\n" or "\\r\\n").

    A byte order mark of UTF-8 at the beginning, as some editors write it, is removed.

    Raises:
        CorpusError: the file is missing, empty, not UTF-8, no gzip despite its name, or has line ends of "\\r" alone; names the line.
    """
    try:
        with opened(path) as stream:
            yield from lines_of(stream, path, may_be_empty)
    except UNREADABLE as error:
        raise CorpusError(damaged(path, "line 0", error)) from None


def read_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and the columns of each row of a TSV or CSV file; errors as in `read_lines`.

    Quotes around fields, and "" for a quote in them, as spreadsheets and pandas write them, are taken off. A line end inside quotes is
    a space.
    """
    if _is_csv(path):
        rows = csv.reader(_with_ends(path), delimiter=_separator(path), strict=True)
        try:
            yield from ((rows.line_num, [on_one_line(column) for column in row]) for row in rows)
        except csv.Error as error:
            raise CorpusError(f"{path}, line {rows.line_num}: is no CSV ({error}); mend its quotes, or export it anew") from None
    elif _is_quoted(path):
        rows = csv.reader(_with_ends(path), "excel-tab", strict=True)
        yield from ((rows.line_num, [on_one_line(column) for column in row]) for row in rows)
    else:
        yield from ((number, line.split("\t")) for number, line in enumerate(read_lines(path), start=1))


def _is_csv(path: Path) -> bool:
    return path.name.removesuffix(".gz").endswith(".csv")


def _separator(path: Path) -> str:
    """Return what separates the columns of a CSV file: that by which its first hundred rows all have the same number, two or more.

    Where lists are separated by semicolons, as in German, spreadsheets write those.
    """
    for separator in ",;\t":
        try:
            widths = {len(row) for row in islice(csv.reader(_with_ends(path), delimiter=separator, strict=True), 100)}
        except csv.Error:
            continue
        if len(widths) == 1 and widths != {1}:
            return separator
    raise CorpusError(
        f"{path}: its rows do not have the same number of columns by comma, semicolon or TAB; export it anew, with quotes"
    )


def _is_quoted(path: Path) -> bool:
    """Whether the fields of a TSV file are quoted as in CSV: as far as is looked, only whole fields have quotes, and either some have
    what would be odd in text, "" or a line end inside quotes, or all fields are quoted; and the whole file can be read so.
    """
    sample = "".join(islice(_with_ends(path), _SAMPLE))
    if not _CSV.fullmatch(sample):
        return False
    fields = _FIELD.findall(sample)
    odd = sum('""' in field[1:-1] or "\n" in field for field in fields)
    if odd < 3 and not (len(fields) >= 40 and all(field.startswith('"') for field in fields)):
        return False
    try:
        return all(True for _ in csv.reader(_with_ends(path), "excel-tab", strict=True))
    except csv.Error:
        return False


def _with_ends(path: Path) -> Iterator[str]:
    return (f"{line}\n" for line in read_lines(path))


_SAMPLE = 1000
_FIELD = re.compile(r"""("(?:[^"]|"")*+"|[^"\t\n]++)(?=[\t\n])""")
_CSV = re.compile(r"""(?:(?:"(?:[^"]|"")*+"|[^"\t\n]*+)[\t\n])*+(?:"(?:[^"]|"")*+)?""")
"""Rows of CSV with TABs; the last field may go on after them."""


def lines_of(stream: IO[bytes], path: AnyPath | str, may_be_empty: bool = True) -> Iterator[str]:
    """Yield the lines of a stream, or raise as `read_lines` does. path: the file, for errors."""
    number, first = 0, b""
    try:
        for raw in iter(partial(stream.readline, LINE_BYTES + 1), b""):
            number += 1
            if number == 1:
                raw = first = _checked_start(raw, f"{path}, line 1")
                if b"\n" not in raw:
                    _check_ends(raw, f"{path}, line 1")
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
    if number == 1:  # only now is it known: a "\r" inside the first of many lines may belong to its sentence
        _check_ends(first, f"{path}, line 1")


def _checked_start(raw: bytes, here: str) -> bytes:
    """Return the first line, or a whole note, without a byte order mark; raise CorpusError for UTF-16, UTF-32 or gzip data."""
    if raw.startswith(b"\x1f\x8b"):
        raise CorpusError(f"{here}: this is gzip data; unpack it, or, if it is a file of lines, give it a name that ends in .gz")
    if encoding := wide_encoding(raw):
        raise CorpusError(f"{here}: this is {encoding}; convert the file to UTF-8, as with iconv -f {encoding} -t UTF-8")
    return raw.removeprefix(BOM_UTF8)


def _check_ends(raw: bytes, here: str) -> None:
    """Raise CorpusError for text whose lines end in "\\r" alone, with or without a last "\\n". raw: a file's only line, or a whole note."""
    inner = raw.rstrip(b"\r\n")
    if b"\r" in inner and b"\n" not in inner:
        ends = raw.count(b"\r")
        raise CorpusError(
            f'{here}: the file has {ends} carriage returns and no line feed before its end, and only "\\n" ends a line; '
            "convert its line ends"
        )


@contextmanager
def opened(path: AnyPath) -> Iterator[IO[bytes]]:
    """Open a file for reading bytes, unpacked if its name ends in .gz. Reading may raise the errors of UNREADABLE."""
    check_file(path)
    with path.open("rb") as file:
        if path.name.endswith(".gz"):
            with gzip.open(file) as unpacked:
                yield io.BufferedReader(cast(Any, unpacked), 1 << 17)
        else:
            yield io.BufferedReader(cast(Any, file), 1 << 17) if isinstance(path, zipfile.Path) else file


def check_growth(stream: IO[bytes], path: AnyPath | str) -> None:
    """Raise CorpusError for a packed file that unpacks to far more than text would; a few hundred kB can become a gigabyte."""
    packs = isinstance(path, zipfile.Path) or (isinstance(path, Path) and path.suffix == ".gz")
    if packs and (size := stream.tell()) > UNPACKED_BYTES:
        packed = path.root.getinfo(path.at).compress_size if isinstance(path, zipfile.Path) else Path(path).stat().st_size
        if size > UNPACKED_TIMES * packed:
            raise CorpusError(f"{path}: becomes more than {UNPACKED_TIMES} times as large, which no text does; check the file")


def damaged(path: AnyPath | str, last: str, error: Exception) -> str:
    """Return the message about a file that cannot be read, or is cut off. last: the last part that was read, such as "line 3".

    It omits gzip's message, which quotes the first bytes of a file that is no gzip; for the same reason that error must not be chained.
    """
    what = getattr(error, "strerror", None) or type(error).__name__
    if isinstance(error, PermissionError):
        return f"{path}: cannot be read ({what}); check its permissions"
    kind = "zip" if isinstance(path, zipfile.Path) else "gzip" if str(path).endswith(".gz") else ""
    return f"{path}, after {last}: cannot be read ({what}); {f'is it a whole {kind} file?' if kind else 'check the file and its disk'}"


def empty(path: AnyPath | str, unit: str = "line") -> str:
    return f"{path} is empty; a corpus needs at least one {unit}"


def check_file(path: AnyPath) -> None:
    """Raise CorpusError if a file does not exist."""
    if not path.is_file():
        raise CorpusError(f"{path}: there is no such file; check the path, or the folder given as data-dir")


def on_one_line(sentence: str) -> str:
    """Replace every line break, with the white space around it, by a space, to which it is equivalent inside a sentence."""
    return _BREAK.sub(" ", sentence) if "\n" in sentence else sentence


_BREAK = re.compile(r"[ \t\r]*\n[ \t\r\n]*")


def read_objects(path: Path, wanted: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (file and line, object) for every line that is not blank, or raise CorpusError, which names what was `wanted`."""
    for number, line in enumerate(read_lines(path), start=1):
        if is_blank(line):
            continue
        here = f"{path}, line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            # The parser's error is neither quoted nor chained as the cause: it can hold the line.
            raise CorpusError(f"{here}: is no JSON object; wanted one a line, with {wanted}") from None
        yield here, record


def check_text(value: Any, field: str, here: str) -> str:
    """Return the value of a field; raise CorpusError if it is no string, or has a lone surrogate, which cannot be written or hashed."""
    if not isinstance(value, str):
        raise CorpusError(f"{here}: {field!r} is of type {type(value).__name__}; wanted a string")
    if has_half_character(value):
        raise CorpusError(f"{here}: {field!r} holds half a character (a lone surrogate); mend its escapes")
    return value


def has_half_character(text: str) -> bool:
    """Whether a text has a lone surrogate, which JSON can express and no encoding can write."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def zip_members(file: Path) -> dict[str, zipfile.Path]:
    """Map the name of each member of a zip, without folders and what systems hide, to the member; empty if there is no such zip file."""
    if not file.is_file():
        return {}
    try:
        with file.open("rb") as opened:
            end: list[int] = zipfile._EndRecData(opened) or [0] * 6  # type: ignore[attr-defined]
        if end[5] > MOST_DIRECTORY:
            raise CorpusError(
                f"{file} lists its members in {end[5]} bytes; wanted at most {MOST_DIRECTORY}, some ten thousand members; OPUS's have a few"
            )
        archive = zipfile.ZipFile(file)
        names = archive.namelist()
    except (*UNREADABLE, ValueError) as error:
        raise CorpusError(f"{file} is no zip file that can be read ({error}); download it again") from None
    files = [name for name in names if not (name.endswith("/") or is_hidden(PurePosixPath(name).name))]
    return {PurePosixPath(name).name: zipfile.Path(archive, name) for name in files}


def is_hidden(name: str) -> bool:
    """Whether a file has a system's notes, not text: macOS puts ._X with the resource fork beside X, and .DS_Store into folders."""
    return name.startswith("._") or name in (".DS_Store", "Thumbs.db", "desktop.ini")


@dataclass(frozen=True)
class OpusZip(Corpus[Pair]):
    """One download, of a corpus with any name. OPUS's codes may name a country: X.en-zh_cn.zh_cn is read as zh."""

    path: Path
    direction: Direction

    def read(self) -> Iterator[Pair]:
        check_file(self.path)
        members = zip_members(self.path)

        def side(code: str) -> zipfile.Path:
            ends = [name.rpartition(".")[2] for name in members if "." in name]
            means = matching(code, filter(is_tag, ends))
            named = [name for name in members if "." in name and name.rpartition(".")[2] in means]
            if len(named) != 1:
                raise CorpusError(
                    f"{self.path}: got {len(named)} files whose names end in .{code} ({', '.join(named) or ', '.join(members)}); wanted one"
                )
            return members[named[0]]

        yield from LineFiles(side(self.direction.source), side(self.direction.target)).read()


@dataclass(frozen=True)
class LineDocuments(Corpus[str]):
    """A file, plain or gzipped, with a document a line. Of `parts` shares, share `part` has lines part, part + parts, ..."""

    path: Path
    part: int = 1
    parts: int = 1

    def read(self) -> Iterator[str]:
        for number, line in enumerate(read_lines(self.path)):
            if number % self.parts == self.part - 1 and not is_blank(line):
                yield line


@dataclass(frozen=True)
class Notes(Corpus[str]):
    """A folder with a .txt (or .TXT) file for each document, subfolders included, read in the order of their paths."""

    folder: Path

    def read(self) -> Iterator[str]:
        if not (paths := self.paths()):
            raise CorpusError(self.missing())
        for path in paths:
            try:
                if path.stat().st_size > LINE_BYTES:
                    raise CorpusError(f"{path}: has more than {LINE_BYTES:,} bytes; cut it into notes")
                raw = _checked_start(path.read_bytes(), str(path))
                _check_ends(raw, str(path))
                text = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                raise CorpusError(
                    f"{path}: byte {error.start + 1} is not UTF-8 ({error.reason}); convert the file to UTF-8"
                ) from None
            except OSError as error:
                raise CorpusError(f"{path}: cannot be read ({error.strerror}); check its permissions") from error
            if not is_blank(text):
                yield text

    def paths(self) -> Sequence[Path]:
        """Return the documents' files; raise CorpusError if a folder cannot be listed, a subfolder is a link, or a .txt is no file."""
        return sorted(self._notes(), key=lambda path: path.relative_to(self.folder).as_posix())

    def _notes(self) -> Iterator[Path]:
        for folder, inner, names in os.walk(self.folder, onerror=_unlisted):
            for path in (Path(folder, name) for name in inner):
                if path.is_symlink():
                    raise CorpusError(f"{path}: is a link to a folder, which is not followed; put the folder itself here")
            for path in (Path(folder, name) for name in names if name.lower().endswith(".txt") and not is_hidden(name)):
                if not os.path.isfile(path):
                    raise CorpusError(f"{path}: is no file that can be read; mend the link or the permissions, or remove it")
                yield path

    def missing(self) -> str:
        if self.paths():
            return ""
        what = "holds no .txt file" if self.folder.is_dir() else "there is no such folder"
        return f"{self.folder}: {what}; wanted a folder with a .txt file for each document"


def _unlisted(error: OSError) -> None:
    """Raise CorpusError for a folder that exists and cannot be listed."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise CorpusError(f"{error.filename}: cannot be read ({error.strerror}); check the folder's permissions") from error
