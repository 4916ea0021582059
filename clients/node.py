"""A node: the sites that it hosts, their text and folders, and the run's settings as they take effect here.

In a simulation one machine hosts all sites, which the federation file describes; text can be mixed, and a centralized method has one
pseudo-site with the text of all. A deployed node has its own site file (`site-file` in its node config).
"""

import logging
from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from random import Random, SystemRandom
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from flwr.app import Context

from clients.guard import Guard
from fedlingua.common import cache
from fedlingua.common.errors import ExchangeError
from fedlingua.common.files import written_once
from fedlingua.consent.bundle import approved
from fedlingua.consent.ledger import Ledger
from fedlingua.consent.overlap_key import read_overlap_key
from fedlingua.consent.site_file import SITE_FILE, SiteFile, read_site_file
from fedlingua.corpora.rules import TextRules
from fedlingua.corpora.simulated import OVERLAP_KEY, all_texts, federation_of, pooled_texts, texts_by_site, texts_without_leaks
from fedlingua.corpora.sites import POOLED
from fedlingua.corpora.texts import SiteText, check_documents, read_text
from fedlingua.exchange.protocol import Task
from fedlingua.layers.layer import Consent
from fedlingua.layers.secure_site import Trust
from fedlingua.runs.folder import RunFolder, run_directory
from fedlingua.settings.config import Settings

if TYPE_CHECKING:
    from fedlingua.exchange.trainable import Trainable

_log = logging.getLogger("fedlingua.client")
_READ: dict[str, tuple[Any, Mapping[str, SiteText]]] = {}
"""Deployed site -> its text, which a process reads once as long as its files do not change, and from what it was read."""


def node_of(context: Context, settings: Settings) -> "Node":
    """Create the node that the config describes."""
    if not is_deployed(context):
        return SimulatedNode(settings, context)
    if settings.how.pooled:
        raise ExchangeError(
            f"method {settings.method} pools all sites' text, which only a simulation can; a deployed site's text stays with it"
        )
    return DeployedNode(settings, site_file_of(context))


def site_file_of(context: Context) -> SiteFile:
    return read_site_file(Path(str(context.node_config[SITE_FILE])))


def is_deployed(context: Context) -> bool:
    """Return whether the node's config names a site file."""
    return SITE_FILE in context.node_config


@lru_cache(maxsize=1)
def trainable_of(settings: Settings) -> "Trainable":
    """Build the run's model once per process; every message overwrites all tensors that an earlier one trained."""
    from fedlingua.exchange.trainable import build_trainable

    return build_trainable(settings)


class AnyNode:
    """What both kinds of node have. guard, trust: A deployed node's message checks, and the sites that it trusts in secure sums."""

    settings: Settings
    guard: Guard | None = None  # from a simulation nothing leaves the machine
    trust: Trust | None = None

    def check_text(self, texts: Mapping[str, SiteText]) -> None:
        """Raise ConfigError or ExchangeError if texts do not do for a reply."""
        check_documents(texts, self.settings.dp_unit)
        if self.guard:
            self.guard.check_text(texts)

    def check_update(self, client: Any, task: Task) -> None:
        """Raise ExchangeError if the site's limits forbid the update of a round."""
        if self.guard:
            self.guard.check_update(partial(client.step_sizes, task.round))


