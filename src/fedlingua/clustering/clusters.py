"""Clusters: for each part, the named groups of sites that are averaged together (Liu et al. 2023, §2.3)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from fedlingua.backbones.parts import PARTS, Part
from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import Direction, broader, kinship, language_name, nearest

Clusters = Mapping[Part, Mapping[str, tuple[str, ...]]]
"""part -> cluster name -> its sites, in federation order; every site is in exactly one cluster of each part."""

EVERYBODY = "all"
CLUSTER_NAME = re.compile(r"[\w][\w .-]*")
CLUSTERED: tuple[Part, ...] = ("encoder", "decoder")
"""Parts that are averaged inside clusters; shared tensors are averaged over all sites."""


@dataclass(frozen=True)
class Relatives:
    """The language families by which sites are clustered.

    Attributes:
        own: Language -> family from the federation file, which overrides the built-in table; zh covers zh-Hant unless that is given too.
        by: The level of the built-in table to use: "group" (Germanic) or "family" (Indo-European).
    """

    own: Mapping[str, str]
    by: str

    def of(self, language: str) -> str | None:
        """Return a language's family or group; None if unknown."""
        if own := next((self.own[code] for code in broader(language) if code in self.own), None):
            return own
        known = kinship(language)
        return known and known[1 if self.by == "group" else 0]


def no_clusters(sites: Sequence[str]) -> Clusters:
    """Return one cluster of all sites for every part: plain federation."""
    return {part: {EVERYBODY: tuple(sites)} for part in PARTS}


def alone(sites: Sequence[str]) -> Clusters:
    """Return one cluster per site for every part: local-only training."""
    return {part: {site: (site,) for site in sites} for part in PARTS}


def by_families(directions: Mapping[str, Sequence[Direction]], relatives: Relatives, least: int = 1) -> Clusters:
    """Cluster encoders by related source languages and decoders by related target languages.

    Args:
        least: The fewest sites of a cluster; smaller ones are merged, see `widened`.

    Raises:
        ConfigError: A language has no known family, or a site's directions fall into more than one cluster of a part.
    """
    sites = list(directions)
    clusters: dict[Part, dict[str, tuple[str, ...]]] = {"encoder": {}, "decoder": {}, "shared": {EVERYBODY: tuple(sites)}}
    families = Relatives(relatives.own, "family")
    for part in CLUSTERED:
        family_of: dict[str, str | None] = {}
        for site in sites:
            names = {_cluster_name(language_of_part(direction, part), relatives) for direction in directions[site]}
            if len(names) != 1:
                raise ConfigError(
                    f"site {site}: its directions belong to {len(names)} {part} clusters ({', '.join(sorted(names))}); "
                    "families need one, so split the site, or choose method = 'adapter-fed'"
                )
            name = names.pop()
            clusters[part][name] = (*clusters[part].get(name, ()), site)
            family_of.setdefault(name, families.of(language_of_part(directions[site][0], part)))
        clusters[part] = widened(clusters[part], family_of, least, sites)
    return clusters


