"""Train, dev and test without leaks: equal sentences of a site are never in two splits.

Sentences are equal if a reader sees no difference (`as_seen`): whatever their composition, invisible characters and white space.

Four rules (`SplitRules.mode`):

components: equal sentences, on either side, in any corpus, form one component; a keyed hash of the component decides its split.
shared-side: the keyed hash of the sentence on the shared side (English in many-to-English) decides, so that sites which cannot
    see each other's text agree without communicating, if they write it alike. If no language is shared by all, the more common one
    is the shared side. Pairs of a site's dev and test whose other side is in its train are then removed, as are those of dev with
    one in its test.
paper: Liu et al. 2023: shuffle, then cut. Equal sentences may fall into different splits.
given: the corpora come with a file for each split; nothing is moved.

Text in one language is split by document, and so are pairs whose documents have names: the keyed hash of a document or its name
decides the split of all of it, so the sentences of one note, and equal notes, stay together, and sites agree without communicating.
`components` and `shared-side` both mean this; `paper` shuffles a site's documents and cuts. Sentences that documents of two splits
have in common are then removed from dev and test: under `components` those of all sites that are read together, else those of one site.
"""

import hashlib
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import Direction, plain_code
from fedlingua.common.visible import as_seen
from fedlingua.corpora.read import Pair

Split = Literal["base", "train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")
Side = tuple[str, str]
"""(language, sentence): the same characters in two languages are two sides. The language is without country and script, as `plain_code`
writes it, so that a sentence of en-GB is equal to the same one of en."""
T = TypeVar("T")


@dataclass(frozen=True)
class SplitRules:
    """How a corpus is split; shares add up to 1. mixed: train and dev of all sites are mixed and dealt out (simulated.py)."""

    mode: Literal["components", "shared-side", "paper", "given"] = "components"
    key: str = "fedlingua"
    train: float = 0.6
    dev: float = 0.2
    test: float = 0.2
    mixed: bool = False


def check_shares(rules: SplitRules, where: str) -> None:
    """Raise ConfigError for a negative share, or shares that do not add up to 1."""
    shares = (rules.train, rules.dev, rules.test)
    if not abs(sum(shares) - 1) <= 1e-9 or min(shares) < 0:  # nan too
        shares_text = ", ".join(f"{share:g}" for share in shares)
        raise ConfigError(f"{where}: train, dev and test = {shares_text}; wanted three shares that add up to 1, none below 0")


def sides(pair: Pair, direction: Direction) -> tuple[Side, Side]:
    """Return both sentences of a pair, each with its language."""
    return (plain_code(direction.source), pair.source), (plain_code(direction.target), pair.target)


def seen_sides(pair: Pair, direction: Direction) -> tuple[Side, Side]:
    """Return both sentences of a pair, each with its language, in the form in which equal ones are the same."""
    return (plain_code(direction.source), as_seen(pair.source)), (plain_code(direction.target), as_seen(pair.target))


class Components:
    """Union-find over sentences: the two sides of a pair share a component, and so do equal sentences anywhere."""

    def __init__(self, corpora: Iterable[tuple[Direction, Iterable[Pair]]]) -> None:
        self._parent: dict[Side, Side] = {}
        self._first: dict[Side, Side] = {}  # root -> the first in order of the component's sides, as they are written
        for direction, pairs in corpora:
            for pair in pairs:
                left, right = map(self._find, seen_sides(pair, direction))
                known = [self._first.pop(root) for root in {left, right} if root in self._first]
                self._parent[right] = left
                self._first[left] = min(*sides(pair, direction), *known)

    def root(self, side: Side) -> Side:
        """Return the side that stands for a sentence's component, whatever the order of the corpora."""
        language, sentence = side
        return self._first.get(self._find((language, as_seen(sentence))), side)

    def _find(self, side: Side) -> Side:
        parent = self._parent.setdefault(side, side)
        while parent != side:
            grandparent = self._parent[parent]
            self._parent[side] = grandparent
            side, parent = parent, grandparent
        return side

    def is_among(self, side: Side, share: float, key: str, purpose: str) -> bool:
        """Whether a sentence's component is in the `share` of all components that a hash, keyed for this purpose, chooses."""
        return position(key, purpose, *self.root(side)) < share


def position(key: str, *parts: str) -> float:
    """Return a number in [0, 1) that depends on the key and the text alone: 64 bits of BLAKE2b."""
    digest = hashlib.blake2b("\x1f".join(parts).encode(), key=hashlib.sha256(key.encode()).digest(), digest_size=8)
    return int.from_bytes(digest.digest(), "big") / 2**64


def base_sides(corpora: Sequence[tuple[Direction, Sequence[Pair]]], key: str, share: float) -> set[Side]:
    """Return all sentences, as seen, of the components that the backbone trains on: a `share` of them, chosen by keyed hash."""
    components = Components(corpora)
    chosen: set[Side] = set()
    for direction, pairs in corpora:
        for pair in pairs:
            if components.is_among(sides(pair, direction)[0], share, key, "base"):
                chosen.update(seen_sides(pair, direction))
    return chosen


