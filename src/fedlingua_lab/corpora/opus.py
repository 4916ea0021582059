"""Moses downloads of OPUS: their names, and the files of a direction's two sides.

OPUS names a pair by its own codes of the two languages in alphabetical order, whatever the direction: the text of zh-en in TED2020 is
`TED2020.en-zh_cn.en` and `TED2020.en-zh_cn.zh_cn`, inside `en-zh_cn.txt.zip` (`TED2020_en-zh_cn.txt.zip` if several corpora are stored
in one folder).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fedlingua.common.errors import CorpusError
from fedlingua.common.languages import Direction
from fedlingua.corpora.read import LineFiles, zip_members


@dataclass(frozen=True)
class OpusCorpus:
    """A corpus of OPUS, or another one whose files are named in the same way.

    name: its name in file names. codes: language code here -> OPUS's code, if they differ. zipped: whether its downloads are OPUS's zips.
    origin: where the downloads come from, for a message.
    """

    name: str
    codes: Mapping[str, str] = field(default_factory=dict)
    zipped: bool = True
    origin: str = "OPUS in Moses format"

    def names(self, direction: Direction) -> list[tuple[str, str, str]]:
        """Return the names that OPUS may give the pair, the alphabetical one first, each with its source's and target's file."""
        codes = [self.codes.get(language, language) for language in direction.sides]
        pairs = ("-".join(sorted(codes)), "-".join(sorted(codes, reverse=True)))
        return [(pair, f"{self.name}.{pair}.{codes[0]}", f"{self.name}.{pair}.{codes[1]}") for pair in pairs]

    def zips(self, pair: str) -> tuple[str, ...]:
        return (f"{self.name}_{pair}.txt.zip", f"{pair}.txt.zip") if self.zipped else ()

    def wanted(self, direction: Direction) -> str:
        """Return the names that would be accepted, for a message."""
        pair, source, target = self.names(direction)[0]
        zips = f"{' or '.join(self.zips(pair))}, or " if self.zipped else ""
        return f"{zips}{source} and {target} unpacked (also .gz)"


def find_all(corpus: OpusCorpus, directions: Iterable[Direction], folder: Path) -> dict[Direction, LineFiles]:
    """Return every direction's files, in the folder or in one inside it named after the pair; CorpusError names all that are missing."""
    files_of: dict[Direction, LineFiles] = {}
    missing = []
    for direction in directions:
        files = next(_candidates(corpus, direction, folder), None)
        if files is None:
            missing.append(f"  {direction}: {corpus.wanted(direction)}")
        else:
            files_of[direction] = files
    if missing:
        raise CorpusError(
            f"{folder} lacks {len(missing)} of {len(files_of) + len(missing)} pairs of {corpus.name}; "
            f"download them from {corpus.origin}, or check the folder:\n" + "\n".join(missing)
        )
    return files_of


def _candidates(corpus: OpusCorpus, direction: Direction, folder: Path) -> Iterator[LineFiles]:
    for pair, source, target in corpus.names(direction):
        for place in (folder, folder / pair):
            for suffix in ("", ".gz"):
                files = LineFiles(place / f"{source}{suffix}", place / f"{target}{suffix}")
                if files.source_path.is_file() and files.target_path.is_file():
                    yield files
            for name in corpus.zips(pair):
                members = zip_members(place / name)
                if {source, target} <= set(members):
                    yield LineFiles(members[source], members[target])
