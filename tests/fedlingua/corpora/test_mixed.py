"""Text dealt out: all of it once, in equal hands, by the key of the split alone."""

from collections import Counter
from dataclasses import replace
from functools import reduce
from operator import add

import pytest

from fedlingua.common.languages import Direction
from fedlingua.corpora.clean import Account
from fedlingua.corpora.read import Pair
from fedlingua.corpora.simulated import DEALT, deal, held_texts
from fedlingua.corpora.split import SplitRules
from fedlingua.corpora.texts import SiteText

MIXED = SplitRules("given", "k", mixed=True)
DIRECTIONS = {"court": Direction("de", "fr"), "bank": Direction("pl", "es"), "farm": Direction("de", "fr")}
TRAIN = {"court": 10, "bank": 3, "farm": 1}


def pairs(direction: Direction, name: str, count: int) -> list[Pair]:
    """Every second one the same as the one before: repeated pairs are dealt like others."""
    return [Pair(f"{direction.source} {name} {n // 2}", f"{direction.target} {name} {n // 2}") for n in range(count)]


@pytest.fixture
def texts() -> dict[str, SiteText]:
    """14, 6 and 6 sentences; court dropped two and left one of its own out."""
    found = {}
    for site, direction in DIRECTIONS.items():
        splits = {
            "base": [],
            "train": pairs(direction, f"train of {site}", TRAIN[site]),
            "dev": pairs(direction, f"dev of {site}", 2),
            "test": pairs(direction, f"test of {site}", 3),
        }
        kept = TRAIN[site] + 5
        account = Account(kept + 3, kept + 1, {"empty": 2}) if site == "court" else Account(kept, kept)
        found[site] = SiteText(direction, account, splits)  # type: ignore[arg-type]
    return found


def test_unmixed_text_stays_with_its_site(texts: dict[str, SiteText]) -> None:
    assert held_texts(texts, replace(MIXED, mixed=False)) == {site: {site: text} for site, text in texts.items()}


def test_every_sentence_is_dealt_once_and_hands_differ_by_one_at_most(texts: dict[str, SiteText]) -> None:
    held = held_texts(texts, MIXED)
    assert list(held) == list(DIRECTIONS)
    for split in DEALT:
        sizes = [sum(len(text.splits[split]) for text in hand.values()) for hand in held.values()]
        assert sizes == {"train": [5, 5, 4], "dev": [2, 2, 2]}[split]
        for origin, text in texts.items():
            dealt = Counter(pair for hand in held.values() for pair in hand[origin].splits[split])
            assert dealt == Counter(text.splits[split])


def test_every_hand_names_its_texts_by_where_they_came_from_with_their_directions(texts: dict[str, SiteText]) -> None:
    for hand in held_texts(texts, MIXED).values():
        assert {origin: text.direction for origin, text in hand.items()} == DIRECTIONS


def test_test_text_stays_with_its_site(texts: dict[str, SiteText]) -> None:
    for site, hand in held_texts(texts, MIXED).items():
        for origin, text in hand.items():
            assert text.splits["test"] == (texts[site].splits["test"] if origin == site else [])


def test_the_accounts_of_all_hands_add_up_to_those_of_the_corpora(texts: dict[str, SiteText]) -> None:
    held = held_texts(texts, MIXED)
    for origin, text in texts.items():
        assert reduce(add, (hand[origin].account for hand in held.values())) == text.account
    for hand in held.values():
        for text in hand.values():
            account = text.account
            assert account.read == account.kept + sum(account.dropped.values())
            assert sum(map(len, text.splits.values())) <= account.kept


def test_the_key_of_the_split_decides_the_deal_and_train_and_dev_are_shuffled_apart(texts: dict[str, SiteText]) -> None:
    assert held_texts(texts, MIXED) == held_texts(texts, MIXED)
    assert held_texts(texts, MIXED) != held_texts(texts, replace(MIXED, key="l"))
    heaps = {site: [Pair(site, str(number)) for number in range(20)] for site in DIRECTIONS}
    assert deal(heaps, "k/train") != deal(heaps, "k/dev")


def test_each_hand_is_a_sample_of_everything() -> None:
    """600 and 300 cards to two sites: 300 of the first in each hand, with a standard deviation of 7.1 (hypergeometric)."""
    heaps = {"large": [Pair("a", str(n)) for n in range(600)], "small": [Pair("b", str(n)) for n in range(300)]}
    hands = deal(heaps, "k")
    for hand in hands.values():
        assert abs(len(hand["large"]) - 300) < 36
        assert len(hand["large"]) + len(hand["small"]) == 450