def split_sites(
    sites: Mapping[str, tuple[Direction, Sequence[Pair]]],
    rules: SplitRules,
    base: frozenset[Side] | set[Side] = frozenset(),
    directions: Sequence[Direction] = (),
) -> dict[str, dict[Split, list[Pair]]]:
    """Split every site's pairs, in corpus order; components with text of the backbone go into the split "base".

    Mode `shared-side` removes pairs; the others keep all.

    Only mode `components` uses `base` and compares sites; the other modes treat each site or pair by itself. directions: those of the
    whole federation, if `sites` is only a part of it.
    """
    if rules.mode == "paper":
        return {name: {"base": [], **_shuffle_and_cut(name, pairs, rules)} for name, (_, pairs) in sites.items()}
    if rules.mode == "shared-side":
        everybody, result = (
            list(directions) or [direction for direction, _ in sites.values()],
            dict[str, dict[Split, list[Pair]]](),
        )
        for name, (direction, pairs) in sites.items():
            side = shared_side(direction, everybody)
            first = dict[str, str]()  # sentence as seen -> the first in order of the ways in which the site writes it
            for pair in pairs:
                first[as_seen(pair[side])] = min(pair[side], first.get(as_seen(pair[side]), pair[side]))
            grouped = _group(pairs, [by_share(rules, first[as_seen(pair[side])]) for pair in pairs])
            result |= _without_leaks({name: grouped}, {name: direction})
        return result
    components = Components(sites.values())
    tainted = {components.root(side) for side in base}
    assert rules.mode == "components", rules.mode  # split_sites never gets mode "given"
    result = {}
    for name, (direction, pairs) in sites.items():
        roots = [components.root(sides(pair, direction)[0]) for pair in pairs]
        result[name] = _group(pairs, ["base" if root in tainted else by_share(rules, *root) for root in roots])
    return result


def by_share(rules: SplitRules, *parts: str) -> Split:
    """Return the split of a text, by the shares and its position, which depends only on the key and the text."""
    value = position(rules.key, "split", *parts)
    if value < rules.train:
        return "train"
    return "dev" if value < rules.train + rules.dev else "test"


def _group(pairs: Sequence[Pair], labels: Sequence[Split]) -> dict[Split, list[Pair]]:
    grouped: dict[Split, list[Pair]] = {"base": [], "train": [], "dev": [], "test": []}
    for pair, label in zip(pairs, labels, strict=True):
        grouped[label].append(pair)
    return grouped


def _shuffle_and_cut(name: str, texts: Sequence[T], rules: SplitRules) -> dict[Split, list[T]]:
    shuffled = list(texts)
    random.Random(f"{rules.key}/{name}").shuffle(shuffled)
    first, second = round(len(shuffled) * rules.train), round(len(shuffled) * (rules.train + rules.dev))
    return {"train": shuffled[:first], "dev": shuffled[first:second], "test": shuffled[second:]}


def shared_side(direction: Direction, everybody: Sequence[Direction]) -> int:
    """Return the side of `direction`, 0 or 1, whose language is in more of all directions; in a tie, the first by name.

    en-GB counts as en. So sites with the same two languages choose the same side, whatever their direction.
    """
    languages = [plain_code(code) for code in direction.sides]
    held = [sum(language in map(plain_code, other.sides) for other in everybody) for language in languages]
    return min((0, 1), key=lambda side: (-held[side], languages[side], direction.sides[side]))


@dataclass(frozen=True)
class Document:
    """A document after de-identification, or pairs of one document. text: That of the document, or its name.
    sentences: Those that cleaning kept, in order."""

    text: str
    sentences: Sequence[Pair]


def split_documents(
    sites: Mapping[str, tuple[Direction, Sequence[Document]]], rules: SplitRules, base: frozenset[Side] | set[Side] = frozenset()
) -> dict[str, dict[Split, list[Pair]]]:
    """Split every site's sentences by document, in order; a whole document with a sentence of `base` goes into "base".

    sites: name -> (language or direction, documents). Translations of a document fall into the same split at all sites.
    """
    assert rules.mode != "given"  # files for splits name no documents
    splits: dict[str, dict[Split, list[Pair]]] = {}
    for name, (direction, documents) in sites.items():
        splits[name] = {"base": [], "train": [], "dev": [], "test": []}
        for document, split in _placed(name, direction, documents, rules):
            is_base = any(not base.isdisjoint(seen_sides(pair, direction)) for pair in document.sentences)
            splits[name]["base" if is_base else split] += document.sentences
    directions = {name: direction for name, (direction, _) in sites.items()}
    if rules.mode == "components":
        return _without_leaks(splits, directions)
    return {name: _without_leaks({name: splits[name]}, directions)[name] for name in splits}


def _placed(name: str, direction: Direction, documents: Sequence[Document], rules: SplitRules) -> list[tuple[Document, Split]]:
    if rules.mode == "paper":
        return [(document, split) for split, part in _shuffle_and_cut(name, documents, rules).items() for document in part]
    language = plain_code(direction.source) if direction.is_one_language else ""
    return [(document, by_share(rules, language, document.text)) for document in documents]


def _without_leaks(
    splits: Mapping[str, Mapping[Split, Sequence[Pair]]], directions: Mapping[str, Direction]
) -> dict[str, dict[Split, list[Pair]]]:
    """Remove sentences of dev and test that any of the sites trains on, and those of dev that any of them tests on."""

    def held(split: Split) -> set[Side]:
        return {side for name, parts in splits.items() for pair in parts[split] for side in seen_sides(pair, directions[name])}

    train, test = held("train"), held("test")
    taken: dict[Split, set[Side]] = {"base": set(), "train": set(), "dev": train | test, "test": train}
    return {
        name: {
            split: [pair for pair in pairs if taken[split].isdisjoint(seen_sides(pair, directions[name]))]
            for split, pairs in parts.items()
        }
        for name, parts in splits.items()
    }
