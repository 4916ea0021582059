"""Text that is dealt out, so that every site trains on all directions: a federation whose data is alike at every site (IID).

MetaSend, §4.1: "the data for each client is sampled randomly from all data". Train and dev of all sites, cleaned, split and cut, go into
one heap, are shuffled by the key of the split and dealt out one by one. Test stays where it was, so that a site is scored on its own
direction, mixed or not.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedlingua.corpora.clean import Account
from fedlingua.corpora.read import Pair
from fedlingua.corpora.split import Split, SplitRules
from fedlingua.corpora.texts import SiteText

DEALT: tuple[Split, ...] = ("train", "dev")


def held_texts(texts: Mapping[str, SiteText], rules: SplitRules) -> dict[str, dict[str, SiteText]]:
    """site -> the texts that it holds, each under the name of the site that it came from: its own, or where text is mixed a part of
    everybody's, in the order of `texts`.
    """
    if not rules.mixed:
        return {site: {site: text} for site, text in texts.items()}
    hands = {split: deal({site: text.splits[split] for site, text in texts.items()}, f"{rules.key}/{split}") for split in DEALT}
    return {
        site: {
            origin: _part(text, {split: hands[split][site][origin] for split in DEALT}, own=origin == site)
            for origin, text in texts.items()
        }
        for site in texts
    }


def deal(heaps: Mapping[str, Sequence[Pair]], seed: str) -> dict[str, dict[str, list[Pair]]]:
    """site -> origin -> pairs: all heaps shuffled as one and dealt out to as many sites, so that their sizes differ by one at most."""
    cards = [(origin, pair) for origin, pairs in heaps.items() for pair in pairs]
    random.Random(seed).shuffle(cards)
    hands: dict[str, dict[str, list[Pair]]] = {site: {origin: [] for origin in heaps} for site in heaps}
    for number, site in enumerate(heaps):
        for origin, pair in cards[number :: len(heaps)]:
            hands[site][origin].append(pair)
    return hands


def _part(text: SiteText, dealt: Mapping[Split, Sequence[Pair]], own: bool) -> SiteText:
    """What one site holds of a text. Over all sites the accounts add up to the text's: what is dealt to another is counted there."""
    held = sum(map(len, dealt.values()))
    if not own:
        return SiteText(text.direction, Account(held, held), {"base": [], **dealt, "test": []})
    elsewhere = sum(len(text.splits[split]) for split in DEALT) - held
    account = replace(text.account, read=text.account.read - elsewhere, kept=text.account.kept - elsewhere)
    return SiteText(text.direction, account, {**text.splits, **dealt})
