"""Documents in one language: one on each line of a file, or one in each file of a folder. Blank documents are skipped."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedlingua.common.errors import CorpusError
from fedlingua.corpora.read import LINE_BYTES, Corpus, read_lines


@dataclass(frozen=True)
class LineDocuments(Corpus[str]):
    """A file, plain or gzipped, with a document a line. Of `parts` shares, share `part` has lines part, part + parts, ..."""

    path: Path
    part: int = 1
    parts: int = 1

    def read(self) -> Iterator[str]:
        for number, line in enumerate(read_lines(self.path)):
            if number % self.parts == self.part - 1 and line.strip():
                yield line


@dataclass(frozen=True)
class Notes(Corpus[str]):
    """A folder with a .txt file for each document, subfolders included, read in the order of their paths."""

    folder: Path

    def read(self) -> Iterator[str]:
        if not (paths := self.paths()):
            raise CorpusError(self.missing())
        for path in paths:
            try:
                if path.stat().st_size > LINE_BYTES:
                    raise CorpusError(f"{path}: has more than {LINE_BYTES:,} bytes; cut it into notes")
                text = path.read_bytes().decode("utf-8-sig")  # with or without the byte order mark that some editors write
            except UnicodeDecodeError as error:
                raise CorpusError(
                    f"{path}: byte {error.start + 1} is not UTF-8 ({error.reason}); convert the file to UTF-8"
                ) from None
            except OSError as error:
                raise CorpusError(f"{path}: cannot be read ({error.strerror}); check its permissions") from error
            if text.strip():
                yield text

    def paths(self) -> Sequence[Path]:
        there = (path for path in self.folder.rglob("*.txt") if path.is_file())
        return sorted(there, key=lambda path: path.relative_to(self.folder).as_posix())

    def missing(self) -> str:
        if self.paths():
            return ""
        what = "holds no .txt file" if self.folder.is_dir() else "there is no such folder"
        return f"{self.folder}: {what}; wanted a folder with a .txt file for each document"
