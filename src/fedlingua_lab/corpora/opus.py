"""Moses downloads of OPUS: their names, and the files of a direction's two sides.

OPUS names a pair by its own codes of the two languages in alphabetical order, whatever the direction: the text of zh-en in TED2020 is
`TED2020.en-zh_cn.en` and `TED2020.en-zh_cn.zh_cn`, inside `en-zh_cn.txt.zip` (`TED2020_en-zh_cn.txt.zip` if several corpora are stored
in one folder).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedlingua.common.errors import CorpusError
from fedlingua.common.languages import Direction
from fedlingua.corpora.read import LineFiles, zip_members
from fedlingua.corpora.sizes import Sizes


@dataclass(frozen=True)
class OpusCorpus:
    """A corpus of OPUS, or another one whose unpacked files are named in the same way.

    name: As in file names. sizes: Of each direction's splits; None: a hundredth of each split's lines. codes: Language -> OPUS's code, if
    they differ. origin: Where the files come from if not from OPUS.
    """

    name: str
    sizes: Mapping[Direction, Sizes | None]
    codes: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""


def find_all(corpus: OpusCorpus, folder: Path) -> dict[Direction, LineFiles]:
    """Return every direction's files, in the folder or in one inside it named after the pair; CorpusError names all that are missing."""
    files_of: dict[Direction, LineFiles] = {}
    missing = []
    for direction in corpus.sizes:
        codes = [corpus.codes.get(language, language) for language in direction.sides]
        pair = "-".join(sorted(codes))
        names = [f"{corpus.name}.{pair}.{code}" for code in codes]
        zips = [] if corpus.origin else [f"{corpus.name}_{pair}.txt.zip", f"{pair}.txt.zip"]
        if files := next((files for place in (folder, folder / pair) for files in _candidates(place, names, zips)), None):
            files_of[direction] = files
        else:
            missing.append(
                f"  {direction}: {' or '.join(zips)}{', or ' if zips else ''}{' and '.join(names)} unpacked (also .gz)"
            )
    if missing:
        raise CorpusError(
            f"{folder} lacks {len(missing)} of {len(corpus.sizes)} pairs of {corpus.name}; download them from "
            f"{corpus.origin or 'OPUS in Moses format'}, or check the folder:\n" + "\n".join(missing)
        )
    return files_of


def _candidates(place: Path, names: Sequence[str], zips: Sequence[str]) -> Iterator[LineFiles]:
    for suffix in ("", ".gz"):
        source, target = (place / f"{name}{suffix}" for name in names)
        if source.is_file() and target.is_file():
            yield LineFiles(source, target)
    for name in zips:
        members = zip_members(place / name)
        if members.keys() >= set(names):
            yield LineFiles(members[names[0]], members[names[1]])
