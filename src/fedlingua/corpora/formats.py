"""Formats of text (docs/files.md): turn an entry of a federation file or a recipe into the corpus that it names.

A new format is a class and a line in PAIR_FORMATS or TEXT_FORMATS.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import Direction
from fedlingua.common.tables import check_options
from fedlingua.corpora.po import PoFile
from fedlingua.corpora.read import (
    AnyPath,
    Corpus,
    LineDocuments,
    LineFiles,
    Notes,
    OpusZip,
    Pair,
    PairDocuments,
    TsvFile,
    side_paths,
    spelled,
)
from fedlingua.corpora.records import Dataset, JsonDocuments, JsonPairs, ParquetPairs
from fedlingua.corpora.registers import read_register
from fedlingua.corpora.split import SPLITS, Split
from fedlingua.corpora.tmx import TmxFile


@dataclass(frozen=True)
class SplitFiles(Corpus[Pair]):
    """A file for each split, as `fedlingua corpus prepare` writes them; callers read each file themselves."""

    files: Mapping[Split, TsvFile]

    def paths(self) -> list[AnyPath]:
        return [file.path for file in self.files.values()]


@dataclass(frozen=True)
class Entry:
    """A table that names a corpus. name: the corpus's file, folder or dataset. where: the table's own place, for errors."""

    table: Mapping[str, Any]
    name: str
    direction: Direction
    where: str
    data_dir: Path

    @property
    def path(self) -> Path:
        return self.data_dir / self.name


@dataclass(frozen=True)
class Format:
    """A format of text. make: returns the corpus that an entry names, without opening it. options: further keys of the entry."""

    make: Callable[[Entry], Corpus[Any]]
    options: tuple[str, ...] = ()


def corpus_of(
    table: Mapping[str, Any], direction: Direction, where: str, data_dir: Path, formats: Mapping[str, Format] | None = None
) -> Corpus[Any]:
    """Return the corpus that a table names, relative to the data directory; opens nothing. formats: those allowed, if not all.

    Raises:
        ConfigError: the table names none of the formats or several, or has a key that belongs to another format.
    """
    formats = formats or formats_of(direction)
    named = [name for name in formats if name in table]
    if len(named) != 1:
        raise ConfigError(f"{where}: got {' and '.join(sorted(named)) or 'no corpus'}; wanted one of {listed(formats)}")
    check_options(table, named[0], options_of(formats), where)
    return formats[named[0]].make(Entry(table, str(table[named[0]]), direction, where, data_dir))


def formats_of(direction: Direction) -> Mapping[str, Format]:
    """Return the formats that text of a direction may have: of translated text, or of text in one language."""
    return TEXT_FORMATS if direction.is_one_language else PAIR_FORMATS


def options_of(formats: Mapping[str, Format]) -> dict[str, list[str]]:
    """Return every option of these formats, with the formats that it belongs to."""
    options = dict.fromkeys(option for form in formats.values() for option in form.options)
    return {option: [name for name, form in formats.items() if option in form.options] for option in options}


def listed(formats: Mapping[str, Format]) -> str:
    """Return the formats' names as a list in words, for a message."""
    *others, last = formats
    return f"{', '.join(others)} or {last}"


def _columns(entry: Entry) -> tuple[int, int]:
    columns = entry.table.get("columns", [0, 1])
    if not isinstance(columns, list) or [type(c) for c in columns] != [int, int] or min(columns) < 0 or columns[0] == columns[1]:
        raise ConfigError(
            f"{entry.where}: columns = {columns!r}; wanted two column numbers counted from 0 that differ, for example [0, 1]"
        )
    return columns[0], columns[1]


def _fields(entry: Entry) -> tuple[str, str]:
    """Return the fields of source and target; by default they are called like the two languages' codes."""
    given = entry.table.get("fields", [entry.direction.source, entry.direction.target])
    if not isinstance(given, list) or [type(name) for name in given] != [str, str] or given[0] == given[1] or not all(given):
        raise ConfigError(
            f'{entry.where}: fields = {given!r}; wanted two names, the source\'s and the target\'s, as in ["src", "tgt"]'
        )
    return given[0], given[1]


