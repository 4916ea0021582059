"""Cleaning: named rules, the paper's among them, that decide which pairs are kept, and a count of the pairs that each rule drops.

In text in one language, a sentence is a pair of itself with itself and counts as one sentence.
"""

import math
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fedlingua.common.errors import ConfigError, CorpusError
from fedlingua.common.languages import Direction, without_spaces
from fedlingua.common.tables import fill
from fedlingua.common.visible import as_seen, trimmed
from fedlingua.corpora.damage import is_header
from fedlingua.corpora.identify import other_language
from fedlingua.corpora.read import Pair
from fedlingua.corpora.scripts import in_order, script_share

RULES = (
    "header",
    *["empty", "too-short", "too-long", "ratio", "control-characters", "identical", "script", "language", "duplicate"],
)
"""Reasons for which cleaning rules drop a pair; only the first that holds, in this order, is counted. header: the first pair, if it
names the columns."""
REASONS = (*RULES, "not-deidentified", "in-train", "trained-elsewhere")
"""not-deidentified: the site's hook failed on the sentence's document. in-train: the pair is in dev or test and also in train,
or in dev and also in test. trained-elsewhere: the pair is in dev or test, and another site trains on it (corpora/overlap.py)."""


@dataclass(frozen=True)
class CleaningRules:
    """The rules of cleaning. Lengths are in words, or in characters for languages written without spaces.

    `min_words = 2` is the rule of Liu et al. 2023's code: both sides have more than one word. max_ratio: most characters of one
    side per character of the other; multiplied by 3 if only one side is in a language without spaces, since one of its characters
    stands for about three letters of other languages. 0 disables a rule.

    drop_control_characters: drop pairs that contain a character of Unicode class Cc other than TAB, such as NUL, VT or NEL.
    drop_identical: drop pairs with equal sides. min_script_share: least share of each side's letters in the scripts of its
    language; 0.25 allows for names and terms. identify_language: drop pairs with a side that is surely in another language.
    normalize: Unicode form to which text is converted before all rules. strict: the first pair that a rule would drop is an error.
    """

    min_words: int = 2
    max_words: int = 200
    max_ratio: float = 6.0
    drop_duplicates: bool = True
    drop_control_characters: bool = False
    drop_identical: bool = False
    min_script_share: float = 0.0
    identify_language: bool = False
    normalize: Literal["off", "NFC", "NFKC"] = "off"
    strict: bool = False


def read_cleaning(raw: Mapping[str, Any], where: str) -> CleaningRules:
    """Read the rules of a [cleaning] table; raise ConfigError for a number that makes a rule meaningless or drops everything."""
    rules = fill(CleaningRules, raw, where)
    if rules.min_words < 0:
        raise ConfigError(f"{where}: min-words = {rules.min_words}; wanted 0 or above, 0 for no such rule")
    if rules.max_words and rules.max_words < max(rules.min_words, 1):
        raise ConfigError(
            f"{where}: max-words = {rules.max_words} would keep no sentence; wanted min-words = {rules.min_words} or more, or 0 for no rule"
        )
    if rules.max_ratio and not 1 <= rules.max_ratio < math.inf:
        raise ConfigError(
            f"{where}: max-ratio = {rules.max_ratio:g}; wanted 1 (sides equally long) or above, or 0 for no such rule"
        )
    if not 0 <= rules.min_script_share <= 1:
        raise ConfigError(
            f"{where}: min-script-share = {rules.min_script_share:g} is not a share; wanted 0 to 1, 0 for no such rule"
        )
    return rules


@dataclass
class Account:
    """Counts of the pairs read, kept and dropped (by reason); always `read == kept + sum(dropped.values())`.

    failed_documents: number of documents on which the de-identification hook failed, by type of failure. Their sentences, if
    the raw text has any, are counted as dropped with the reason not-deidentified.
    """

    read: int = 0
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    failed_documents: dict[str, int] = field(default_factory=dict)

    def drop(self, reason: str, count: int = 1) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + count

    def take_back(self, reason: str, count: int) -> None:
        """Move pairs from kept to dropped."""
        if count:
            self.kept -= count
            self.drop(reason, count)

    def __add__(self, other: "Account") -> "Account":
        dropped, failed = _added(self.dropped, other.dropped), _added(self.failed_documents, other.failed_documents)
        return Account(self.read + other.read, self.kept + other.kept, dropped, failed)

    def check(self, where: str, unit: str = "pairs", files: Sequence[Any] = ()) -> None:
        """Raise CorpusError if nothing was read, or nothing kept. files: those that were read, if `where` does not name them."""
        assert self.read == self.kept + sum(self.dropped.values()), f"{where}: {self}"
        if self.read == 0:
            source = f" from {files[0]}{f' and {len(files) - 1} more' if len(files) > 1 else ''}" if files else ""
            raise CorpusError(f"{where}: got no {unit}{source}: the text, or its share, is empty; give a file with text")
        if self.kept == 0:
            reasons = ", ".join(f"{reason} {count}" for reason, count in self.dropped.items())
            raise CorpusError(
                f"{where}: none of {self.read} {unit} was kept ({reasons}); relax the cleaning rules or check the languages"
            )


