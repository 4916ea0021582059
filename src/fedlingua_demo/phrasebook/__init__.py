"""A phrase grammar: expresses drawn meanings in nine languages, in a base register and twelve others."""

import hashlib
import random

from . import germanic, lexicon, romance, slavic
from .abstract import Sentence
from .drawing import BASE, draw

__all__ = ["LANGUAGES", "REGISTERS", "base_corpus", "grammar_hash", "register_corpus"]

LANGUAGES: tuple[str, ...] = ("de", "nl", "sv", "fr", "es", "it", "pl", "cs", "sl")
REGISTERS: tuple[str, ...] = lexicon.registers()

_FAMILIES = dict.fromkeys(("de", "nl", "sv"), germanic.linearise)
_FAMILIES |= dict.fromkeys(("fr", "es", "it"), romance.linearise)
_FAMILIES |= dict.fromkeys(("pl", "cs", "sl"), slavic.linearise)

# Well below the number of meanings in the grammar, so that new ones are still found quickly.
_LARGEST_BASE = 200_000
_LARGEST_REGISTER = 50_000

# After so many draws in a row without a new meaning, the grammar is exhausted.
_PATIENCE = 5_000


def base_corpus(sentences: int, seed: int) -> dict[str, list[str]]:
    """Draw base sentences for each language; line i has the same meaning in all, and none comes twice."""
    return _corpus(BASE, sentences, seed, _LARGEST_BASE)


def register_corpus(register: str, sentences: int, seed: int) -> dict[str, list[str]]:
    """Draw sentences of one register, aligned like the base corpus; none is a base sentence."""
    if register not in REGISTERS:
        wanted = f"one of {', '.join(REGISTERS)}; name one of these, or call base_corpus"
        raise ValueError(f"unknown register: got {register!r}, wanted {wanted}")
    return _corpus(register, sentences, seed, _LARGEST_REGISTER)


def grammar_hash() -> str:
    """Return the SHA-256, in hex, of the package's source files: it changes whenever a sentence could."""
    digest = hashlib.sha256()
    for path in sorted(lexicon.FOLDER.iterdir(), key=lambda path: path.name):
        if path.suffix in (".py", ".toml"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _corpus(register: str, sentences: int, seed: int, largest: int) -> dict[str, list[str]]:
    if not 0 <= sentences <= largest:
        wanted = f"0 to {largest}; ask for a number the grammar can give"
        raise ValueError(f"register {register!r}: got {sentences} sentences, wanted {wanted}")
    rng = random.Random(seed)
    corpus: dict[str, list[str]] = {language: [] for language in LANGUAGES}
    seen: set[str] = set()
    misses = 0
    for done in range(sentences):
        while True:
            lines = _say(draw(register, rng))
            # Two meanings may not share a sentence, not even in one language.
            if seen.isdisjoint(lines.values()):
                break
            misses += 1
            if misses > _PATIENCE:
                wanted = f"{done} or fewer; ask for that, the grammar gives no more"
                got = f"register {register!r}: got {sentences} sentences"
                raise ValueError(f"{got}, wanted {wanted}")
        misses = 0
        seen.update(lines.values())
        for language, line in lines.items():
            corpus[language].append(line)
    return corpus


def _say(said: Sentence) -> dict[str, str]:
    return {language: _FAMILIES[language](language, said) for language in LANGUAGES}
