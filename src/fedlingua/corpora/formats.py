"""Every form that parallel text may come in: what an entry of a federation file or a recipe says, and the pairs that are read of it.

    tsv = "X.tsv.gz"             two columns; columns = [1, 0] takes others, counted from 0
    moses = "X"                  X.de and X.fr, line by line
    nway = "dev.{}.txt.gz"       the same with the language in the middle
    opus = "de-fr.txt.zip"       a Moses download of OPUS as it comes
    tmx = "memory.tmx"           a translation memory
    jsonl = "X.jsonl.gz"         a JSON object a line; fields = ["src", "tgt"] where they are not called after the languages
    parquet = "X.parquet"        the same of columns
    dataset = "opus_books"       a dataset of the hub, or a folder, read by the `datasets` library; also fields, and subset = "de-fr",
                                 split = "train", revision = "..."

tsv, moses, nway, tmx and jsonl are read plain or gzipped. What comes is one stream of pairs, whatever the form.
"""

import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import Direction
from fedlingua.common.tables import check_options
from fedlingua.corpora.opus import OpusZip, read_download
from fedlingua.corpora.read import LineFiles, Pair, TsvFile, read_pairs, side_paths, spelled, tsv_columns
from fedlingua.corpora.records import (
    Dataset,
    JsonPairs,
    ParquetPairs,
    pair_fields,
    read_dataset,
    read_json_pairs,
    read_parquet_pairs,
)
from fedlingua.corpora.tmx import TmxFile, read_tmx

CorpusFiles = TsvFile | LineFiles | OpusZip | TmxFile | JsonPairs | ParquetPairs | Dataset

KINDS = ("tsv", "moses", "nway", "opus", "tmx", "jsonl", "parquet", "dataset")
OPTIONS = {
    "columns": ("tsv", "splits"),
    "fields": ("jsonl", "parquet", "dataset"),
    "subset": ("dataset",),
    "split": ("dataset",),
    "revision": ("dataset",),
}
"""Keys that say more of a corpus -> the kinds that they go with; splits: text that comes divided, see divided.py."""


def corpus_files(entry: Mapping[str, Any], direction: Direction, where: str, data_dir: Path) -> CorpusFiles:
    """What an entry names, relative to the data directory; opens nothing.

    Raises:
        ConfigError: none of the kinds, more than one, or a key that goes with another of them.
    """
    kinds = [kind for kind in KINDS if kind in entry]
    if len(kinds) != 1:
        raise ConfigError(f"{where}: got {' and '.join(kinds) or 'no corpus'}; wanted one of {', '.join(KINDS)}")
    kind = kinds[0]
    check_options(entry, kind, OPTIONS, where)
    text = str(entry[kind])
    match kind:
        case "tsv":
            return TsvFile(data_dir / text, *tsv_columns(entry, where))
        case "moses":
            return LineFiles(*side_paths(data_dir / text, direction))
        case "nway":
            if text.count("{}") != 1:
                raise ConfigError(
                    f"{where}: nway = {text!r} has no place for the language; write {{}} where it stands, as in dev.{{}}.txt.gz"
                )
            return LineFiles(*(spelled(data_dir / text, code) for code in (direction.source, direction.target)))
        case "opus":
            return OpusZip(data_dir / text, direction)
        case "tmx":
            return TmxFile(data_dir / text, direction)
        case "jsonl":
            return JsonPairs(data_dir / text, pair_fields(entry, direction, where))
        case "parquet":
            return ParquetPairs(data_dir / text, pair_fields(entry, direction, where))
        case _:
            said = {key: str(entry[key]) for key in ("subset", "split", "revision") if key in entry}
            return Dataset(text, data_dir / text, pair_fields(entry, direction, where), **said)


def read_corpus(files: CorpusFiles) -> Iterator[Pair]:
    """Yield the pairs as they stand, empty sides included, in the order of the file, holding no more than a few of them.

    Raises:
        CorpusError: what cannot be read, with file and line.
    """
    return _READERS[type(files)](files)


def file_paths(files: CorpusFiles) -> Sequence[Path | zipfile.Path]:
    """The files that have to be there; of a folder for `datasets` all in it, and of a hub's dataset none."""
    match files:
        case LineFiles():
            return [files.source_path, files.target_path]
        case Dataset():
            return sorted(path for path in files.folder.rglob("*") if path.is_file())
        case _:
            return [files.path]


_READERS: dict[type, Callable[[Any], Iterator[Pair]]] = {
    TsvFile: read_pairs,
    LineFiles: read_pairs,
    OpusZip: read_download,
    TmxFile: read_tmx,
    JsonPairs: read_json_pairs,
    ParquetPairs: read_parquet_pairs,
    Dataset: read_dataset,
}