def _added(counts: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {key: counts.get(key, 0) + other.get(key, 0) for key in dict.fromkeys([*counts, *other])}


def clean(
    pairs: Iterable[Pair], direction: Direction, rules: CleaningRules, account: Account, where: str = "the corpus"
) -> Iterator[Pair]:
    """Yield the pairs that every rule keeps, stripped of outer white space; `account` counts the others by reason.

    Raises:
        CorpusError: the scripts show that the sides are swapped, or strict `rules` would drop a pair. Begins with `where`.
    """
    return usable(normalized(in_order(pairs, direction, where), rules), judge(direction, rules, where), account)


def normalized(pairs: Iterable[Pair], rules: CleaningRules) -> Iterable[Pair]:
    """Return the pairs in the Unicode form that the rules name, if any."""
    form = rules.normalize
    if form == "off":
        return pairs
    return (Pair(unicodedata.normalize(form, pair.source), unicodedata.normalize(form, pair.target)) for pair in pairs)


def judge(direction: Direction, rules: CleaningRules, where: str = "the corpus") -> Callable[[Pair], str | None]:
    """Return a function that gives the reason to drop a stripped pair, or None; it remembers pairs, to drop the second of two equal ones,
    as `as_seen` compares sentences.

    With strict `rules`, that function raises CorpusError instead of giving a reason.
    """
    seen: set[Pair] = set()
    number = 0

    def reason(pair: Pair) -> str | None:
        nonlocal number
        number += 1
        why = "header" if number == 1 and is_header(pair, direction) else fault(pair, direction, rules)
        if why is None and rules.drop_duplicates:
            compared = seen_pair(pair)
            why = "duplicate" if compared in seen else None
            seen.add(compared)
        if why is not None and rules.strict:
            unit = "sentence" if direction.is_one_language else "pair"
            raise CorpusError(
                f"{where}: {unit} {number} would be dropped ({why}), and cleaning is strict; mend it, or turn the rule or strict off"
            )
        return why

    return reason


def usable(pairs: Iterable[Pair], reason: Callable[[Pair], str | None], account: Account) -> Iterator[Pair]:
    """Yield the pairs that `reason` does not drop, stripped of outer white space."""
    return (pair for pair, against in judged(pairs, reason, account) if against is None)


def judged(pairs: Iterable[Pair], reason: Callable[[Pair], str | None], account: Account) -> Iterator[tuple[Pair, str | None]]:
    """Yield every pair, stripped of outer white space, and the reason to drop it, None if it is kept; `account` counts both."""
    for raw in pairs:
        pair = stripped(raw)
        against = reason(pair)
        account.read += 1
        if against is None:
            account.kept += 1
        else:
            account.drop(against)
        yield pair, against


def stripped(pair: Pair) -> Pair:
    """Return a pair without outer white space; a side without a visible character becomes empty."""
    return Pair(trimmed(pair.source), trimmed(pair.target))


def seen_pair(pair: Pair) -> Pair:
    """Return the form that two pairs share if both their sides are the same sentences."""
    compared = Pair(as_seen(pair.source), as_seen(pair.target))
    return pair if compared == pair else compared


def fault(pair: Pair, direction: Direction, rules: CleaningRules) -> str | None:
    """Return why the rules that look at one stripped pair alone drop it; None if they keep it."""
    if not pair.source or not pair.target:
        return "empty"
    lengths = [*map(length, pair, direction.sides)]
    if min(lengths) < rules.min_words:
        return "too-short"
    if rules.max_words and max(lengths) > rules.max_words:
        return "too-long"
    dense = without_spaces(direction.source) != without_spaces(direction.target)
    limit = rules.max_ratio * (3 if dense else 1)
    shorter, longer = sorted((len(pair.source), len(pair.target)))
    # Short pairs often differ in length ("Ja." / "Indeed, sir."), so the ratio counts from ten characters up.
    if rules.max_ratio and longer >= 10 and longer > limit * shorter:
        return "ratio"
    if rules.drop_control_characters and any(map(_has_control_character, pair)):
        return "control-characters"
    if rules.drop_identical and pair.source == pair.target and not direction.is_one_language:
        return "identical"
    if rules.min_script_share:
        shares = map(script_share, pair, direction.sides)
        if any(share is not None and share < rules.min_script_share for share in shares):
            return "script"
    if rules.identify_language and any(map(other_language, pair, direction.sides)):
        return "language"
    return None


def _has_control_character(sentence: str) -> bool:
    # The first test settles most sentences: no printable character is a control character.
    return not sentence.isprintable() and any(unicodedata.category(c) == "Cc" and c != "\t" for c in sentence)


def length(sentence: str, language: str) -> int:
    """Return a sentence's length in words, or in characters where the language is written without spaces."""
    return len(sentence.replace(" ", "")) if without_spaces(language) else len(sentence.split())
