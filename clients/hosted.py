"""Which sites a node hosts, and the text and folder of each."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from flwr.app import Context

from fedlingua.config import Settings
from fedlingua.corpora.sites import Federation, SiteText, read_federation, read_sites
from fedlingua.pretraining.recipe import forbidden_sides, read_recipe
from fedlingua.runs import run_directory


def hosted_sites(context: Context, federation: Federation) -> list[str]:
    """Names of the sites on this node: in simulation, partition p of n hosts sites p, p+n, ... of the federation file."""
    partition, partitions = int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
    return federation.site_names[partition::partitions]


def site_directory(context: Context, settings: Settings, site: str) -> Path:
    """A site's private folder; in simulation it lies inside the run folder."""
    return run_directory(settings, context.run_id) / "sites" / site


def federation_of(settings: Settings) -> Federation:
    """The run's federation file, its corpora looked for under `data-dir`."""
    return read_federation(settings.federation_path, Path(settings.data_dir).expanduser())


@lru_cache(maxsize=4)
def site_texts(federation_path: Path, data_dir: str) -> Mapping[str, SiteText]:
    """Every site's text, read once for each process: components of equal sentences are sought across all sites."""
    data = Path(data_dir).expanduser()
    federation = read_federation(federation_path, data)
    base = forbidden_sides(read_recipe(federation.base, data)) if federation.base else set()
    return read_sites(federation, base)