def _nway(entry: Entry) -> tuple[Path, Path]:
    if entry.name.count("{}") != 1:
        raise ConfigError(
            f"{entry.where}: nway = {entry.name!r} has no place for the language; write {{}} where it stands, as in dev.{{}}.txt.gz"
        )
    return spelled(entry.path, entry.direction.source), spelled(entry.path, entry.direction.target)


def _splits(entry: Entry) -> SplitFiles:
    if entry.name.count("{}") != 1:
        raise ConfigError(
            f"{entry.where}: splits = {entry.name!r} has no place for the split; write {{}} once, where train, dev and test stand"
        )
    columns = _columns(entry)
    return SplitFiles({split: TsvFile(entry.data_dir / entry.name.replace("{}", split), *columns) for split in SPLITS})


def _share(entry: Entry) -> tuple[int, int]:
    raw = entry.table.get("share", "1/1")
    numbers = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", raw) if isinstance(raw, str) else None
    part, parts = map(int, numbers.groups()) if numbers else (0, 0)
    if not 1 <= part <= parts:
        raise ConfigError(f"{entry.where}: share = {raw!r}; wanted a part of all lines, from '1/7' to '7/7' for seven sites")
    return part, parts


def _dataset(entry: Entry) -> Dataset:
    given = {key: str(entry.table[key]) for key in ("subset", "split", "revision") if key in entry.table}
    return Dataset(entry.name, entry.path, _fields(entry), **given)


def _in_documents(form: Format) -> Format:
    """Return a format of pairs that may name their documents' file."""

    def make(entry: Entry) -> Corpus[Pair]:
        pairs, file = form.make(entry), entry.table.get("documents")
        if file is None:
            return pairs
        if not isinstance(file, str):
            raise ConfigError(
                f"{entry.where}: documents = {file!r}; wanted a file that has the name of a pair's document in each line"
            )
        return PairDocuments(pairs, entry.data_dir / file, *_share(entry))

    return Format(make, (*form.options, "documents"))


_REGISTER = Format(lambda entry: read_register(entry.table, entry.direction, entry.where), ("sentences", "seed"))
_TABLE = Format(lambda entry: TsvFile(entry.path, *_columns(entry), *_share(entry)), ("columns", "share"))
FILE_FORMATS = {
    "tsv": _TABLE,
    "csv": _TABLE,
    "moses": Format(lambda entry: LineFiles(*side_paths(entry.path, entry.direction))),
    "nway": Format(lambda entry: LineFiles(*_nway(entry), *_share(entry)), ("share",)),
    "opus": Format(lambda entry: OpusZip(entry.path, entry.direction)),
    "tmx": Format(lambda entry: TmxFile(entry.path, entry.direction)),
    "po": Format(lambda entry: PoFile(entry.path)),
    "jsonl": Format(lambda entry: JsonPairs(entry.path, _fields(entry)), ("fields",)),
    "parquet": Format(lambda entry: ParquetPairs(entry.path, _fields(entry)), ("fields",)),
    "dataset": Format(_dataset, ("fields", "subset", "split", "revision")),
}
"""Formats of translated text that is not divided into splits."""
PAIR_FORMATS = {
    **{name: _in_documents(form) for name, form in FILE_FORMATS.items()},
    "splits": Format(_splits, ("columns",)),
    "phrasebook": _REGISTER,
}
"""Formats of translated text."""
TEXT_FORMATS = {
    "lines": Format(lambda entry: LineDocuments(entry.path, *_share(entry)), ("share",)),
    "jsonl": Format(lambda entry: JsonDocuments(entry.path, str(entry.table.get("field", "text"))), ("field",)),
    "notes": Format(lambda entry: Notes(entry.path)),
    "nway": Format(lambda entry: LineDocuments(_nway(entry)[0], *_share(entry)), ("share",)),
    "phrasebook": _REGISTER,
}
"""Formats of text in one language."""
