"""The scripts of a language, and how much of a sentence is written in them; names may be in other scripts."""

import functools
from collections.abc import Iterable, Iterator
from itertools import chain, islice

import regex

from fedlingua.common.errors import CorpusError
from fedlingua.common.languages import Direction, script_of, without_spaces
from fedlingua.corpora.read import Pair

_UNICODE = {
    script: tuple(names.split())
    for script, names in regex.findall(
        r"(\w+) ([^,]+)",
        "Hans Hani Bopo, Hant Hani Bopo, Hanb Hani Bopo, Hrkt Hira Kana, Jpan Hani Hira Kana, Kore Hang Hani, Jamo Hang, Aran Arab, "
        "Cyrs Cyrl, Geok Geor, Latf Latn, Latg Latn, Syre Syrc, Syrj Syrc, Syrn Syrc",
    )
}
"""ISO 15924 code of a script without a Unicode property -> codes of those that have one; other codes stand for themselves."""
_TWO_SCRIPTS = {"bs": ("Cyrl", "Latn"), "sr": ("Cyrl", "Latn"), "uz": ("Cyrl", "Latn")}
"""Languages commonly written in either of two scripts, if their code names none."""
_OTHER_CHINESE = {"Hans": "Hant", "Hant": "Hans"}
"""Unicode has one script, Han, for both; characters in only one of GB 2312 and Big5 distinguish them."""

FEWEST_LETTERS = 5
"""Fewest letters that are evidence of a script; fewer may be a name, a unit or an "OK"."""
_SAMPLE = 200
_LETTER = regex.compile(r"(?!\p{Script=Common}|\p{Script=Inherited})\p{L}")


def scripts_of(language: str) -> tuple[str, ...]:
    """Return the codes of the scripts that a language is written in: for zh both forms of Han, for zh-Hant one."""
    script = script_of(language)
    if script in _OTHER_CHINESE and "-" not in language:
        return _UNICODE[script]
    return _TWO_SCRIPTS.get(language, (script,))


def in_unicode(scripts: Iterable[str]) -> set[str]:
    """Map ISO 15924 codes to those of Unicode's script property."""
    return {each for script in scripts for each in _UNICODE.get(script, (script,))}


def script_share(sentence: str, language: str) -> float | None:
    """Return the share of a sentence's letters in the language's scripts, in [0, 1]; None if it has too few letters.

    A character of a language without spaces counts as three letters, since it carries as much meaning.
    """
    weight, scripts = 3 if without_spaces(language) else 1, scripts_of(language)
    own: float = len(_own(scripts).findall(sentence))
    others = len(_LETTER.findall(sentence)) - own
    if (script := scripts[0]) in _OTHER_CHINESE:
        here, there = (len(_only(each).intersection(sentence)) for each in (script, _OTHER_CHINESE[script]))
        foreign = own * there / max(here + there, 1)
        own, others = own - foreign, others + weight * foreign
    own *= weight
    return own / (own + others) if own + others >= FEWEST_LETTERS else None


@functools.cache
def _only(script: str) -> frozenset[str]:
    """Return the characters of simplified Chinese that traditional Chinese lacks, or the reverse, by their character sets."""
    own, other = ("gb2312", "big5") if script == "Hans" else ("big5", "gb2312")
    letters = map(chr, range(0x4E00, 0xA000))
    return frozenset(letter for letter in letters if letter.encode(own, "ignore") and not letter.encode(other, "ignore"))


@functools.cache
def _own(scripts: tuple[str, ...]) -> "regex.Pattern[str]":
    inside = "".join(rf"\p{{Script={script}}}" for script in sorted(in_unicode(scripts)))
    try:
        return regex.compile(rf"(?=\p{{L}})[{inside}]")
    except regex.error:  # Unicode has no characters of the script, such as Blis: any letter may stand for it
        return _LETTER


def in_order(pairs: Iterable[Pair], direction: Direction, where: str) -> Iterator[Pair]:
    """Yield the pairs unchanged; raise CorpusError if most of the first ones have each side in the other's script."""
    pairs, turned = iter(pairs), direction.reverse
    source, target = (scripts_of(language) for language in direction.sides)
    if _OTHER_CHINESE.get(source[0]) != target[0] and in_unicode(source) & in_unicode(target):
        return pairs
    first = list(islice(pairs, _SAMPLE))
    of_pairs = [[script_share(*of_side) or 0 for of_side in zip(pair, turned.sides, strict=True)] for pair in first]
    swapped = sum(min(shares) > 0.5 for shares in of_pairs)
    if 2 * swapped > len(first):
        raise CorpusError(
            f"{where}: of the first {len(first)} pairs {swapped} have {direction.source} written as {direction.target} is, and the other "
            f"way about; the two sides are swapped, so swap them back (columns = [1, 0], fields, or the direction {turned})"
        )
    return chain(first, pairs)
