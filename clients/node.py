"""A node: which sites it hosts, where their text and folders are, and the run's settings as they hold here.

In simulation one machine plays all sites, so the federation file says everything, components of equal sentences are sought
across all of them, and text can be mixed; for a centralized method it plays one pseudo-site that holds the text of all. A
deployed node has a file of its own (`site-file` in its node config); paths that the server names mean nothing there.
"""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random, SystemRandom
from typing import Protocol

from flwr.app import Context

from clients.guard import Guard
from fedlingua.common import cache
from fedlingua.common.errors import ExchangeError
from fedlingua.consent.overlap_key import read_overlap_key
from fedlingua.consent.site_file import SITE_FILE, SiteFile, read_site_file
from fedlingua.corpora.rules import TextRules
from fedlingua.corpora.simulated import OVERLAP_KEY, all_texts, pooled_texts, texts_by_site, texts_without_leaks
from fedlingua.corpora.sites import POOLED, read_federation
from fedlingua.corpora.texts import SiteText, read_text
from fedlingua.runs.folder import RunFolder, run_directory
from fedlingua.settings.config import Settings

_log = logging.getLogger("fedlingua.client")


@dataclass(frozen=True)
class Consent:
    """What a site lets out for its signatures.

    raw: whether raw gradients; max_epsilon: of all its private signatures together; noise: theirs.
    """

    raw: bool
    max_epsilon: float
    noise: Random


class Node(Protocol):
    """A node as the ClientApp sees it."""

    settings: Settings
    base_results: Path
    """the folder of what the untrained backbone makes of the sites' text, for all runs"""

    @property
    def guard(self) -> Guard | None:
        """What checks messages, on a deployed node."""

    @property
    def names(self) -> list[str]:
        """The hosted sites."""

    def texts(self, site: str, rules: TextRules) -> Mapping[str, SiteText]:
        """Read a site's text, cleaned and split, under its name; where text is pooled or mixed its texts, each under the name of
        the site that it is from.
        """

    def directory(self, site: str, run: str) -> Path:
        """A site's private folder for a run."""

    def note(self, site: str, line: str, step: bool) -> None:
        """Say what a site does after the last round. step: whether the line begins or ends a step of that."""

    def consent(self, site: str) -> Consent:
        """What the site lets out for its signatures."""

    def overlap_key(self) -> bytes:
        """The key under which sentences are hashed, to be compared with other sites'."""

    def signatures(self, site: str, run: str) -> Path:
        """The folder of the signatures that the site has given."""


def node_of(context: Context, settings: Settings) -> Node:
    """Make this node: deployed when its config names a site file, else a partition of a simulation."""
    if not is_deployed(context):
        return SimulatedNode(settings, context)
    if settings.how.pooled:
        raise ExchangeError(
            f"method {settings.method} pools all sites' text, which only a simulation can; a deployed site's text stays with it"
        )
    return DeployedNode(settings, site_file_of(context))


def site_file_of(context: Context) -> SiteFile:
    """The file of a deployed node."""
    return read_site_file(Path(str(context.node_config[SITE_FILE])))


def is_deployed(context: Context) -> bool:
    """Whether the node's config names a site file."""
    return SITE_FILE in context.node_config


class SimulatedNode:
    """Partition p of n hosts sites p, p+n, ... of the federation file, or the pooled one; their folders lie inside the run folder."""

    def __init__(self, settings: Settings, context: Context) -> None:
        self.settings, self.guard = settings, None  # nothing leaves the machine
        self._partition, self._partitions = (int(context.node_config[key]) for key in ("partition-id", "num-partitions"))
        self._run_id, self.base_results = context.run_id, cache.base_results_dir()

    @property
    def names(self) -> list[str]:
        federation = read_federation(self.settings.federation_path, Path(self.settings.data_dir).expanduser())
        hosted = [POOLED] if self.settings.how.pooled else federation.site_names
        return hosted[self._partition :: self._partitions]

    def texts(self, site: str, rules: TextRules) -> Mapping[str, SiteText]:
        where = (self.settings.federation_path, self.settings.data_dir)
        if self.settings.how.pooled:
            federation = read_federation(where[0], Path(where[1]).expanduser())
            # One pseudo-site is compared with nobody, and is to be scored on what the sites are scored on.
            texts = texts_without_leaks(*where) if self.settings.overlap == "remove" else all_texts(*where)
            return pooled_texts(texts, federation, self.settings.how.pools)
        return texts_by_site(*where)[site]

    def directory(self, site: str, run: str) -> Path:
        folder = run_directory(self.settings, self._run_id) / "sites" / site
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def note(self, site: str, line: str, step: bool) -> None:
        RunFolder(run_directory(self.settings, self._run_id)).event("site", site=site, text=line, step=step)

    def consent(self, site: str) -> Consent:
        # Nothing leaves the machine, and the same seed gives the same bytes.
        return Consent(True, math.inf, Random(f"{self.settings.seed}/{site}/noise"))

    def overlap_key(self) -> bytes:
        return OVERLAP_KEY

    def signatures(self, site: str, run: str) -> Path:
        return self.directory(site, run) / "signatures"


class DeployedNode:
    """The sites of a site file; only this node reads their text, by the rules in the message."""

    def __init__(self, settings: Settings, file: SiteFile) -> None:
        self._file, self.settings, self.base_results = file, file.here(settings), file.state / "base-results"
        self.guard = Guard(file, settings, self.settings)

    @property
    def names(self) -> list[str]:
        return [site.name for site in self._file.sites]

    def texts(self, site: str, rules: TextRules) -> Mapping[str, SiteText]:
        if rules.split.mixed:
            raise ExchangeError(
                "mixed = true mixes all sites' text, which only a simulation can; a deployed site's text stays with it"
            )
        mine = [hosted for hosted in self._file.sites if hosted.name == site]
        if rules.split.mode == "components" and not all(hosted.direction.is_one_language for hosted in mine):
            raise ExchangeError(
                "split mode 'components' needs all sites' text in one place; a deployed federation takes mode = 'shared-side'"
            )
        return read_text(mine, rules)

    def directory(self, site: str, run: str) -> Path:
        return self._file.run_directory(run, site)

    def note(self, site: str, line: str, step: bool) -> None:
        _log.info("site %s: %s", site, line)

    def consent(self, site: str) -> Consent:
        # The server knows the run's seed, so the noise is not of it.
        return Consent(self._file.raw_gradients, self._file.max_epsilon, SystemRandom())

    def overlap_key(self) -> bytes:
        if self._file.overlap_key is None:
            raise ExchangeError(
                f"overlap = {self.settings.overlap!r} compares the sites' text by hashes under a key that they share, and this site's file "
                "names none: [node] overlap-key = 'FILE', the same key at every site"
            )
        return read_overlap_key(self._file.overlap_key)

    def signatures(self, site: str, run: str) -> Path:
        # Not by run, which the server names: what was given stays given.
        return self._file.state / "signatures" / site
