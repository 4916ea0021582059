"""The translations that sites stored in the run folder by round, and the selection that a page shows."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import regex

from fedlingua.common.errors import FedlinguaError
from fedlingua.common.languages import without_spaces, written_sides
from fedlingua.desk.json_values import json_object, mapping, text, whole
from fedlingua.desk.report.read import Score
from fedlingua.desk.translating.site_translations import site_translations

FOLDER = "translations-by-round"
"""The folder of these translations inside each site's folder."""
SHOWN_ROUNDS, SHOWN_SENTENCES = 5, 5
"""The most rounds, besides the best one, and the most sentences of a site that a page shows; the files have all of them."""

EXAMPLES = 3
"""The number of a site's scored sentences that a page shows as translated by the base and by the site's model."""
MODELS = {0: "before", 1: "after"}
"""Labels of the two models in these examples; the key takes the place of a round."""

Pieces = list[tuple[str, bool]]
"""The pieces of a sentence in order, each with whether it is new."""


@dataclass(frozen=True)
class Sentence:
    """One sentence. translations: Round, or key in MODELS -> the translation by that model."""

    source: str
    reference: str
    translations: dict[int, str]


@dataclass(frozen=True)
class Text:
    """A site's sentences in order; a pooled site has several texts. name: The site of origin."""

    site: str
    name: str
    direction: str
    sentences: list[Sentence]

    @property
    def between(self) -> str:
        """The separator of two words, and so of two pieces, of a translation."""
        return "" if without_spaces(written_sides(self.direction)[1]) else " "

    @property
    def rounds(self) -> list[int]:
        """All rounds in which any sentence has a translation."""
        return sorted({index for sentence in self.sentences for index in sentence.translations})


def read_translations(run_dir: Path, sites: Iterable[str] = ()) -> tuple[list[Text], str]:
    """Return the stored texts, in the order of `sites`, and a note on lines that cannot be read."""
    by_place: dict[tuple[str, str], dict[int, Sentence]] = {}
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
            sentence = Sentence(text(line.get("source")), text(line.get("reference")), {})
            by_place.setdefault(key, {}).setdefault(place, sentence).translations[index] = text(line.get("translation"))
    texts = [
        Text(site, name, about[site, name], [sentences[place] for place in sorted(sentences)])
        for (site, name), sentences in by_place.items()
    ]
    places = {name: place for place, name in enumerate(sites)}
    texts.sort(key=lambda each: places.get(each.site, len(places)))
    return texts, f"{lost} line(s) of kept translations cannot be read and are left out." if lost else ""


def read_examples(run_dir: Path, scores: Iterable[Score]) -> list[Text]:
    """Return the first scored sentences of each site whose translations are in the run folder, as in a simulation."""
    texts = []
    for score in scores:
        try:
            written = site_translations(run_dir, Path(score.site).name, score.direction)
        except (FedlinguaError, OSError, ValueError):  # the page shows whatever can be read
            continue
        columns = (written.base.sources, written.base.references, written.base.hypotheses, written.hypothesis.hypotheses)
        lines = list(zip(*(column[:EXAMPLES] for column in columns), strict=True))
        sentences = [Sentence(source, reference, dict(enumerate(models))) for source, reference, *models in lines]
        texts.append(Text(score.site, score.site, score.direction, sentences))
    return texts


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    """Yield each line's JSON object; an empty one for an unreadable line or file."""
    try:
        yield from (mapping(json_object(line)) for line in file.read_bytes().splitlines())
    except OSError:
        yield {}


def shown_rounds(rounds: Sequence[int], best: int | None) -> list[int]:
    """Return SHOWN_ROUNDS evenly spaced rounds, including the first and the last, and the best one. rounds: Ascending."""
    if len(rounds) <= SHOWN_ROUNDS:
        return list(rounds)
    steps = SHOWN_ROUNDS - 1
    chosen = {rounds[step * (len(rounds) - 1) // steps] for step in range(SHOWN_ROUNDS)}
    return sorted(chosen | {index for index in rounds if index == best})


def shown_lines(text: Text, sentence: Sentence, best: int | None) -> dict[int, Pieces]:
    """Return shown round -> a sentence's translation, compared with the translation shown above it."""
    lines: dict[int, Pieces] = {}
    before: str | None = None
    for index in shown_rounds(text.rounds, best):
        if (now := sentence.translations.get(index)) is not None:
            lines[index] = changes(now if before is None else before, now, text.between)
            before = now
    return lines


def changes(before: str, now: str, between: str) -> Pieces:
    """Split `now` into pieces and mark those that `before` does not have there. between: " " compares words, "" characters."""
    old, new = _units(before, between), _units(now, between)
    steps = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [(between.join(new[first:last]), what != "equal") for what, _, _, first, last in steps if last > first]


def _units(sentence: str, between: str) -> list[str]:
    """Return the words of a sentence or, without a separator, its characters with their combining marks."""
    return sentence.split() if between else regex.findall(r"\P{M}\p{M}*|\p{M}+", sentence)
