"""Readers of records with named fields: JSON lines, Parquet, and datasets of the `datasets` library (from the hub or a folder).

A side of a pair is a field of the record, or of its `translation`, as in the hub's parallel datasets: {"translation": {"de": ...,
"en": ...}}. A field that is null is an empty side.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlingua.common.errors import CorpusError
from fedlingua.common.visible import is_blank
from fedlingua.corpora.read import AnyPath, Corpus, Pair, check_file, check_text, empty, on_one_line, read_objects

NESTED = "translation"
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_ROWS = 1024


@dataclass(frozen=True)
class JsonPairs(Corpus[Pair]):
    """A file, plain or gzipped, with a JSON object a line. fields: names of the source's field and of the target's."""

    path: Path
    fields: tuple[str, str]

    def read(self) -> Iterator[Pair]:
        for here, record in read_objects(self.path, f"fields {_names(self.fields)}"):
            yield _pair(record, self.fields, here)


@dataclass(frozen=True)
class JsonDocuments(Corpus[str]):
    """A file, plain or gzipped, with a JSON object a line, whose `field` is the document."""

    path: Path
    field: str = "text"

    def read(self) -> Iterator[str]:
        for here, record in read_objects(self.path, f"the text in {self.field!r}"):
            if self.field not in record:
                raise CorpusError(f"{here}: has no field {self.field!r}; name the one that holds the text with field")
            if not is_blank(document := check_text(record[self.field], self.field, here)):
                yield document


@dataclass(frozen=True)
class ParquetPairs(Corpus[Pair]):
    """A Parquet file, read in batches of rows. fields: source and target, as columns or members of the column `translation`."""

    path: Path
    fields: tuple[str, str]

    def read(self) -> Iterator[Pair]:
        import pyarrow as pa  # takes a second to import, and few corpora need it
        from pyarrow import parquet

        check_file(self.path)
        number = 0
        try:
            with parquet.ParquetFile(self.path) as table:
                columns = self._columns(table.schema_arrow.names)
                for batch in table.iter_batches(batch_size=_ROWS, columns=columns):
                    for record in batch.to_pylist():
                        number += 1
                        yield _pair(record, self.fields, f"{self.path}, row {number}")
        except UnicodeDecodeError:
            raise CorpusError(f"{self.path}, after row {number}: holds text that is not UTF-8; convert it to UTF-8") from None
        except (pa.ArrowException, OSError, EOFError) as error:
            raise CorpusError(
                f"{self.path}, after row {number}: cannot be read ({type(error).__name__}); is it a whole Parquet file?"
            ) from None
        if number == 0:
            raise CorpusError(empty(self.path, "row"))

    def _columns(self, names: Sequence[str]) -> Sequence[str]:
        """Return the columns to read; the others are left out, since they can be wide."""
        if all(field in names for field in self.fields):
            return self.fields
        if NESTED in names:
            return [NESTED, *(field for field in self.fields if field in names)]
        raise CorpusError(
            f"{self.path}: has no columns {_names(self.fields)}; got {', '.join(names)}; name the two that hold the text with fields"
        )


@dataclass(frozen=True)
class Dataset(Corpus[Pair]):
    """A dataset of the hub, whose rows are streamed, or a folder with files that `datasets` reads or has saved.

    folder: `name` as a folder in the data folder; replaces the hub if it exists. subset, revision: "" for the dataset's default.
    """

    name: str
    folder: Path
    fields: tuple[str, str]
    subset: str = ""
    split: str = "train"
    revision: str = ""

    def read(self) -> Iterator[Pair]:
        number = 0
        try:
            for number, record in enumerate(self._loaded(), start=1):
                yield _pair(record, self.fields, f"dataset {self.name}, {self.split}, row {number}")
        except CorpusError:
            raise
        except Exception as error:  # the library raises many types, and their messages can quote the text
            raise CorpusError(
                f"dataset {self.name}: {self.split} cannot be read after row {number} ({type(error).__name__})"
            ) from None
        if number == 0:
            raise CorpusError(f"dataset {self.name}: {self.split} is empty; a corpus needs at least one row")

    def paths(self) -> Sequence[AnyPath]:
        """Return all files of a local folder; none for a dataset of the hub."""
        return sorted(path for path in self.folder.rglob("*") if path.is_file())

    def _loaded(self) -> Iterable[Any]:
        import datasets  # takes seconds to import, and few corpora need it

        where, local = f"dataset {self.name}", self.folder.is_dir()
        if not local and not _HUB_NAME.fullmatch(self.name):
            raise CorpusError(
                f"{where}: {self.folder}: there is no such folder, and the hub has no dataset of this name; check the path"
            )
        try:
            if local and any((self.folder / name).is_file() for name in ("dataset_dict.json", "state.json")):
                saved = datasets.load_from_disk(str(self.folder))
                rows: Iterable[Any] = saved[self.split] if isinstance(saved, datasets.DatasetDict) else saved
            else:
                rows = datasets.load_dataset(
                    str(self.folder) if local else self.name,
                    name=self.subset or None,
                    split=self.split,
                    revision=self.revision or None,
                    streaming=True,
                )
        except Exception as error:  # the hub, the network and the libraries of file formats raise many types
            there = "is a folder" if local else f"is no folder at {self.folder}, so the hub was asked"
            reason = str(error).partition("\n")[0]
            raise CorpusError(f"{where} {there}, and cannot be loaded ({type(error).__name__}: {reason})") from None
        return rows


def _pair(record: Mapping[str, Any], fields: tuple[str, str], here: str) -> Pair:
    return Pair(*(_side(record, field, here) for field in fields))


def _side(record: Mapping[str, Any], field: str, here: str) -> str:
    inner = record.get(NESTED)
    holder = record if field in record or not isinstance(inner, Mapping) else inner
    if field not in holder:
        raise CorpusError(f"{here}: has no field {field!r}; name the two that hold the text with fields")
    text = holder[field]
    return "" if text is None else on_one_line(check_text(text, field, here))


def _names(fields: Iterable[str]) -> str:
    return " and ".join(map(repr, fields))
