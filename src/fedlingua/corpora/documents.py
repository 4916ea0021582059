"""Text in one language, document by document: a line each, a JSON object each, or a file each in a folder of notes.

A document of white space alone is none. Errors name file and line and never quote the text.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlingua.common.errors import ConfigError, CorpusError
from fedlingua.common.tables import check_options
from fedlingua.corpora.json_lines import check_text, read_objects
from fedlingua.corpora.read import LINE_BYTES, read_lines, spelled

DOCUMENT_OPTIONS = {"share": ("lines", "nway"), "field": ("jsonl",)}
"""Keys that say more of a corpus in one language -> the kinds that they go with."""
DOCUMENT_KEYS = frozenset({"lines", "jsonl", "notes", *DOCUMENT_OPTIONS})
"""Of an entry, for text in one language only."""


@dataclass(frozen=True)
class LineDocuments:
    """A file, plain or gzipped, whose every line is a document. Of `parts` shares this is number `part`: lines part, part + parts, ..."""

    path: Path
    part: int = 1
    parts: int = 1


@dataclass(frozen=True)
class JsonDocuments:
    """A file, plain or gzipped, with a JSON object a line; `field` names the document in it."""

    path: Path
    field: str = "text"


@dataclass(frozen=True)
class Notes:
    """A folder whose every .txt file, in subfolders too, is a document."""

    folder: Path


DocumentFiles = LineDocuments | JsonDocuments | Notes


def document_files(entry: Mapping[str, Any], language: str, where: str, data_dir: Path) -> DocumentFiles:
    """What an entry's `lines`, `jsonl`, `notes` or `nway` names, relative to the data directory.

    Raises:
        ConfigError: none of them or more than one, a share that is none, or a key that goes with another of them.
    """
    kinds = [kind for kind in ("lines", "jsonl", "notes", "nway") if kind in entry]
    if len(kinds) != 1:
        raise ConfigError(f"{where}: got {' and '.join(kinds) or 'no corpus'}; wanted one of lines, jsonl, notes, nway")
    kind = kinds[0]
    text = str(entry[kind])
    check_options(entry, kind, DOCUMENT_OPTIONS, where)
    if kind == "jsonl":
        return JsonDocuments(data_dir / text, str(entry.get("field", "text")))
    if kind == "notes":
        return Notes(data_dir / text)
    if kind == "nway" and text.count("{}") != 1:
        raise ConfigError(
            f"{where}: nway = {text!r} has no place for the language; write {{}} where it stands, as in dev.{{}}.txt.gz"
        )
    path = spelled(data_dir / text, language) if kind == "nway" else data_dir / text
    return LineDocuments(path, *_share(entry, where))


def _share(entry: Mapping[str, Any], where: str) -> tuple[int, int]:
    raw = entry.get("share", "1/1")
    numbers = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", raw) if isinstance(raw, str) else None
    part, parts = map(int, numbers.groups()) if numbers else (0, 0)
    if not 1 <= part <= parts:
        raise ConfigError(f"{where}: share = {raw!r}; wanted a part of all lines, from '1/7' to '7/7' for seven sites")
    return part, parts


def document_paths(files: DocumentFiles) -> list[Path]:
    """The files that documents are read from; of notes in the order of their paths inside the folder, none where there is no folder."""
    if not isinstance(files, Notes):
        return [files.path]
    found = (path for path in files.folder.rglob("*.txt") if path.is_file())
    return sorted(found, key=lambda path: path.relative_to(files.folder).as_posix())


def read_documents(files: DocumentFiles) -> Iterator[str]:
    """Yield the documents in the order of the file, or of the notes' paths.

    Raises:
        CorpusError: a missing file or folder, an empty one, bad UTF-8, a line that is no JSON object or has no text in the field.
    """
    if isinstance(files, Notes):
        found = _read_notes(files)
    elif isinstance(files, JsonDocuments):
        found = _read_json(files)
    else:
        lines = enumerate(read_lines(files.path))
        found = (line for number, line in lines if number % files.parts == files.part - 1)
    return (document for document in found if document.strip())


def _read_json(files: JsonDocuments) -> Iterator[str]:
    for here, found in read_objects(files.path, f"the text in {files.field!r}"):
        if files.field not in found:
            raise CorpusError(f"{here}: has no field {files.field!r}; name the one that holds the text with field")
        yield check_text(found[files.field], files.field, here)


def _read_notes(notes: Notes) -> Iterator[str]:
    paths = document_paths(notes)
    if not paths:
        raise CorpusError(no_notes(notes))
    for path in paths:
        try:
            if path.stat().st_size > LINE_BYTES:
                raise CorpusError(f"{path}: has more than {LINE_BYTES:,} bytes; cut it into notes")
            text = path.read_bytes().decode("utf-8-sig")  # as editors save it, with or without a mark of its encoding
        except UnicodeDecodeError as error:
            raise CorpusError(
                f"{path}: byte {error.start + 1} is not UTF-8 ({error.reason}); convert the file to UTF-8"
            ) from None
        except OSError as error:
            raise CorpusError(f"{path}: cannot be read ({error.strerror}); check who may read it") from error
        yield text


def no_notes(notes: Notes) -> str:
    """What is wrong with a folder without notes."""
    what = "holds no .txt file" if notes.folder.is_dir() else "there is no such folder"
    return f"{notes.folder}: {what}; wanted a folder with a .txt file for each document"
