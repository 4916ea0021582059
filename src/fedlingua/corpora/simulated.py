"""The text of a simulation's sites: one machine has all of it, so components of equal sentences are sought across all sites."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from fedlingua.corpora.mixed import held_texts
from fedlingua.corpora.overlap import check_left, digests_of, leaks, left_out, without_leaks
from fedlingua.corpora.recipe import forbidden_sides, read_recipe
from fedlingua.corpora.sites import read_federation
from fedlingua.corpora.texts import SiteText, read_sites

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
    """Every site's text without what another site trains on: what is left of it in a run with overlap = "remove", for all of it as one.

    Raises:
        CorpusError: nothing would be left of a site's dev or test.
    """
    held = texts_by_site(federation_path, data_dir)
    leaking = leaks({site: digests_of(texts.values(), OVERLAP_KEY) for site, texts in held.items()})
    before = all_texts(federation_path, data_dir)
    after = {site: without_leaks(text, leaking[site], OVERLAP_KEY) for site, text in before.items()}
    check_left(
        {site: {split: len(pairs) for split, pairs in text.splits.items()} for site, text in before.items()},
        {site: left_out([before[site]], [after[site]]) for site in before},
    )
    return after
