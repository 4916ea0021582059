"""The text of a simulation's sites: one machine has all of it, so components of equal sentences are sought across all sites."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from fedlingua.corpora.mixed import held_texts
from fedlingua.corpora.sites import read_federation
from fedlingua.corpora.texts import SiteText, read_sites
from fedlingua.pretraining.recipe import forbidden_sides, read_recipe


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
