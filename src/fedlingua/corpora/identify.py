"""Which language a sentence is in, by py3langid, whose model comes with it, so nothing is fetched or sent."""

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any

from fedlingua.common.errors import CorpusError
from fedlingua.common.languages import Direction, language_name, plain_code, without_spaces

FEWEST_CHARACTERS = 20
"""Of less the library knows little; a third of it, where a language is written without spaces."""
LOOKED_AT = 100
"""Pairs of a corpus in which columns are told apart; of real text in any two languages hardly one has both sides in the other's."""
SURE = 0.9
"""Probability from which on another language is believed. On Tatoeba's and FLORES' sentences it then hardly ever errs."""


def check_columns(pairs: Sequence[tuple[str, str]], direction: Direction, where: str) -> str:
    """What language a column is in that should be in another, with the share of its lines; "" where most are as they should be.

    Raises:
        CorpusError: the columns are swapped. Begins with `where`.
    """
    some, sides = pairs[:: max(1, len(pairs) // LOOKED_AT)][:LOOKED_AT], (direction.source, direction.target)
    turned = (direction.target, direction.source)
    swapped = sum(all(map(_is_rather, pair, turned, sides)) for pair in some) / max(1, len(some))
    if swapped > 0.5:
        raise CorpusError(
            f"{where}: the columns are swapped: in {swapped:.0%} of {len(some)} pairs the {sides[0]} text is "
            f"{language_name(sides[1])} and the {sides[1]} text {language_name(sides[0])}; give the direction "
            f"{direction.reverse}, or columns = [1, 0]"
        )
    words = []
    for side, column in zip(sides, zip(*some, strict=True), strict=False):
        others = Counter(other_language(sentence, side) for sentence in column)
        del others[""]
        words += [
            f"{n / len(some):.0%} of the {side} lines are {language_name(code)}"
            for code, n in others.items()
            if 2 * n > len(some)
        ]
    advice = "check the file's columns and the direction; [cleaning] identify-language = true drops such lines"
    return f"{where}: {', '.join(words[: 1 if direction.is_one_language else 2])}; {advice}" if words else ""


def _is_rather(sentence: str, language: str, than: str) -> bool:
    """Whether a sentence is surely in the one language, where it can only be in one of two."""
    if len(sentence) * (3 if without_spaces(language) else 1) < FEWEST_CHARACTERS:
        return False
    ranked = load_identifier()[0].rank(sentence)
    one, other = (sum(share for code, share in ranked if plain_code(code) == plain_code(each)) for each in (language, than))
    return bool(one > SURE * (one + other) and other < one)


def other_language(sentence: str, language: str) -> str:
    """The other language that a sentence is surely in, if any; one that is short, or of a language that the model has not, has none."""
    if len(sentence) * (3 if without_spaces(language) else 1) < FEWEST_CHARACTERS:
        return ""
    identifier, known = load_identifier()
    code, probability = identifier.classify(sentence)
    other = plain_code(code)
    return other if probability >= SURE and other != plain_code(language) and plain_code(language) in known else ""


@functools.cache
def load_identifier() -> tuple[Any, frozenset[str]]:
    """The identifier and the languages that it knows; takes half a second to load."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    return identifier, frozenset(map(plain_code, identifier.labels))
