"""Language identification with py3langid, which ships with its model, so that nothing is downloaded or sent."""

import functools
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from fedlingua.common.errors import CorpusError
from fedlingua.common.languages import Direction, language_name, plain_code, script_of, without_spaces
from fedlingua.corpora.scripts import in_unicode, script_share, scripts_of

FEWEST_CHARACTERS = 20
"""Shortest sentence to identify, since shorter ones give unreliable results; a third of it in languages without spaces."""
LOOKED_AT = 100
"""Most pairs of a corpus that `check_columns` samples. Hardly any pair of real text has each side in the other's language."""
_SCRIPTS = {
    "sr": ("Cyrl", "Latn"),
    "uz": ("Cyrl", "Latn"),
    "uzs": ("Arab",),
    "bs": ("Latn",),
    "crh": ("Latn",),
    "grc": ("Grek",),
    "hbo": ("Hebr",),
}
"""Scripts of the model's text in a language, where CLDR has another one, or one of the two, as the usual one."""
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
            f"{direction.reverse}, or columns = [1, 0]; where files, fields or tags are named by language, exchange their names"
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
    """Return the other language that a sentence is surely in; "" if none, if it is short, or if the model lacks `language` or the script
    of it that the sentence is in."""
    if len(sentence) * (3 if without_spaces(language) else 1) < FEWEST_CHARACTERS:
        return ""
    code, probability = load_identifier()[0].classify(sentence)
    other = plain_code(code)
    if probability < SURE or other == plain_code(language) or not is_identified(language):
        return ""
    return "" if any((script_share(sentence, each) or 0) > 0.5 for each in _unknown_forms(language)) else other


def is_identified(language: str) -> bool:
    """Whether the model knows a language in its script."""
    return bool(in_unicode(scripts_of(language)) & load_identifier()[1].get(plain_code(language), set()))


@functools.cache
def _unknown_forms(language: str) -> list[str]:
    """Return a language in those of its scripts, by CLDR, that the model lacks: pa-Arab for pa; none if its code says more than that."""
    from langcodes.data_dicts import LIKELY_SUBTAGS

    countries = [tag for tag in LIKELY_SUBTAGS if re.fullmatch(f"{re.escape(language)}-[A-Z]{{2}}", tag)]
    scripts = dict.fromkeys([*scripts_of(language), *map(script_of, countries)]) if "-" not in language else ()
    return [form for script in scripts if not is_identified(form := f"{language}-{script}")]


@functools.cache
def load_identifier() -> tuple[Any, dict[str, set[str]]]:
    """Return the identifier, and the languages that it knows, with the scripts; loading takes half a second."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    known = dict[str, set[str]]()
    for label in identifier.labels:
        known.setdefault(plain_code(label), set()).update(in_unicode(_SCRIPTS.get(label) or scripts_of(label)))
    return identifier, known
