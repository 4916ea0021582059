"""What a finished run left to translate with: each site's own tensors, and the clusters' for any direction."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import cast

from fedlingua.backbones.parts import Part
from fedlingua.clustering.clusters import EVERYBODY, Clusters, Relatives, cluster_for, cluster_of
from fedlingua.common.errors import ConfigError, RunError
from fedlingua.common.languages import Direction, nearest, parse_written
from fedlingua.corpora.sites import read_federation
from fedlingua.exchange.delivery import delivered, delivered_about, is_delivered
from fedlingua.exchange.tensors import TRAVEL_WHOLE, Tensors
from fedlingua.runs.finished import FinishedRun
from fedlingua.settings.config import Settings

_BASE = ("base",)


@dataclass(frozen=True)
class Variant:
    """A direction, of an encoder the language of the text, and whose tensors it has.

    site: who uses them; None: a direction was asked for. number: of the round that they are of; None of no round. clusters: part ->
    cluster, where they are the clusters'. key: two variants with the same one have the same tensors. load: reads them; None: the base, as
    it was published.
    """

    direction: Direction
    site: str | None
    clusters: Mapping[Part, str]
    key: tuple[str, ...]
    number: int | None
    load: Callable[[], Tensors] | None = field(repr=False, compare=False)

    @property
    def told(self) -> str:
        """Who answers, in words."""
        if self.site:
            return f"site {self.site}" if self.load else f"site {self.site}, which uses the base"
        if self.load is None:
            return "the base"
        if set(self.clusters.values()) <= {EVERYBODY}:
            return "the federation, all sites in one cluster"
        return ", ".join(f"{part} cluster {name}" for part, name in self.clusters.items() if part != "shared")


class RunVariants:
    """A finished run, opened for its variants. encoders: also one that trained no translation."""

    def __init__(self, run_dir: Path, encoders: bool = False) -> None:
        """
        Raises:
            RunError: no run is there, it is not completed, or it trained no translation.
        """
        self.run_dir, self.finished = run_dir, FinishedRun.of(run_dir)
        self.settings = self.finished.settings
        if not encoders:
            check_translates(self.settings, run_dir)
        sites = self.finished.folder.read("sites.json") or {}
        # A pooled site stands for many, which keep their names.
        self._hosts = {name: host for host, about in sites.items() for name in about["members"]}
        self.sites = {name: parse_written(sites[host]["members"][name]) for name, host in self._hosts.items()}
        self.clusters = cast(Clusters, self.finished.folder.read("clusters.json") or {})

    @property
    def why_no_direction(self) -> str:
        """Why sites alone can be asked, and no direction that nobody holds; empty where one can."""
        if self._why_not_here or not self.settings.how.trains:
            return self._why_not_here
        try:
            _ = self._relatives
        except ConfigError as error:
            return f"which languages are related stands in the federation's file, which cannot be read here ({error})"
        return ""

    @property
    def _why_not_here(self) -> str:
        """Why the server has not all that was trained; empty where it has."""
        if not self.settings.how.trains:
            return ""
        if not self.settings.how.travels:
            return f"method {self.settings.method} leaves nothing at the server"
        if self.settings.trained_set not in TRAVEL_WHOLE:
            return (
                f"tensor-set = {self.settings.trained_set!r}: only a part of what was trained is at the server, each site keeps the rest "
                "of it"
            )
        return ""

    def of_site(self, site: str) -> Variant:
        """What `site` uses after the run.

        Raises:
            RunError: no such site, or nothing of it is here.
        """
        if site not in self._hosts:
            raise RunError(
                f"run {self.run_dir} has no site {site!r}{nearest(site, self._hosts)}; it has {', '.join(self._hosts)}"
            )
        direction, host, left = self.sites[site], self._hosts[site], self._left(site)
        if not self.settings.how.trains:
            return Variant(direction, site, {}, _BASE, None, None)
        if is_delivered(left):
            return Variant(direction, site, {}, ("site", host), delivered_about(left)["round"], lambda: delivered(left)[0])
        if not self._why_not_here:
            return self._of_clusters(direction, site, {part: cluster_of(self.clusters, part, host) for part in self.clusters})
        raise RunError(
            f"{left}: nothing was delivered here; what {site} trained lies with the site itself (`fedlingua site translate` and "
            "`fedlingua site export` there)"
        )

    def is_here(self, site: str) -> bool:
        """Whether what one of the sites uses lies here, and not with the site alone."""
        return not self._why_not_here or is_delivered(self._left(site))

    def _left(self, site: str) -> Path:
        return self.finished.folder.directory / "sites" / self._hosts[site]

    def of_direction(self, direction: Direction) -> Variant:
        """Any direction, held by a site or not: the encoder cluster nearest to the source, the decoder cluster nearest to the target; of a
        run that trained nothing the base.

        Raises:
            RunError: a method that leaves nothing at the server, or a run that trained no translation. ConfigError: no cluster for these
                languages.
        """
        check_translates(self.settings, self.run_dir)
        if self.why_no_direction:
            raise RunError(f"{self.why_no_direction}; give --site instead of --direction")
        if not self.settings.how.trains:
            return Variant(direction, None, {}, _BASE, None, None)
        return self._of_clusters(direction, None, self._nearest(direction))

    def members(self, part: Part, cluster: str) -> tuple[str, ...]:
        """The sites of a cluster."""
        return tuple(self.clusters[part][cluster])

    @cached_property
    def _relatives(self) -> Relatives | None:
        """None where every part is one cluster, so that nobody has to know who is related.

        Raises:
            ConfigError: the federation's file is not here any more, or is none.
        """
        if all(len(named) == 1 for named in self.clusters.values()):
            return None
        return read_federation(self.settings.federation_path, Path()).relatives(self.settings.cluster_by)

    def _nearest(self, direction: Direction) -> dict[Part, str]:
        if self._relatives is None:
            return {part: next(iter(named)) for part, named in self.clusters.items()}
        directions = {
            host: [self.sites[name] for name, its_host in self._hosts.items() if its_host == host]
            for host in dict.fromkeys(self._hosts.values())
        }
        return {part: cluster_for(direction, part, self.clusters, directions, self._relatives) for part in self.clusters}

    def _of_clusters(self, direction: Direction, site: str | None, chosen: Mapping[Part, str]) -> Variant:
        number = int(self.finished.about["best_round"])

        def load() -> Tensors:
            kept = self.finished.folder.checkpoints.load(number).tensors
            return {name: array for part, cluster in chosen.items() for name, array in kept[part].get(cluster, {}).items()}

        return Variant(direction, site, chosen, ("clusters", *chosen.values()), number, load)


def check_translates(settings: Settings, where: Path) -> None:
    """Refuse what trained an encoder.

    Raises:
        RunError: names the task.
    """
    if settings.task != "translation":
        raise RunError(
            f"{where}: task = {settings.task!r} trained an encoder, which translates nothing; give a run with task = 'translation', or "
            "judge the encoder with `fedlingua finetune --run`"
        )
