"""What became of a sentence from round to round: which rounds are shown, and what each has otherwise than the one before."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from fedlingua.common.languages import without_spaces
from fedlingua.desk.report.translations import Sentence, Text

SHOWN_ROUNDS, SHOWN_SENTENCES = 5, 5
"""At most so many rounds, without the best one, and sentences of a site; the files have them all."""

Pieces = list[tuple[str, bool]]
"""In order, each with whether it is new; joined they are the sentence."""


@dataclass(frozen=True)
class Line:
    """One round's translation of a sentence. between: what stands between two pieces."""

    round: int
    is_best: bool
    pieces: Pieces
    between: str


def shown_rounds(rounds: Sequence[int], best: int | None) -> list[int]:
    """The first, the last, as many between as there is room for, evenly, and the best; rounds: ascending."""
    if len(rounds) <= SHOWN_ROUNDS:
        return list(rounds)
    steps = SHOWN_ROUNDS - 1
    chosen = {rounds[step * (len(rounds) - 1) // steps] for step in range(SHOWN_ROUNDS)}
    return sorted(chosen | {index for index in rounds if index == best})


def shown_lines(text: Text, sentence: Sentence, best: int | None) -> list[Line]:
    """The shown rounds of a sentence, each compared with the one above it."""
    between = "" if without_spaces(text.target) else " "
    lines: list[Line] = []
    before: str | None = None
    for index in shown_rounds(text.rounds, best):
        if index in sentence.translations:
            now = sentence.translations[index]
            lines.append(Line(index, index == best, changes(now if before is None else before, now, between), between))
            before = now
    return lines


def changes(before: str, now: str, between: str) -> Pieces:
    """The pieces of `now`, and which of them `before` has not, there; between: " " compares words, "" characters."""
    old, new = _units(before, between), _units(now, between)
    steps = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [(between.join(new[first:last]), what != "equal") for what, _, _, first, last in steps if last > first]


def _units(sentence: str, between: str) -> list[str]:
    """Words, or characters, each with the marks that are written on it."""
    if between:
        return sentence.split()
    units: list[str] = []
    for character in sentence:
        if units and unicodedata.category(character).startswith("M"):
            units[-1] += character
        else:
            units.append(character)
    return units
