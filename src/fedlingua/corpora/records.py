"""Pairs out of records with named fields: JSON lines, Parquet, and what the `datasets` library reads (a hub's dataset or a folder).

A side is a field of the record, or of its `translation`, as the hub's parallel datasets have it: {"translation": {"de": ..., "en": ...}}.
A field that is null is an empty side. Errors name file and line and never quote the text.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlingua.common.errors import ConfigError, CorpusError
from fedlingua.common.languages import Direction
from fedlingua.corpora.json_lines import check_text, read_objects
from fedlingua.corpora.read import Pair, on_one_line

NESTED = "translation"
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_ROWS = 1024


@dataclass(frozen=True)
class JsonPairs:
    """A file, plain or gzipped, with a JSON object a line. fields: the source's and the target's."""

    path: Path
    fields: tuple[str, str]


@dataclass(frozen=True)
class ParquetPairs:
    """A Parquet file, read by groups of rows. fields: columns, or members of the column `translation`."""

    path: Path
    fields: tuple[str, str]


@dataclass(frozen=True)
class Dataset:
    """A dataset of the hub, or a folder with files that `datasets` reads or has saved.

    folder: where `name` would lie under the data folder; it goes before the hub. subset, revision: "" for what the dataset itself says.
    """

    name: str
    folder: Path
    fields: tuple[str, str]
    subset: str = ""
    split: str = "train"
    revision: str = ""


def pair_fields(entry: Mapping[str, Any], direction: Direction, where: str) -> tuple[str, str]:
    """`fields` of an entry: the source's and the target's; the codes of the two languages where it says none.

    Raises:
        ConfigError: not two different names.
    """
    given = entry.get("fields", [direction.source, direction.target])
    if not isinstance(given, list) or [type(name) for name in given] != [str, str] or given[0] == given[1] or not all(given):
        raise ConfigError(f'{where}: fields = {given!r}; wanted two names, the source\'s and the target\'s, as in ["src", "tgt"]')
    return given[0], given[1]


def read_json_pairs(files: JsonPairs) -> Iterator[Pair]:
    """Yield a pair for every line that is not blank.

    Raises:
        CorpusError: as `read_lines`; a line that is no JSON object, or lacks a field; a field that is no text.
    """
    for here, record in read_objects(files.path, f"fields {_told(files.fields)}"):
        yield _pair(record, files.fields, here)


def read_parquet_pairs(files: ParquetPairs) -> Iterator[Pair]:
    """Yield a pair for every row.

    Raises:
        CorpusError: a missing or damaged file, a column that is not there or holds no text.
    """
    import pyarrow as pa  # takes a second to load, and few corpora come so
    from pyarrow import parquet

    if not files.path.is_file():
        raise CorpusError(f"{files.path}: there is no such file; check the path, or the folder given as data-dir")
    number = 0
    try:
        with parquet.ParquetFile(files.path) as table:
            columns = _columns(files, table.schema_arrow)
            for batch in table.iter_batches(batch_size=_ROWS, columns=columns):
                for record in batch.to_pylist():
                    number += 1
                    yield _pair(record, files.fields, f"{files.path}, row {number}")
    except UnicodeDecodeError:
        raise CorpusError(f"{files.path}, after row {number}: holds text that is not UTF-8; write it anew") from None
    except (pa.ArrowException, OSError, EOFError) as error:
        raise CorpusError(
            f"{files.path}, after row {number}: cannot be read ({type(error).__name__}); is it a whole Parquet file?"
        ) from None
    if number == 0:
        raise CorpusError(f"{files.path} is empty; a corpus needs at least one row")


def _columns(files: ParquetPairs, schema: Any) -> Sequence[str]:
    """The columns to be read: others can be wide."""
    if all(field in schema.names for field in files.fields):
        return files.fields
    if NESTED in schema.names:
        return [NESTED, *(field for field in files.fields if field in schema.names)]
    raise CorpusError(
        f"{files.path}: has no columns {_told(files.fields)}; got {', '.join(schema.names)}; name the two that hold the text with fields"
    )


def read_dataset(files: Dataset) -> Iterator[Pair]:
    """Yield a pair for every row; of the hub's datasets what is needed is fetched on the way.

    Raises:
        CorpusError: no such folder and no such dataset, subset or split; a row that lacks a field, or a field that is no text.
    """
    number = 0
    for number, record in enumerate(_rows(files), start=1):
        yield _pair(record, files.fields, f"dataset {files.name}, {files.split}, row {number}")
    if number == 0:
        raise CorpusError(f"dataset {files.name}: {files.split} is empty; a corpus needs at least one row")


def _rows(files: Dataset) -> Iterator[Any]:
    where, number = f"dataset {files.name}", 0
    rows = _loaded(files, where)
    try:
        for row in rows:
            number += 1
            yield row
    except Exception as error:  # whatever the library lets through of a file; its words can quote the text
        raise CorpusError(f"{where}: {files.split} cannot be read after row {number} ({type(error).__name__})") from None


def _loaded(files: Dataset, where: str) -> Iterable[Any]:
    import datasets  # takes seconds to load, and few corpora come so

    local = files.folder.is_dir()
    if not local and not _HUB_NAME.fullmatch(files.name):
        raise CorpusError(f"{where}: {files.folder}: there is no such folder, and the hub calls no dataset so; check the path")
    try:
        if local and any((files.folder / name).is_file() for name in ("dataset_dict.json", "state.json")):
            saved = datasets.load_from_disk(str(files.folder))
            rows: Iterable[Any] = saved[files.split] if isinstance(saved, datasets.DatasetDict) else saved
        else:
            rows = datasets.load_dataset(
                str(files.folder) if local else files.name,
                name=files.subset or None,
                split=files.split,
                revision=files.revision or None,
                streaming=True,
            )
    except Exception as error:  # of many types, from the hub's, the network's and the file formats' libraries
        there = "is a folder" if local else f"is no folder at {files.folder}, so the hub was asked"
        told = str(error).partition("\n")[0]
        raise CorpusError(f"{where} {there}, and cannot be loaded ({type(error).__name__}: {told})") from None
    return rows


def _pair(record: Mapping[str, Any], fields: tuple[str, str], here: str) -> Pair:
    return Pair(_side(record, fields[0], here), _side(record, fields[1], here))


def _side(record: Mapping[str, Any], field: str, here: str) -> str:
    inner = record.get(NESTED)
    holder = record if field in record or not isinstance(inner, Mapping) else inner
    if field not in holder:
        raise CorpusError(f"{here}: has no field {field!r}; name the two that hold the text with fields")
    text = holder[field]
    if text is None:
        return ""
    return on_one_line(check_text(text, field, here))


def _told(fields: Iterable[str]) -> str:
    return " and ".join(map(repr, fields))
