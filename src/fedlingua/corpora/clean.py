"""Which pairs are kept: the paper's rule and four more, with an account that adds up.

A sentence of text in one language is a pair of itself with itself, and counted as one sentence.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from fedlingua.corpora.read import Pair
from fedlingua.errors import CorpusError
from fedlingua.languages import WITHOUT_SPACES, Direction

REASONS = ("empty", "too-short", "too-long", "ratio", "duplicate", "not-deidentified", "in-train")
"""Why a pair is dropped. Of the first five, the rules of cleaning, the first that holds, in this order, is the one counted.

not-deidentified: a sentence of a document that its site's hook failed on. in-train: one of dev or test that is in train, too, or one of
dev that is in test.
"""


@dataclass(frozen=True)
class CleaningRules:
    """Limits in words; in characters for languages written without spaces.

    `min_words = 2` is the rule of Liu et al. 2023's code: both sides have more than one word. `max_ratio` compares the characters
    of the two sides; 0 turns a rule off. Languages without spaces pack three or so letters of others into one character, so a
    ratio is widened by 3 when just one side is such a language.
    """

    min_words: int = 2
    max_words: int = 200
    max_ratio: float = 6.0
    drop_duplicates: bool = True


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


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in dict.fromkeys([*one, *other])}


def clean(pairs: Iterable[Pair], direction: Direction, rules: CleaningRules, account: Account) -> Iterator[Pair]:
    """The pairs that every rule keeps, stripped of outer white space; `account` counts the rest by reason."""
    return usable(pairs, judge(direction, rules), account)


def judge(direction: Direction, rules: CleaningRules) -> Callable[[Pair], str | None]:
    """Tells of one stripped pair after another why it is dropped, or None; it remembers them, so the second of two equal ones is."""
    seen: set[Pair] = set()

    def reason(pair: Pair) -> str | None:
        found = fault(pair, direction, rules)
        if found is None and rules.drop_duplicates:
            found = "duplicate" if pair in seen else None
            seen.add(pair)
        return found

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
    lengths = [_length(pair.source, direction.source), _length(pair.target, direction.target)]
    if min(lengths) < rules.min_words:
        return "too-short"
    if rules.max_words and max(lengths) > rules.max_words:
        return "too-long"
    dense = (direction.source in WITHOUT_SPACES) != (direction.target in WITHOUT_SPACES)
    limit = rules.max_ratio * (3 if dense else 1)
    shorter, longer = sorted((len(pair.source), len(pair.target)))
    # Short pairs differ in length by nature ("Ja." / "Indeed, sir."), so the ratio speaks from ten characters up.
    if rules.max_ratio and longer >= 10 and longer > limit * shorter:
        return "ratio"
    return None


def _length(sentence: str, language: str) -> int:
    return len(sentence.replace(" ", "")) if language in WITHOUT_SPACES else len(sentence.split())
