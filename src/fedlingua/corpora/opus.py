"""Reader of OPUS downloads in Moses format: a zip with one file for each language, whose name ends in the language's code."""

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fedlingua.common.errors import CorpusError
from fedlingua.common.languages import Direction, matching
from fedlingua.corpora.read import UNREADABLE, Corpus, LineFiles, Pair, check_file


def zip_members(file: Path) -> dict[str, zipfile.Path]:
    """Map the name of each member of a zip, without folders, to the member; empty if there is no such zip file."""
    if not file.is_file():
        return {}
    try:
        names = zipfile.ZipFile(file).namelist()
    except (*UNREADABLE, ValueError) as error:
        raise CorpusError(f"{file} is no zip file that can be read ({error}); download it again") from None
    return {PurePosixPath(name).name: zipfile.Path(file, name) for name in names}


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
            means = matching(code, ends)
            named = [name for name in members if "." in name and name.rpartition(".")[2] in means]
            if len(named) != 1:
                raise CorpusError(
                    f"{self.path}: got {len(named)} files whose names end in .{code} ({', '.join(named) or ', '.join(members)}); wanted one"
                )
            return members[named[0]]

        yield from LineFiles(side(self.direction.source), side(self.direction.target)).read()
