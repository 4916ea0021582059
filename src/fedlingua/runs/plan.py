"""The clusters of a run, if its settings determine them before any site is asked."""

from collections.abc import Mapping

from fedlingua.backbones.parts import Part
from fedlingua.clustering.clusters import CLUSTERED, Clusters, alone, at_random, by_families, check_number, no_clusters, only
from fedlingua.common import units
from fedlingua.common.errors import ConfigError
from fedlingua.corpora.simulated import check_pool
from fedlingua.corpora.sites import POOLED, Federation
from fedlingua.exchange.tensors import TensorSet
from fedlingua.settings.config import Settings


def planned_clusters(settings: Settings, federation: Federation) -> Clusters | None:
    """Return the clusters of a run; None if the sites' gradients will determine them.

    Raises:
        ConfigError: There are more clusters than sites; the federation file lacks the [clusters] to be taken from it; a site is in more
            than one; the text is mixed, so that sites have no language of their own; or a round takes more sites than there are.
    """
    check_enough(settings, len(federation.sites))
    return _planned(settings, federation)


def check_enough(settings: Settings, sites: int) -> None:
    """Raise ConfigError for rounds of more sites than there are."""
    if (drawn := settings.sites_drawn(sites)) > sites:
        raise ConfigError(f"sites-per-round = {drawn}, and the federation has {sites} sites; give 0 for all of them, or fewer")
    if settings.async_buffer > sites:
        raise ConfigError(
            f"async.buffer = {settings.async_buffer}, and there are {sites} sites; give a number from 1 to {sites}, or 0 to wait for all"
        )


def alone_words(settings: Settings, clusters: Clusters, sent: TensorSet) -> dict[str, str]:
    """Return site -> a warning, with remedies, if parts of its update are averaged with no other. sent: the travelling tensors."""
    helps = "cluster.least = 2" if settings.how.clustering == "families" else "a smaller cluster.number"
    helps = "a larger cluster in the federation file" if settings.cluster_by == "given" else helps
    words = dict[str, str]()
    for part, named in clusters.items() if settings.how.travels and settings.how.clustering != "alone" else ():
        size = 4 * sum(sent.sizes_of(part))
        for site in (sites[0] for sites in named.values() if len(sites) == 1 < len(named) and size):
            words[site] = (f"{words[site]}; " if site in words else "") + (
                f"site {site} shares its {part} with no other site, so {units.data(size)} of each update are averaged with nothing; "
                f"remedies: {helps}, method = 'adapter-fed', or a site with a related language"
            )
    return words


def _planned(settings: Settings, federation: Federation) -> Clusters | None:
    sites, clustering = federation.site_names, settings.how.clustering
    if federation.rules.split.mixed and clustering not in ("none", "alone"):
        raise ConfigError(
            f"method {settings.method} clusters sites by their languages, and under [split] mixed = true every site has all of them; "
            "choose a method without clusters, as adapter-fed, or leave mixed out"
        )
    if settings.how.pooled:
        check_pool(federation, settings.how.pools)
    if clustering == "alone":
        return alone([POOLED] if settings.how.pooled else sites)
    if clustering == "none":
        return no_clusters(sites)
    numbers = numbers_of_clusters(settings, federation)
    if clustering == "gradients":
        return None
    if clustering == "random":
        return only(at_random(sites, numbers, settings.seed), settings.cluster_parts)
    return only(_known(settings, federation), settings.cluster_parts)


def numbers_of_clusters(settings: Settings, federation: Federation) -> Mapping[Part, int]:
    """Return the number of clusters of each part: `cluster.number`, or as many as `cluster.by` makes.
    A part that `cluster.by` does not divide (the decoder, if many sites translate into English) stays whole.

    Raises:
        ConfigError: There are more clusters than sites.
    """
    check_number(settings.num_clusters, federation.site_names)
    known = {part: len(_known(settings, federation)[part]) for part in CLUSTERED}
    return {part: settings.num_clusters if settings.num_clusters > 0 and number > 1 else number for part, number in known.items()}


def numbers_by_gradients(settings: Settings, federation: Federation) -> Mapping[Part, int]:
    """Return how many clusters gradients make of each part: `cluster.number` (-1: the silhouette decides), or as `cluster.by`.
    A part that `cluster.by` leaves whole gets as many as the other, since the paper's gradients divide the decoder into English, too.
    """
    if settings.num_clusters:
        return dict.fromkeys(CLUSTERED, settings.num_clusters)
    known = numbers_of_clusters(settings, federation)
    return {part: number if number > 1 else max(known.values()) for part, number in known.items()}


def _known(settings: Settings, federation: Federation) -> Clusters:
    if settings.cluster_by != "given":
        directions = {site.name: [site.direction] for site in federation.sites}
        return by_families(directions, federation.relatives(settings.cluster_by), settings.cluster_least)
    if federation.clusters is None:
        raise ConfigError(
            f"cluster.by = 'given', and {settings.federation} has no [clusters.encoder] or [clusters.decoder]; give them there, or "
            "choose cluster.by = 'group' or 'family'"
        )
    return federation.clusters
