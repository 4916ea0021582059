"""Which scripts a language is written in, and whether a sentence is: names and numbers of other scripts may stand in it."""

import functools
from collections.abc import Iterable, Iterator
from itertools import chain, islice

import regex

from fedlingua.corpora.read import Pair
from fedlingua.errors import CorpusError
from fedlingua.languages import WITHOUT_SPACES, Direction

_WRITTEN_IN = {
    "Cyrillic": "ba be bg kk mk mn ru uk",
    "Cyrillic Latin": "bs sr uz",
    "Arabic": "ar fa ps sd ur",
    "Hebrew": "he yi",
    "Devanagari": "hi mr ne",
    "Bengali": "bn",
    "Gujarati": "gu",
    "Gurmukhi": "pa",
    "Oriya": "or",
    "Sinhala": "si",
    "Kannada": "kn",
    "Malayalam": "ml",
    "Tamil": "ta",
    "Telugu": "te",
    "Greek": "el",
    "Armenian": "hy",
    "Georgian": "ka",
    "Ethiopic": "am",
    "Han Bopomofo": "zh",
    "Han Hiragana Katakana": "ja",
    "Hangul Han": "ko",
    "Thai": "th",
    "Lao": "lo",
    "Khmer": "km",
    "Myanmar": "my",
}
SCRIPTS: dict[str, tuple[str, ...]] = {
    code: tuple(scripts.split(" ")) for scripts, codes in _WRITTEN_IN.items() for code in codes.split(" ")
}
"""Language -> its scripts, by the names of Unicode; a language that is not here is written in Latin."""

FEWEST_LETTERS = 5
"""Less is no evidence: a name, a unit, an "OK"."""
_SAMPLE = 200
_LETTER = regex.compile(r"(?!\p{Script=Common}|\p{Script=Inherited})\p{L}")


def scripts_of(language: str) -> tuple[str, ...]:
    return SCRIPTS.get(language, ("Latin",))


def script_share(sentence: str, language: str) -> float | None:
    """Share of a sentence's letters that are in the language's scripts, in [0, 1]; None where it has too few letters to tell.

    A character of a language without spaces counts as three letters, since it says as much.
    """
    own = len(_own(scripts_of(language)).findall(sentence))
    others = len(_LETTER.findall(sentence)) - own
    own *= 3 if language in WITHOUT_SPACES else 1
    return own / (own + others) if own + others >= FEWEST_LETTERS else None


@functools.cache
def _own(scripts: tuple[str, ...]) -> "regex.Pattern[str]":
    inside = "".join(rf"\p{{Script={script}}}" for script in scripts)
    return regex.compile(rf"(?=\p{{L}})[{inside}]")


def in_order(pairs: Iterable[Pair], direction: Direction, where: str) -> Iterator[Pair]:
    """The same pairs, unless the first of them have each side in the other's script.

    Raises:
        CorpusError: swapped columns, or a direction the wrong way about.
    """
    pairs = iter(pairs)
    if set(scripts_of(direction.source)) & set(scripts_of(direction.target)):
        return pairs
    return chain(_checked(list(islice(pairs, _SAMPLE)), direction, where), pairs)


def _checked(first: list[Pair], direction: Direction, where: str) -> list[Pair]:
    turned = Direction(direction.target, direction.source)
    swapped = sum(_is_written(pair, turned) for pair in first)
    if 2 * swapped > len(first):
        raise CorpusError(
            f"{where}: of the first {len(first)} pairs {swapped} have {direction.source} written as {direction.target} is, and the other "
            f"way about; the two sides are swapped, so turn them (columns = [1, 0], fields, or the direction {turned})"
        )
    return first


def _is_written(pair: Pair, direction: Direction) -> bool:
    """Whether most of either side is in the script of its language."""
    shares = script_share(pair.source, direction.source), script_share(pair.target, direction.target)
    return all(share is not None and share > 0.5 for share in shares)
