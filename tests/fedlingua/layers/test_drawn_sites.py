"""Which sites are drawn: as many as asked for, in turn, of every cluster its share, each with the same probability."""

from collections import Counter
from itertools import islice
from random import Random
from typing import Any

import numpy as np
import pytest

from fedlingua.layers.drawn_sites import draws

Pairs = list[tuple[str, str]]
"""Each site's encoder cluster and decoder cluster."""
NINE: Pairs = [(source, target) for source in ("de", "es", "pl") for target in ("fr", "nl", "cs")]
"""The demo's sites."""
LOPSIDED: Pairs = [("a", "x")] * 5 + [("a", "y")] * 2 + [("b", "x")] + [("b", "y")] * 4
ONE_CLUSTER: Pairs = [("all", "all")] * 7


def clusters_of(pairs: Pairs) -> Any:
    """Sites are called 00, 01, ..."""
    clusters: dict[str, dict[str, list[str]]] = {"encoder": {}, "decoder": {}}
    for site, pair in enumerate(pairs):
        for part, name in zip(clusters, pair, strict=True):
            clusters[part].setdefault(name, []).append(f"{site:02}")
    return clusters


def drawn(pairs: Pairs, number: int, rounds: int, seed: int = 1) -> list[set[str]]:
    sites = [f"{site:02}" for site in range(len(pairs))]
    return list(islice(draws(sites, clusters_of(pairs), number, seed), rounds))


def federation(seed: int, most: int = 20) -> Pairs:
    """Up to 20 sites in up to four clusters of each part."""
    rng = Random(seed)
    return [(f"e{rng.randrange(1 + seed % 4)}", f"d{rng.randrange(4)}") for _ in range(rng.randrange(2, most))]


@pytest.mark.parametrize("seed", range(40))
def test_each_round_has_so_many_sites_and_no_site_is_ever_more_than_a_round_ahead(seed: int) -> None:
    pairs = federation(seed)
    for number in range(1, len(pairs) + 1):
        counts = Counter({f"{site:02}": 0 for site in range(len(pairs))})
        for sites in drawn(pairs, number, 25, seed):
            assert len(sites) == number
            counts.update(sites)
            assert max(counts.values()) - min(counts.values()) <= 1


@pytest.mark.parametrize("seed", range(40))
def test_where_rounds_divide_the_sites_every_cluster_has_its_share_in_every_round(seed: int) -> None:
    """So it is there in every round if its share is one site or more; otherwise in as many rounds of a pass as it has sites."""
    pairs = federation(seed, most=30)
    for number in (number for number in range(1, len(pairs) + 1) if len(pairs) % number == 0):
        length = len(pairs) // number
        for sites in (rounds := drawn(pairs, number, 3 * length, seed)):
            for members in (set(m) for named in clusters_of(pairs).values() for m in named.values()):
                share = len(members) / length
                assert int(share) <= len(members & sites) <= -(-len(members) // length)
        for first in range(0, 3 * length, length):
            assert set().union(*rounds[first : first + length]) == {f"{site:02}" for site in range(len(pairs))}


def test_three_of_the_demos_nine_sites_have_every_language_once_on_either_side() -> None:
    for seed in range(20):
        for sites in drawn(NINE, 3, 9, seed):
            sources, targets = zip(*(NINE[int(site)] for site in sites), strict=True)
            assert {*sources} == {"de", "es", "pl"}
            assert {*targets} == {"fr", "nl", "cs"}


def test_where_rounds_do_not_divide_the_sites_a_cluster_is_seldom_missing() -> None:
    missing = Counter[bool]()
    for seed in range(60):
        pairs = federation(seed)
        for number in range(1, len(pairs) + 1):
            for sites in drawn(pairs, number, 12, seed):
                for members in (m for named in clusters_of(pairs).values() for m in named.values()):
                    if len(members) * number >= len(pairs):
                        missing[not sites.intersection(members)] += 1
    assert 0 < missing[True] < 0.01 * missing[False]


def test_the_order_of_sites_and_clusters_does_not_matter_but_the_seed_does() -> None:
    clusters = clusters_of(LOPSIDED)
    sites = [f"{site:02}" for site in range(len(LOPSIDED))]
    turned = {part: dict(reversed(named.items())) for part, named in reversed(clusters.items())}
    wanted = drawn(LOPSIDED, 5, 10)
    assert list(islice(draws(reversed(sites), turned, 5, 1), 10)) == wanted
    assert drawn(LOPSIDED, 5, 10, seed=2) != wanted


def test_each_pass_is_another() -> None:
    first, second = (drawn(ONE_CLUSTER, 1, 14)[half : half + 7] for half in (0, 7))
    assert first != second


@pytest.mark.parametrize(
    ("pairs", "number", "lopsided"),
    [(NINE, 3, 0.0), (NINE, 4, 0.0), (ONE_CLUSTER, 3, 0.0), (LOPSIDED, 5, 0.04)],
    ids=["rounds that divide", "passes that end inside a round", "no clusters", "clusters that cross unevenly"],
)
def test_over_seeds_every_site_is_as_likely_and_a_clusters_mean_over_those_drawn_is_that_over_all(
    pairs: Pairs, number: int, lopsided: float
) -> None:
    """lopsided: how much of its weight a site may have more or less, where who is drawn and how many hang together."""
    seeds, rounds, total = 1000, 4, len(pairs)
    clusters = [members for named in clusters_of(pairs).values() for members in named.values()]
    inside, weights, present = (
        np.zeros((rounds, total)),
        np.zeros((len(clusters), rounds, total)),
        np.zeros((len(clusters), rounds)),
    )
    for seed in range(seeds):
        for place, sites in enumerate(drawn(pairs, number, rounds, seed)):
            inside[place, [int(site) for site in sites]] += 1 / seeds
            for at, here in enumerate([int(site) for site in members if site in sites] for members in clusters):
                present[at, place] += bool(here)
                weights[at, place, here] += 1 / max(1, len(here))
    share = number / total
    assert abs(inside - share).max() < 5 * (share * (1 - share) / seeds) ** 0.5
    for at, members in enumerate(clusters):
        mean = (weights[at].sum(0) / present[at].sum())[
            [int(site) for site in members]
        ]  # of a site in FedMean, over seeds and rounds
        standard_error = (len(members) / (seeds * rounds)) ** 0.5  # at most: draws of a pass exclude each other
        assert abs(mean * len(members) - 1).max() < lopsided + 2.5 * standard_error
