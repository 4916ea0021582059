"""Who is averaged with whom: for each part, named clusters of sites (Liu et al. 2023, §2.3)."""

from collections.abc import Mapping, Sequence

from fedlingua.errors import ConfigError
from fedlingua.exchange.tensor_sets import PARTS, Part
from fedlingua.languages import LANGUAGES, Direction

Clusters = Mapping[Part, Mapping[str, tuple[str, ...]]]
"""part -> cluster name -> its sites, in federation order; every site stands in exactly one cluster of each part."""

EVERYBODY = "all"


def no_clusters(sites: Sequence[str]) -> Clusters:
    """One cluster of everybody in every part: plain federation."""
    return {part: {EVERYBODY: tuple(sites)} for part in PARTS}


def alone(sites: Sequence[str]) -> Clusters:
    """Every site a cluster of its own in every part: local-only training."""
    return {part: {site: (site,) for site in sites} for part in PARTS}


def by_families(directions: Mapping[str, Sequence[Direction]], own_families: Mapping[str, str], by: str) -> Clusters:
    """Encoder clusters by the source's relatives, decoder clusters by the target's; what is shared is averaged over all.

    by: "group" (Germanic) or "family" (Indo-European) of the built-in table; `own_families` of the federation file go before it.

    Raises:
        ConfigError: a site whose directions fall into more than one cluster of a part.
    """
    sites = list(directions)
    clusters: dict[Part, dict[str, tuple[str, ...]]] = {"encoder": {}, "decoder": {}, "shared": {EVERYBODY: tuple(sites)}}
    for site in sites:
        sources = {relatives(direction.source, own_families, by) for direction in directions[site]}
        targets = {relatives(direction.target, own_families, by) for direction in directions[site]}
        for part, names in (("encoder", sources), ("decoder", targets)):
            if len(names) != 1:
                raise ConfigError(
                    f"site {site}: its directions belong to {len(names)} {part} clusters ({', '.join(sorted(names))}); "
                    "families need one, so split the site, or choose method = 'adapter-fed'"
                )
            name = names.pop()
            clusters[part][name] = (*clusters[part].get(name, ()), site)  # type: ignore[index]
    return clusters


def relatives(language: str, own_families: Mapping[str, str], by: str) -> str:
    """Name of the family or group that a language is averaged in."""
    known = LANGUAGES[language]
    return own_families.get(language) or (known.group if by == "group" else known.family)


def cluster_of(clusters: Clusters, part: Part, site: str) -> str:
    """Name of the cluster that a site's part belongs to."""
    return next(name for name, members in clusters[part].items() if site in members)
