"""Moses downloads of OPUS: their names, and the two sides of a direction in them.

OPUS names a pair by its own codes of the two languages in alphabetical order, whichever is translated into which: the text of zh-en in
TED2020 is `TED2020.en-zh_cn.en` and `TED2020.en-zh_cn.zh_cn`, inside `en-zh_cn.txt.zip` (`TED2020_en-zh_cn.txt.zip` where several
corpora are kept in one folder).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fedlingua.common.errors import CorpusError
from fedlingua.common.languages import Direction
from fedlingua.corpora.opus import zip_members
from fedlingua.corpora.read import LineFiles


@dataclass(frozen=True)
class OpusCorpus:
    """One corpus of OPUS, or one whose files are called so elsewhere.

    name: as its files have it. codes: language code here -> OPUS's, where the two differ. zipped: whether its downloads are OPUS's zips.
    origin: where they come from, for a message.
    """

    name: str
    codes: Mapping[str, str] = field(default_factory=dict)
    zipped: bool = True
    origin: str = "OPUS in Moses format"

    def pairs(self, direction: Direction) -> list[str]:
        """What OPUS may call the pair: alphabetical first, then the other way about."""
        codes = sorted((self.code(direction.source), self.code(direction.target)))
        return ["-".join(codes), "-".join(reversed(codes))]

    def code(self, language: str) -> str:
        return self.codes.get(language, language)

    def sides(self, pair: str, direction: Direction) -> tuple[str, str]:
        """Names of the source's and the target's file."""
        return f"{self.name}.{pair}.{self.code(direction.source)}", f"{self.name}.{pair}.{self.code(direction.target)}"

    def zips(self, pair: str) -> tuple[str, ...]:
        return (f"{self.name}_{pair}.txt.zip", f"{pair}.txt.zip") if self.zipped else ()

    def wanted(self, direction: Direction) -> str:
        """The names that would do, for a message."""
        pair = self.pairs(direction)[0]
        zips = f"{' or '.join(self.zips(pair))}, or " if self.zipped else ""
        return f"{zips}{' and '.join(self.sides(pair, direction))} unpacked (also .gz)"


def find_all(corpus: OpusCorpus, directions: Iterable[Direction], folder: Path) -> dict[Direction, LineFiles]:
    """The two sides of every direction, in the folder or one below it that is named after the pair; CorpusError names all that lack."""
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
    for pair in corpus.pairs(direction):
        source, target = corpus.sides(pair, direction)
        for place in (folder, folder / pair):
            for suffix in ("", ".gz"):
                files = LineFiles(place / f"{source}{suffix}", place / f"{target}{suffix}")
                if files.source_path.is_file() and files.target_path.is_file():
                    yield files
            for name in corpus.zips(pair):
                members = zip_members(place / name)
                if {source, target} <= set(members):
                    yield LineFiles(members[source], members[target])
