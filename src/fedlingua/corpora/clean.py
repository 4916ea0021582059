"""Which pairs are kept: the paper's rule and more, each by its name, with an account that adds up.

A sentence of text in one language is a pair of itself with itself, and counted as one sentence.
"""

import math
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fedlingua.common.errors import ConfigError, CorpusError
from fedlingua.common.languages import Direction, without_spaces
from fedlingua.common.tables import fill
from fedlingua.corpora.identify import other_language
from fedlingua.corpora.read import Pair
from fedlingua.corpora.scripts import in_order, script_share

RULES = ("empty", "too-short", "too-long", "ratio", "control-characters", "identical", "script", "language", "duplicate")
"""Why a pair is dropped by the rules of cleaning; the first that holds, in this order, is the one counted."""
REASONS = (*RULES, "not-deidentified", "in-train", "trained-elsewhere")
"""not-deidentified: a sentence of a document that its site's hook failed on. in-train: one of dev or test that is in train, too, or one of
dev that is in test. trained-elsewhere: one of dev or test that another site trains on (fedlingua.corpora.overlap)."""


@dataclass(frozen=True)
class CleaningRules:
    """Limits in words; in characters for languages written without spaces.

    `min_words = 2` is the rule of Liu et al. 2023's code: both sides have more than one word. `max_ratio` compares the characters
    of the two sides; 0 turns a rule off. Languages without spaces pack three or so letters of others into one character, so a
    ratio is widened by 3 when just one side is such a language.

    drop_control_characters: pairs with a character of Unicode's class Cc inside, but for TAB: NUL, VT, NEL. drop_identical: both sides
    the same. min_script_share: of the letters of either side, how many are in the scripts of its language; 0.25 allows for names and
    terms. identify_language: drops what is surely in another language. normalize: Unicode's form that text is put into
    before all rules. strict: the first pair that a rule would drop is an error.
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
    """Read the rules of a [cleaning] table; ConfigError for a number under which a rule means nothing or drops everything."""
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
    """What became of every pair read: `read == kept + sum(dropped.values())`, always.

    failed_documents: how many the de-identification hook failed on, by the type of failure; their sentences are dropped as
    not-deidentified, so far as the raw text has any.
    """

    read: int = 0
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    failed_documents: dict[str, int] = field(default_factory=dict)

    def drop(self, reason: str, count: int = 1) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + count

    def leave_out(self, reason: str, count: int) -> None:
        """So many were read, and none of them kept."""
        self.read += count
        self.drop(reason, count)

    def take_back(self, reason: str, count: int) -> None:
        """So many that were kept are dropped after all."""
        if count:
            self.kept -= count
            self.drop(reason, count)

    def __add__(self, other: "Account") -> "Account":
        dropped, failed = _added(self.dropped, other.dropped), _added(self.failed_documents, other.failed_documents)
        return Account(self.read + other.read, self.kept + other.kept, dropped, failed)

    def check(self, where: str, unit: str = "pairs") -> None:
        assert self.read == self.kept + sum(self.dropped.values()), f"{where}: {self}"
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
    """The pairs that every rule keeps, stripped of outer white space; `account` counts the rest by reason.

    Raises:
        CorpusError: the two sides are swapped, by their scripts; or a pair would be dropped where `rules` are strict. Begins with `where`.
    """
    return usable(normalized(in_order(pairs, direction, where), rules), judge(direction, rules, where), account)


def normalized(pairs: Iterable[Pair], rules: CleaningRules) -> Iterable[Pair]:
    """The pairs in the form that the rules name, if any."""
    form = rules.normalize
    if form == "off":
        return pairs
    return (Pair(unicodedata.normalize(form, pair.source), unicodedata.normalize(form, pair.target)) for pair in pairs)


def judge(direction: Direction, rules: CleaningRules, where: str = "the corpus") -> Callable[[Pair], str | None]:
    """Tells of one stripped pair after another why it is dropped, or None; it remembers them, so the second of two equal ones is.

    What it returns raises CorpusError instead where `rules` are strict.
    """
    seen: set[Pair] = set()
    number = 0

    def reason(pair: Pair) -> str | None:
        nonlocal number
        number += 1
        why = fault(pair, direction, rules)
        if why is None and rules.drop_duplicates:
            why = "duplicate" if pair in seen else None
            seen.add(pair)
        if why is not None and rules.strict:
            unit = "sentence" if direction.is_one_language else "pair"
            raise CorpusError(
                f"{where}: {unit} {number} would be dropped ({why}), and cleaning is strict; mend it, or turn the rule or strict off"
            )
        return why

    return reason


def usable(pairs: Iterable[Pair], reason: Callable[[Pair], str | None], account: Account) -> Iterator[Pair]:
    """The pairs that there is no `reason` against, stripped of outer white space."""
    return (pair for pair, is_usable in judged(pairs, reason, account) if is_usable)


def judged(pairs: Iterable[Pair], reason: Callable[[Pair], str | None], account: Account) -> Iterator[tuple[Pair, bool]]:
    """Every pair stripped of outer white space, and whether it is kept; `account` counts them all, the rest by `reason`."""
    for raw in pairs:
        pair = stripped(raw)
        against = reason(pair)
        account.read += 1
        if against is None:
            account.kept += 1
        else:
            account.drop(against)
        yield pair, against is None


def stripped(pair: Pair) -> Pair:
    return Pair(pair.source.strip(), pair.target.strip())


def fault(pair: Pair, direction: Direction, rules: CleaningRules) -> str | None:
    """Why a stripped pair is not kept, by the rules that look at it alone; None when it is."""
    if not pair.source or not pair.target:
        return "empty"
    lengths = [length(pair.source, direction.source), length(pair.target, direction.target)]
    if min(lengths) < rules.min_words:
        return "too-short"
    if rules.max_words and max(lengths) > rules.max_words:
        return "too-long"
    dense = without_spaces(direction.source) != without_spaces(direction.target)
    limit = rules.max_ratio * (3 if dense else 1)
    shorter, longer = sorted((len(pair.source), len(pair.target)))
    # Short pairs differ in length by nature ("Ja." / "Indeed, sir."), so the ratio speaks from ten characters up.
    if rules.max_ratio and longer >= 10 and longer > limit * shorter:
        return "ratio"
    if rules.drop_control_characters and any(map(_has_control_character, pair)):
        return "control-characters"
    if rules.drop_identical and pair.source == pair.target and not direction.is_one_language:
        return "identical"
    return _other_language(pair, direction, rules)


def _has_control_character(sentence: str) -> bool:
    # Most sentences are told by their first look: whatever is printable is no control character.
    return not sentence.isprintable() and any(unicodedata.category(c) == "Cc" and c != "\t" for c in sentence)


def _other_language(pair: Pair, direction: Direction, rules: CleaningRules) -> str | None:
    sides = ((pair.source, direction.source), (pair.target, direction.target))
    if rules.min_script_share:
        shares = (script_share(*side) for side in sides)
        if any(share is not None and share < rules.min_script_share for share in shares):
            return "script"
    if rules.identify_language and any(other_language(*side) for side in sides):
        return "language"
    return None


def length(sentence: str, language: str) -> int:
    """In words; in characters, where the language is written without spaces."""
    return len(sentence.replace(" ", "")) if without_spaces(language) else len(sentence.split())
