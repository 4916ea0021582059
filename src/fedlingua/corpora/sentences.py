"""Split a document into sentences by rules: which marks end a sentence, and where a full stop does not.

A newline always ends a sentence. An unambiguous mark (。 ？ । ؟) ends one anywhere; a full stop and similar marks do so only before
white space followed by something that can begin a sentence. In doubt, two sentences stay together, which does not harm training.

The rules are the project's own, because results depend on them: sentencex splits 236 of 750 Spanish case reports differently
("8 Kgs. | aproximadamente", while it joins two lines of a note); pysbd splits 11 of 60 differently, at a fraction of the speed.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import regex

from fedlingua.common.languages import plain_code, without_spaces

_HARD = "。！？｡।॥؟។៕။።፧"
_SOFT = ".!?…۔։"
_QUOTES = "\"'”’»›)\\]}」』】）》〉"
_CLOSING = rf"(?:[{_QUOTES}“‘«‹]|[ \u00a0\u202f]»(?=\s|$))*"  # every quote closes in some language, and French has a space before
_OPENING = "\"'“‘”„‚«»‹›([{¿¡–—-•*·「『【（《〈"
_END = rf"[{_SOFT}]*[{_HARD}][{_SOFT}{_HARD}]*[{_QUOTES}]*|[{_SOFT}]+{_CLOSING}(?=\s|$)"
_FIRST = re.compile(rf"\s*[{re.escape(_OPENING)} ]*(.?)", re.DOTALL)
_MARK = re.compile(_END)
_MARK_WITHOUT_SPACES = re.compile(rf"{_END}|[!?]+[{_QUOTES}]*(?=[^\x00-\x7f])")
_GREEK_MARK = re.compile(rf"{_END}|[;\u037e](?=\s|$)")

_NEVER_LAST = {
    "": "dr prof st vs cf",
    "cs": "doc ing mgr mudr např phdr rndr tzv",
    "de": "bzw dipl evtl exkl ggf hr inkl med sog vgl",
    "en": "jr messrs mr mrs ms rev sr",
    "es": "dña dra dres ing lic profa sr sra sres srta ud uds vd vds",
    "fr": "mlle mm mme pr ste",
    "hi": "डॉ",
    "it": "avv dott dott.ssa ing sig sig.ra",
    "nl": "bijv dhr drs ing ir mevr mr",
    "pl": "hab inż lek mgr np tzw ul",
    "pt": "dra exma exmo profa sr sra",
    "ru": "им проф ул",
    "tr": "av doç sn",
}
"""Abbreviations that never end a sentence, by language; "": in all languages."""
_BEFORE_NUMBERS = (
    "al approx aprox art ca cap ch env eq fig figs no nos nr num núm nº p pag pp pág págs ref refs sec tab vol рис стр табл"
)
"""Abbreviations whose full stop ends no sentence if a number follows; without one they can be a sentence's last word."""
_ORDINAL_DOT = "bs cs da de et fi hr hu is lb lv no pl sk sl sr tr"
"""Languages that write "3." for "third": one or two digits and a full stop do not end a sentence before a letter."""
_LOWER_CASE_ALONE = frozenset({"ka"})
"""Languages whose letters all count as lower case, so that case says nothing about where a sentence begins."""


def split_sentences(document: str, language: str, max_words: int = 0) -> list[str]:
    """Return the non-empty sentences of a document in order; each run of white space inside one becomes one space.

    max_words: longer sentences are cut into even pieces of at most so many words (characters in languages written without
    spaces), so that no cleaning rule drops them as too long; 0: never cut.
    """
    sentences = (" ".join(sentence.split()) for line in document.split("\n") for sentence in _of_line(line, language))
    return [piece for sentence in sentences if sentence for piece in _wrapped(sentence, language, max_words)]


def _of_line(line: str, language: str) -> Iterator[str]:
    marks = _MARK_WITHOUT_SPACES if without_spaces(language) else _GREEK_MARK if plain_code(language) == "el" else _MARK
    start = 0
    for mark in marks.finditer(line):
        stands_alone = not set(mark[0]).isdisjoint(_HARD) or not line[mark.end() : mark.end() + 1].isspace()
        if stands_alone or _is_end(line, start, mark, language):
            yield line[start : mark.end()]
            start = mark.end()
    yield line[start:]


def _is_end(line: str, start: int, mark: re.Match[str], language: str) -> bool:
    """Whether a mark that can also occur inside a sentence, which begins at `start`, ends it."""
    # Positions, not slices: copies of the rest of a line at each mark take time that grows with the square of its length.
    after = _FIRST.match(line, mark.end())
    assert after is not None
    first = after[1]
    if first and (not first.isalnum() or (first.islower() and plain_code(language) not in _LOWER_CASE_ALONE)):
        return False
    return mark[0] != "." or not first or not _goes_on(line, start, mark.start(), first, language)


def _goes_on(line: str, start: int, stop: int, first: str, language: str) -> bool:
    """Whether the full stop at `stop` belongs to the word before it; first: the first letter or digit after it."""
    begin = stop
    while begin > start and line[begin - 1] != "/" and not line[begin - 1].isspace():
        begin -= 1
    word = line[begin:stop].lstrip(_OPENING).casefold()
    if word.isdigit():
        # "1. Aspirin" at the beginning is a number of a list, in every language.
        return line[start:stop].strip() == word or (
            plain_code(language) in _ORDINAL_DOT.split() and len(word) <= 2 and first.isalpha()
        )
    is_initial = len(word) == 1 and word.isalpha() and word.lower() != word.upper()
    if is_initial or re.fullmatch(r"(?:[^\W\d_]\.)+[^\W\d_]", word):  # J. Smith; e.g., z.B., U.S.
        return True
    if first.isdigit() and word in _BEFORE_NUMBERS.split():
        return True
    return word in _NEVER_LAST[""].split() or word in _NEVER_LAST.get(plain_code(language), "").split()


def _wrapped(sentence: str, language: str, max_words: int) -> list[str]:
    """Cut a long sentence into even pieces, so that a cleaning rule drops none as too short."""
    # A character has its combining marks and the space before it with it.
    units: list[str] = regex.findall(r" ?.\p{M}*", sentence) if without_spaces(language) else sentence.split()
    lengths = [len(unit.replace(" ", "")) if without_spaces(language) else 1 for unit in units]
    if not max_words or sum(lengths) <= max_words:
        return [sentence]
    joint = "" if without_spaces(language) else " "
    return [joint.join(units[start:end]).strip() for start, end in pairwise(_cuts(lengths, max_words))]


def _cuts(lengths: Sequence[int], most: int) -> list[int]:
    """Return where to cut a row of units, both ends included: the fewest pieces of at most `most` each, as even as possible."""
    reached = [0, *accumulate(lengths)]
    for pieces in range(math.ceil(reached[-1] / most), len(lengths)):
        cuts = [bisect_right(reached, number * reached[-1] / pieces) - 1 for number in range(pieces)] + [len(lengths)]
        if all(0 < reached[end] - reached[start] <= most for start, end in pairwise(cuts)):
            return cuts
    return list(range(len(lengths) + 1))
