"""Read what sites kept of their translations by round, as far as it lies in the run folder: in simulation it does."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedlingua.common.languages import written_sides
from fedlingua.desk.report.values import mapping, text, whole

FOLDER = "translations-by-round"
"""Of each site's folder."""


@dataclass(frozen=True)
class Sentence:
    """One dev sentence. translations: round -> what its model made of it."""

    source: str
    reference: str
    translations: dict[int, str]


@dataclass(frozen=True)
class Text:
    """A site's sentences, in order; a pooled site has several texts. name: of the site that the text is of."""

    site: str
    name: str
    direction: str
    sentences: list[Sentence]

    @property
    def source(self) -> str:
        """Code of the language that is translated."""
        return written_sides(self.direction)[0]

    @property
    def target(self) -> str:
        """Code of the language that it is translated into."""
        return written_sides(self.direction)[1]

    @property
    def rounds(self) -> list[int]:
        """All rounds that any sentence has."""
        return sorted({index for sentence in self.sentences for index in sentence.translations})


@dataclass(frozen=True)
class Translations:
    """asked: whether the run keeps any. note: why these are not all, or empty."""

    asked: bool
    texts: list[Text] = field(default_factory=list)
    note: str = ""


def read_translations(run_dir: Path, asked: bool, sites: Iterable[str] = ()) -> Translations:
    """What there is, in the order of `sites`."""
    found: dict[tuple[str, str], dict[int, Sentence]] = {}
    about: dict[tuple[str, str], str] = {}
    lost = 0
    for file in sorted(run_dir.glob(f"sites/*/{FOLDER}/*.jsonl")):
        for line in _lines(file):
            index, place = whole(line.get("round")), whole(line.get("sentence"))
            if index is None or place is None:
                lost += 1
                continue
            key = file.parent.parent.name, text(line.get("text"))
            about[key] = text(line.get("direction"))
            told = Sentence(text(line.get("source")), text(line.get("reference")), {})
            found.setdefault(key, {}).setdefault(place, told).translations[index] = text(line.get("translation"))
    texts = [
        Text(site, name, about[site, name], [sentences[place] for place in sorted(sentences)])
        for (site, name), sentences in found.items()
    ]
    places = {name: place for place, name in enumerate(sites)}
    texts.sort(key=lambda each: places.get(each.site, len(places)))
    return Translations(asked, texts, f"{lost} line(s) of kept translations cannot be read and are left out." if lost else "")


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    """Each line's object; an empty one of a line, or a file, that cannot be read."""
    try:
        lines = file.read_bytes().splitlines()
    except OSError:
        yield {}
        return
    for line in lines:
        try:
            yield mapping(json.loads(line))
        except ValueError:
            yield {}
