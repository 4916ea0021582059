"""What is wrong with text that can be read all the same: it was decoded as what it was not, or a header is read as its first pair."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fedlingua.common.languages import Direction, is_tag, language_name, matching
from fedlingua.corpora.identify import check_columns
from fedlingua.corpora.read import Pair

_BYTES = {ord(bytes([byte]).decode("cp1252", "ignore") or chr(byte)): byte for byte in range(0x80, 0xA0)}
"""Character of Windows-1252 -> byte; a byte that is none of its characters is the control character that Latin-1 has there."""
_AFTER_WORDS = "…“”‘’»›–—\xa0"
_IN_REAL_TEXT = rf"(?:(?<=[A-ZÀ-Þ])[Â-ß]|(?<=\w)[à-ô])[{_AFTER_WORDS}]+(?!\w)|[Ä-ß][ŠŒŽšœžŸ]"
"""A letter at the end of a word and the marks after it, as in AMANHÃ… and voilà »; two letters of a word, as in PARÍŽ."""
_TWO_BYTES = re.compile(rf"(?!{_IN_REAL_TEXT})[Â-ô][\x80-\xbf{''.join(map(chr, _BYTES))}]")
"""The first two bytes of a character of UTF-8."""
_HEADINGS = "source src sl target tgt trg tl text sentence segment original translation language lang"


@dataclass
class Damage:
    """Counts of the damaged pairs of a corpus. twice: with UTF-8 that was read as Windows-1252 or Latin-1 and written anew; lost: with
    U+FFFD, which decoding puts in place of what it cannot read."""

    direction: Direction
    pairs: int = 0
    twice: int = 0
    lost: int = 0
    has_header: bool = False

    def over(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yield the pairs, from the first one of a file, and count."""
        for pair in pairs:
            self.has_header = self.has_header or (not self.pairs and is_header(pair, self.direction))
            self.pairs += 1
            self.twice += any(map(is_decoded_twice, pair))
            self.lost += any("\ufffd" in side for side in pair)
            yield pair

    def warnings(self, where: str) -> list[str]:
        """Return a sentence for each kind of damage that there is; begins with `where`, and quotes nothing."""
        twice = "have UTF-8 that was read as Windows-1252 or Latin-1 (Ã¼ for ü); export the text anew as UTF-8, or mend it"
        lost = "have U+FFFD in place of lost characters; export the text anew as UTF-8, since they cannot be restored"
        counted = [(self.twice, twice), (self.lost, lost)]
        header = f"{where}: the first row looks like a header; a run leaves it out"
        shares = [f"{where}: {n:,} of {self.pairs:,} lines ({n / self.pairs:.1%}) {what}" for n, what in counted if n]
        return [*shares, *([header] if self.has_header else [])]


def is_decoded_twice(sentence: str) -> bool:
    """Whether a sentence is UTF-8 that was read as Windows-1252 or Latin-1: all of it, as those encodings have it, is UTF-8.

    Real text with Ã or Â is not: after such a letter it has another one, and elsewhere letters that would be no UTF-8.
    """
    if sentence.isascii() or not _TWO_BYTES.search(sentence):
        return False
    try:
        sentence.translate(_BYTES).encode("latin-1").decode()
    except UnicodeError:
        return False
    return True


def is_header(pair: Pair, direction: Direction) -> bool:
    """Whether both sides of a pair are headings: `source` and `target`, or each its language's code or name, as in German or text_de."""
    return all(
        _is_heading(text.strip().casefold(), *of)
        for text, of in zip(pair, (direction.sides, direction.reverse.sides), strict=True)
    )


def _is_heading(text: str, language: str, other: str) -> bool:
    names = {language_name(language, written_in).casefold() for written_in in ("en", language, other)}
    words = re.findall(r"[^\W_]+", text)
    is_code = is_tag(text) and bool(matching(language, [text]))
    return text in names or is_code or (bool(words) and {*_HEADINGS.split(), *names, language.casefold()}.issuperset(words))


def doubts_about(pairs: Sequence[Pair], direction: Direction, where: str) -> list[str]:
    """Return what is doubtful about pairs: their languages, and damage. Raises CorpusError if the columns are swapped."""
    damage = Damage(direction)
    for _ in damage.over(pairs):
        pass
    return [*filter(None, [check_columns(pairs, direction, where)]), *damage.warnings(where)]
