"""Which language a sentence is in, by py3langid: an optional library whose model comes with it, so nothing is fetched or sent."""

import functools
from typing import Any

from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import plain_code, without_spaces

FEWEST_CHARACTERS = 20
"""Of less the library knows little; a third of it, where a language is written without spaces."""
SURE = 0.9
"""Probability from which on another language is believed. On Tatoeba's and FLORES' sentences it then hardly ever errs."""


def is_other_language(sentence: str, language: str) -> bool:
    """Whether a sentence is surely in another language; one that is short, or of a language that the model has not, never is."""
    if len(sentence) * (3 if without_spaces(language) else 1) < FEWEST_CHARACTERS:
        return False
    identifier, known = load_identifier()
    code, probability = identifier.classify(sentence)
    return probability >= SURE and plain_code(code) != plain_code(language) and plain_code(language) in known


@functools.cache
def load_identifier() -> tuple[Any, frozenset[str]]:
    """The identifier and the languages that it knows; ConfigError where py3langid is not installed."""
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError as error:
        raise ConfigError(
            "telling languages apart (identify-language, off-target) needs the library py3langid: pip install -c constraints.txt -e "
            "'.[langid]'"
        ) from error
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    return identifier, frozenset(map(plain_code, identifier.labels))
