"""Language identification with py3langid, which ships with its model, so that nothing is downloaded or sent."""

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any

from fedlingua.common.errors import CorpusError
from fedlingua.common.languages import Direction, language_name, plain_code, without_spaces

FEWEST_CHARACTERS = 20
"""Shortest sentence to identify, since shorter ones give unreliable results; a third of it in languages without spaces."""
LOOKED_AT = 100
"""Most pairs of a corpus that `check_columns` samples. Hardly any pair of real text has each side in the other's language."""
SURE = 0.9
"""Least probability for an identification to count; with it, errors on the sentences of Tatoeba and FLORES are very rare."""


def check_columns(pairs: Sequence[tuple[str, str]], direction: Direction, where: str) -> str:
    """Describe columns that are mostly in another language than they should be, with the share of such lines; "" if none is.

    Raises:
        CorpusError: the columns are swapped. Begins with `where`.
    """
    some, sides = pairs[:: max(1, len(pairs) // LOOKED_AT)][:LOOKED_AT], direction.sides
    swapped = sum(all(map(_is_rather, pair, direction.reverse.sides, sides)) for pair in some) / max(1, len(some))
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
    """Whether a sentence is surely in `language`, given that it is in `language` or in `than`."""
    if len(sentence) * (3 if without_spaces(language) else 1) < FEWEST_CHARACTERS:
        return False
    ranked = load_identifier()[0].rank(sentence)
    one, other = (sum(share for code, share in ranked if plain_code(code) == plain_code(each)) for each in (language, than))
    return bool(one > SURE * (one + other) and other < one)


def other_language(sentence: str, language: str) -> str:
    """Return the other language that a sentence is surely in; "" if none, if it is short, or if the model lacks `language`."""
    if len(sentence) * (3 if without_spaces(language) else 1) < FEWEST_CHARACTERS:
        return ""
    code, probability = load_identifier()[0].classify(sentence)
    other = plain_code(code)
    return other if probability >= SURE and other != plain_code(language) and is_identified(language) else ""


def is_identified(language: str) -> bool:
    """Whether the model knows a language."""
    return plain_code(language) in load_identifier()[1]


@functools.cache
def load_identifier() -> tuple[Any, frozenset[str]]:
    """Return the identifier and the languages that it knows; loading takes half a second."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    return identifier, frozenset(map(plain_code, identifier.labels))