class SimulatedNode(AnyNode):
    """Partition p of n of a simulation. It hosts sites p, p+n, ... or the pooled site; their folders are inside the run folder."""

    @property
    def least_sites(self) -> int:
        """The fewest sites of whose sum a site takes part in."""
        return self.settings.privacy_min_cluster

    def __init__(self, settings: Settings, context: Context) -> None:
        self.settings, self._run_id, self.base_results = settings, context.run_id, cache.base_results_dir()
        self._partition, self._partitions = (int(context.node_config[key]) for key in ("partition-id", "num-partitions"))

    @property
    def names(self) -> list[str]:
        """Names of the hosted sites."""
        federation = federation_of(self.settings.federation_path, self.settings.data_dir)
        hosted = [POOLED] if self.settings.how.pooled else federation.site_names
        return hosted[self._partition :: self._partitions]

    def texts(self, site: str, rules: TextRules) -> Mapping[str, SiteText]:
        """Read a site's texts, cleaned and split: name of the site of origin -> text; several texts if pooled or mixed."""
        where = (self.settings.federation_path, self.settings.data_dir)
        if self.settings.how.pooled:
            federation = federation_of(*where)
            # The pseudo-site is not compared with other sites, but it must be scored on the same sentences as they are.
            texts = texts_without_leaks(*where) if self.settings.overlap == "remove" else all_texts(*where)
            return pooled_texts(texts, federation, self.settings.how.pools)
        return texts_by_site(*where)[site]

    def directory(self, site: str, run: str) -> Path:
        """Return a site's private folder for a run."""
        folder = run_directory(self.settings, self._run_id) / "sites" / site
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def note(self, site: str, line: str, step: bool, done: float) -> None:
        """Report a site's progress after the last round. step: whether the line begins or ends a step; done: share of its work, 0-1."""
        RunFolder(run_directory(self.settings, self._run_id)).event("site", site=site, text=line, step=step, done=round(done, 3))

    def warn(self, texts: Iterable[str]) -> None:
        """Warn of the sites' text: in the run folder; a deployed node in its own log, as no character of a text may leave it."""
        folder = RunFolder(run_directory(self.settings, self._run_id))
        if folder.directory.is_dir():
            folder.warn(texts)

    def consent(self, site: str, run: str) -> Consent:
        """Return what the site permits."""
        # The noise is seeded: nothing leaves the machine, and the same seed has to give the same bytes.
        ledger = Ledger(self.directory(site, run) / "ledger.json")
        return Consent(True, Random(f"{self.settings.seed}/{site}/noise"), ledger)

    def seed(self, purpose: str) -> str:
        """Return the seed of draws for a purpose; a deployed site's has a secret."""
        return f"{self.settings.seed}/{purpose}"

    def overlap_key(self) -> bytes:
        """Return the key for hashing sentences that are compared with other sites'."""
        return OVERLAP_KEY

    def signatures(self, site: str, run: str) -> Path:
        """Return the folder of the signatures that the site sent."""
        return self.directory(site, run) / "signatures"


class DeployedNode(AnyNode):
    """A node that hosts the sites of a site file. Only the node reads their text, following the text rules in the message."""

    def __init__(self, settings: Settings, file: SiteFile) -> None:
        self._file, self.settings, self.base_results = file, file.here(settings), file.state / "base-results"
        self.guard = Guard(file, settings, self.settings)
        asks = file.limits.settings == "approved"
        self.trust = None if file.insecure else Trust(file.key, approved(file.approvals) if asks else None)

    @property
    def names(self) -> list[str]:
        return [site.name for site in self._file.sites]

    def texts(self, site: str, rules: TextRules) -> Mapping[str, SiteText]:
        self._file.check_rules(rules)
        mine = [hosted for hosted in self._file.sites if hosted.name == site]
        files = [path for hosted in mine if hosted.corpus for path in hosted.corpus.paths() if isinstance(path, Path)]
        what = mine, rules, [(path, path.stat().st_mtime_ns, path.stat().st_size) for path in files if path.is_file()]
        if _READ.get(site, (None,))[0] != what:
            _READ[site] = what, read_text(mine, rules)
        return _READ[site][1]

    def directory(self, site: str, run: str) -> Path:
        return self._file.run_directory(run, site)

    def note(self, site: str, line: str, step: bool, done: float) -> None:
        _log.info("site %s: %s (%.0f %% of the last phase)", site, line, 100 * done)

    def warn(self, texts: Iterable[str]) -> None:
        for text in texts:
            _log.warning("%s", text)

    def consent(self, site: str, run: str) -> Consent:
        # The server knows the run's seed, so the noise must not follow from it.
        return Consent(self._file.raw_gradients, SystemRandom(), self._file.ledger(site))

    @property
    def least_sites(self) -> int:
        least = self._file.limits.min_cluster
        # A sum of fewer sites would have less than the whole noise.
        return max(least, self.settings.privacy_min_cluster) if self.settings.shares_noise else least

    def seed(self, purpose: str) -> str:
        # With the size, as a larger draw under the same seed begins with the smaller one.
        size = f"{self.settings.meta_batches}x{self.settings.meta_batch_size}"
        return f"{written_once(self._file.state / 'secret', token_hex(16))}/{size}/{self.settings.seed}/{purpose}"

    def overlap_key(self) -> bytes:
        if self._file.overlap_key is None:
            raise ExchangeError(
                f"overlap = {self.settings.overlap!r} compares the sites' text by hashes under a key that they share, and this site's file "
                "names none: [node] overlap-key = 'FILE', the same key at every site"
            )
        return read_overlap_key(self._file.overlap_key)

    def signatures(self, site: str, run: str) -> Path:
        # Shared by all runs, as the privacy budget is; the server chooses the names of run folders, so those would not do.
        return self._file.state / "signatures" / site


Node = SimulatedNode | DeployedNode
"""A node as the ClientApp sees it."""
