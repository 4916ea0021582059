"""Read overlap.json: what of each site's text stands at other sites, and what of its dev and test they train on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedlingua.desk.report.values import integers, objects

FILE = "overlap.json"


@dataclass(frozen=True)
class SharedLanguage:
    """One language of a site: distinct sentences, those that stand at another site, and those of dev and test that another trains on."""

    site: str
    language: str
    sentences: int
    elsewhere: int
    dev: int
    test: int

    @property
    def share(self) -> str:
        return f"{100 * self.elsewhere / self.sentences:.1f} %" if self.sentences else ""


@dataclass(frozen=True)
class SitesOverlap:
    """What a comparison of the sites' text found. leaks: site -> (pairs of dev, of test); removed: whether these were left out."""

    removed: bool
    languages: list[SharedLanguage]
    leaks: dict[str, tuple[int, int]]


def read_overlap(content: Mapping[str, Any]) -> SitesOverlap | None:
    """What overlap.json holds; None where a run compared nothing. Languages that one site alone has are left out."""
    sites = objects(content.get("sites"))
    if not sites:
        return None
    languages = [
        _language(site, language, of)
        for site, told in sites.items()
        for language, of in objects(told.get("languages")).items()
        if of.get("at")
    ]
    counts = {site: integers(told.get("leaks")) for site, told in sites.items()}
    leaks = {site: (count.get("dev", 0), count.get("test", 0)) for site, count in counts.items()}
    return SitesOverlap(content.get("removed") is True, languages, leaks)


def _language(site: str, language: str, of: Mapping[str, Any]) -> SharedLanguage:
    have, shared = integers(of.get("sentences")), integers(of.get("elsewhere"))
    return SharedLanguage(site, language, have.get("all", 0), shared.get("all", 0), shared.get("dev", 0), shared.get("test", 0))
