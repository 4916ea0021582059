"""The text of a simulation's sites: one machine has all of it.

So components of equal sentences are sought across all sites; centralized methods train on a pool of it: everybody's, that of public
sites, or that of one site; and it can be dealt out, so that every site trains on all directions: a federation whose data is alike at
every site (IID). MetaSend, §4.1: "the data for each client is sampled randomly from all data". Train and dev of all sites, cleaned, split
and cut, go into one heap, are shuffled by the key of the split and dealt out one by one. Test stays where it was, so that a site is
scored on its own direction, mixed or not.
"""

import dataclasses
import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from fedlingua.common.errors import ConfigError
from fedlingua.corpora.clean import Account
from fedlingua.corpora.overlap import check_left, digests_of, leaks, left_out, without_leaks
from fedlingua.corpora.read import Pair
from fedlingua.corpora.recipe import forbidden_sides, read_recipe
from fedlingua.corpora.sites import Federation, Site, read_federation
from fedlingua.corpora.split import Split, SplitRules
from fedlingua.corpora.texts import SiteText, read_sites

DEALT: tuple[Split, ...] = ("train", "dev")
OVERLAP_KEY = b"a simulation's, on one machine"
"""What a simulation hashes sentences under: nothing leaves the machine, so that nothing is to be hidden."""


@lru_cache(maxsize=4)
def all_texts(federation_path: Path, data_dir: str) -> Mapping[str, SiteText]:
    """Every site's text, read once for each process."""
    data = Path(data_dir).expanduser()
    federation = read_federation(federation_path, data)
    base = forbidden_sides(read_recipe(federation.base, data)) if federation.base else set()
    return read_sites(federation, base)


@lru_cache(maxsize=4)
def texts_by_site(federation_path: Path, data_dir: str) -> Mapping[str, Mapping[str, SiteText]]:
    """Every site's texts, each under the name of the site that it came from; dealt out once for each process."""
    federation = read_federation(federation_path, Path(data_dir).expanduser())
    return held_texts(all_texts(federation_path, data_dir), federation.rules.split)


@lru_cache(maxsize=4)
def texts_without_leaks(federation_path: Path, data_dir: str) -> Mapping[str, SiteText]:
    """Every site's text without what another site trains on, as in a run with overlap = "remove"; CorpusError where nothing is left."""
    held = texts_by_site(federation_path, data_dir)
    leaking = leaks({site: digests_of(texts.values(), OVERLAP_KEY) for site, texts in held.items()})
    before = all_texts(federation_path, data_dir)
    after = {site: without_leaks(text, leaking[site], OVERLAP_KEY) for site, text in before.items()}
    check_left(
        {site: {split: len(pairs) for split, pairs in text.splits.items()} for site, text in before.items()},
        {site: left_out([before[site]], [after[site]]) for site in before},
    )
    return after


def pooled_texts(texts: Mapping[str, SiteText], federation: Federation, pools: str) -> dict[str, SiteText]:
    """Every site's text, of which those outside the pool are only scored. pools: as fedlingua.settings.methods.Method has it."""
    inside = {site.name for site in federation.sites if is_pooled(site, pools)}
    return {
        name: text if name in inside else dataclasses.replace(text, splits={**text.splits, "train": [], "dev": []})
        for name, text in texts.items()
    }


def is_pooled(site: Site, pools: str) -> bool:
    """Whether a site's text is trained on."""
    return pools == "all" or (site.public if pools == "public" else site.name == pools)


def check_pool(federation: Federation, pools: str) -> None:
    """Raise ConfigError for an empty pool: no site is public, or none has the name."""
    if not any(is_pooled(site, pools) for site in federation.sites):
        wanted = "public = true at one site at least" if pools == "public" else "the name of a site"
        known = ", ".join(site.name for site in federation.sites)
        raise ConfigError(
            f"{federation.name}: no site is {pools!r}, so there would be no training text; wanted {wanted} (here: {known})"
        )


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
    account = dataclasses.replace(text.account, read=text.account.read - elsewhere, kept=text.account.kept - elsewhere)
    return SiteText(text.direction, account, {**text.splits, **dealt})