def widened(
    clusters: Mapping[str, tuple[str, ...]], family_of: Mapping[str, str | None], least: int, order: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Merge clusters smaller than `least`, smallest first, each with the next smallest: within a family, then across families."""
    joined: dict[tuple[str, ...], tuple[str, ...]] = {(name,): sites for name, sites in clusters.items()}
    for kin in (family_of, dict.fromkeys(clusters, "")):
        for family in dict.fromkeys(kin.values()):
            while True:
                related = sorted((names for names in joined if kin[names[0]] == family), key=lambda names: len(joined[names]))
                if len(related) < 2 or len(joined[related[0]]) >= least:
                    break
                members = {site for names in related[:2] for site in joined.pop(names)}
                joined[related[0] + related[1]] = tuple(site for site in order if site in members)
    if len(joined) == 1 < len(clusters):
        return {EVERYBODY: tuple(order)}
    return {"-".join(sorted(names, key=[*clusters].index)): sites for names, sites in joined.items()}


def at_random(sites: Sequence[str], numbers: Mapping[Part, int], seed: int) -> Clusters:
    """Draw random clusters of sizes that differ by at most one, for each part and seed; raise ConfigError if they outnumber the sites."""
    clusters: dict[Part, dict[str, tuple[str, ...]]] = {}
    for part in CLUSTERED:
        check_number(numbers[part], sites)
        shuffled = Random(f"{seed}/clusters/{part}").sample(list(sites), len(sites))
        drawn = [set(shuffled[first :: numbers[part]]) for first in range(numbers[part])]
        clusters[part] = named("random", [next(n for n, members in enumerate(drawn) if site in members) for site in sites], sites)
    return {**clusters, "shared": {EVERYBODY: tuple(sites)}}


def named(prefix: str, labels: Sequence[int | str], sites: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Name clusters `prefix-1`, `prefix-2`, ... in the order of their first sites; sites with equal `labels` form a cluster."""
    order = list(dict.fromkeys(labels))
    members = {label: tuple(site for site, own in zip(sites, labels, strict=True) if own == label) for label in order}
    return {f"{prefix}-{number}": members[label] for number, label in enumerate(order, start=1)}


def check_number(number: int, sites: Sequence[str]) -> None:
    """Raise ConfigError if there are more clusters than sites."""
    if number > len(sites):
        raise ConfigError(
            f"cluster.number = {number}, but there are {len(sites)} sites; wanted at most one cluster for each site"
        )


def given_clusters(raw: Mapping[str, Any], sites: Sequence[str], where: str) -> Clusters:
    """Check and return the clusters in a federation file: [clusters.encoder] and [clusters.decoder], each with name = ["site", ...].

    A part without a table is averaged over all sites.

    Raises:
        ConfigError: An unknown part, a name that cannot be a file's, an unknown site, or a site in several clusters of a part or in none.
    """
    if not raw:
        raise ConfigError(f"{where}: [clusters] is empty; give [clusters.encoder] or [clusters.decoder], or leave it out")
    clusters: dict[Part, dict[str, tuple[str, ...]]] = {part: {EVERYBODY: tuple(sites)} for part in PARTS}
    for part, table in raw.items():
        if part not in CLUSTERED or not isinstance(table, Mapping):
            raise ConfigError(f"{where} [clusters]: {part} = {table!r}; wanted tables [clusters.encoder] and [clusters.decoder]")
        here = f"{where} [clusters.{part}]"
        placed: list[str] = []
        for name, members in table.items():
            if not CLUSTER_NAME.fullmatch(name):
                raise ConfigError(
                    f"{here}: {name!r} is no name; wanted letters, digits, '.', '_' or '-', since files are named after it"
                )
            if not isinstance(members, list) or not members:
                raise ConfigError(f'{here}: {name} = {members!r}; wanted a list of sites, as in {name} = ["{sites[0]}"]')
            for site in members:
                if site not in sites:
                    raise ConfigError(f"{here}: {name} names {site!r}, but there is no such site{nearest(site, sites)}")
            placed += members
        if twice := sorted({site for site in placed if placed.count(site) > 1}):
            raise ConfigError(f"{here}: {', '.join(twice)} is in more than one cluster; wanted one")
        if missing := [site for site in sites if site not in placed]:
            raise ConfigError(f"{here}: {', '.join(missing)} is in no cluster; every site needs one")
        clusters[part] = {name: tuple(site for site in sites if site in members) for name, members in table.items()}
    return clusters


def only(clusters: Clusters, parts: str) -> Clusters:
    """Keep the clusters of one part, "encoder" or "decoder", and average the other over all sites (table 7); "both" changes nothing."""
    everybody = clusters["shared"]
    return {part: everybody if parts != "both" and part in CLUSTERED and part != parts else clusters[part] for part in PARTS}


def cluster_of(clusters: Clusters, part: Part, site: str) -> str:
    """Return the name of the cluster that a site's part belongs to."""
    return next(name for name, members in clusters[part].items() if site in members)


def _cluster_name(language: str, relatives: Relatives) -> str:
    if name := relatives.of(language):
        return name
    raise ConfigError(
        f"language {language!r} ({language_name(language)}): no table has its family, by which clusters are made; give it a family in "
        f'the federation file, [families] Name = ["{language}"], or choose a method or cluster.by that needs none'
    )


def language_of_part(direction: Direction, part: Part) -> str:
    return direction.source if part == "encoder" else direction.target
