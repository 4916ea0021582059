"""Text that centralized methods train on as one: everybody's, that of public sites, or that of one site."""

import dataclasses
from collections.abc import Mapping

from fedlingua.common.errors import ConfigError
from fedlingua.corpora.sites import Federation, Site
from fedlingua.corpora.texts import SiteText


def pooled_texts(texts: Mapping[str, SiteText], federation: Federation, pools: str) -> dict[str, SiteText]:
    """Every site's text, of which those outside the pool are only scored. pools: as fedlingua.settings.methods.Method has it."""
    inside = {site.name for site in federation.sites if is_pooled(site, pools)}
    return {name: text if name in inside else _scored_only(text) for name, text in texts.items()}


def is_pooled(site: Site, pools: str) -> bool:
    """Whether a site's text is trained on."""
    return pools == "all" or (site.public if pools == "public" else site.name == pools)


def check_pool(federation: Federation, pools: str) -> None:
    """Refuse a pool of nobody.

    Raises:
        ConfigError: no site is public, or none has the name.
    """
    if not any(is_pooled(site, pools) for site in federation.sites):
        wanted = "public = true at one site at least" if pools == "public" else "the name of a site"
        known = ", ".join(site.name for site in federation.sites)
        raise ConfigError(
            f"{federation.name}: no site is {pools!r}, so nothing would be trained on; wanted {wanted} (here: {known})"
        )


def _scored_only(text: SiteText) -> SiteText:
    return dataclasses.replace(text, splits={**text.splits, "train": [], "dev": []})
