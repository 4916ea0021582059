"""The text of a simulation's sites, all of which is on one machine.

Components of equal sentences are therefore formed across all sites, and centralized methods can train on a pool: the text of all
sites, the public sites, or one site. The text can also be mixed, so that every site trains on all directions and data is identically
distributed (IID). MetaSend, §4.1: "the data for each client is sampled randomly from all data". Train and dev of all sites, cleaned,
split and cut, are joined, shuffled by the key of the split and dealt out one by one. Test is not mixed, so that a site is always
scored on its own direction.
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
from fedlingua.corpora.recipe import forbidden_sides, read_recipe_text
from fedlingua.corpora.sites import Federation, Site, read_federation
from fedlingua.corpora.split import Split, SplitRules
from fedlingua.corpora.texts import SiteText, read_sites

DEALT: tuple[Split, ...] = ("train", "dev")
OVERLAP_KEY = b"a simulation's, on one machine"
"""Key under which a simulation hashes sentences; it need not be secret, since nothing leaves the machine."""


@lru_cache(maxsize=4)
def federation_of(federation_path: Path, data_dir: str) -> Federation:
    """Return the federation, whose file each process reads once; of a thousand sites a message would take a second otherwise."""
    return read_federation(federation_path, Path(data_dir).expanduser())


@lru_cache(maxsize=4)
def all_texts(federation_path: Path, data_dir: str) -> Mapping[str, SiteText]:
    """Return every site's text, which each process reads once."""
    federation = federation_of(federation_path, data_dir)
    base = forbidden_sides(read_recipe_text(federation.base, Path(data_dir).expanduser())) if federation.base else set()
    return read_sites(federation, base)


@lru_cache(maxsize=4)
def texts_by_site(federation_path: Path, data_dir: str) -> Mapping[str, Mapping[str, SiteText]]:
    """Return the texts that each site holds, by the name of the site they came from; mixed once for each process."""
    return held_texts(all_texts(federation_path, data_dir), federation_of(federation_path, data_dir).rules.split)


@lru_cache(maxsize=4)
def texts_without_leaks(federation_path: Path, data_dir: str) -> Mapping[str, SiteText]:
    """Return every site's text without its leaks, as with overlap = "remove"; raise CorpusError if all of a dev or test leaks."""
    held = texts_by_site(federation_path, data_dir)
    leaking = leaks({site: digests_of(texts.values(), OVERLAP_KEY) for site, texts in held.items()})
    before = all_texts(federation_path, data_dir)
    after = {site: without_leaks(text, leaking[site], OVERLAP_KEY) for site, text in before.items()}
    sizes = {site: {split: len(pairs) for split, pairs in text.splits.items()} for site, text in before.items()}
    check_left(sizes, {site: left_out([before[site]], [after[site]]) for site in before})
    return after


def pooled_texts(texts: Mapping[str, SiteText], federation: Federation, pools: str) -> dict[str, SiteText]:
    """Return every site's text; sites outside the pool keep no train or dev. pools: as in fedlingua.settings.methods.Method."""
    inside = {site.name for site in federation.sites if is_pooled(site, pools)}
    return {
        name: text if name in inside else dataclasses.replace(text, splits={**text.splits, "train": [], "dev": []})
        for name, text in texts.items()
    }


def is_pooled(site: Site, pools: str) -> bool:
    return pools == "all" or (site.public if pools == "public" else site.name == pools)


def check_pool(federation: Federation, pools: str) -> None:
    """Raise ConfigError for an empty pool: no site is public, or no site has the name."""
    if not any(is_pooled(site, pools) for site in federation.sites):
        wanted = "public = true at one site at least" if pools == "public" else "the name of a site"
        known = ", ".join(site.name for site in federation.sites)
        raise ConfigError(
            f"{federation.name}: no site is {pools!r}, so there would be no training text; wanted {wanted} (here: {known})"
        )


def held_texts(texts: Mapping[str, SiteText], rules: SplitRules) -> dict[str, dict[str, SiteText]]:
    """Return, for each site, the texts that it holds, by the name of the site they came from, in the order of `texts`.

    A site holds its own text or, where text is mixed, a part of every site's."""
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
    """Shuffle all heaps together and deal them out evenly, sizes differing by at most one; return site -> origin -> pairs."""
    cards = [(origin, pair) for origin, pairs in heaps.items() for pair in pairs]
    random.Random(seed).shuffle(cards)
    hands: dict[str, dict[str, list[Pair]]] = {site: {origin: [] for origin in heaps} for site in heaps}
    for number, site in enumerate(heaps):
        for origin, pair in cards[number :: len(heaps)]:
            hands[site][origin].append(pair)
    return hands


def _part(text: SiteText, dealt: Mapping[Split, Sequence[Pair]], own: bool) -> SiteText:
    """Return what one site holds of a text; pairs dealt to another site count there, so that accounts add up to the text's."""
    held = sum(map(len, dealt.values()))
    if not own:
        return SiteText(text.direction, Account(held, held), {"base": [], **dealt, "test": []})
    elsewhere = sum(len(text.splits[split]) for split in DEALT) - held
    account = dataclasses.replace(text.account, read=text.account.read - elsewhere, kept=text.account.kept - elsewhere)
    return SiteText(text.direction, account, {**text.splits, **dealt})
