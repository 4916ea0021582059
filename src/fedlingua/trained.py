"""What a finished run has trained, as one site uses it or for one direction: tensors, and all that says what they fit on.

A site's come from what was delivered to it; where nothing was, and where no site is asked for, from the clusters of the best round.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, cast

from fedlingua.clustering import Clusters, cluster_for, cluster_of
from fedlingua.config import Settings
from fedlingua.corpora.sites import read_federation
from fedlingua.errors import RunError
from fedlingua.exchange.delivery import delivered, is_delivered
from fedlingua.exchange.tensor_sets import TENSOR_SETS, Tensors
from fedlingua.exchange.trainable import Trainable
from fedlingua.files import resolve
from fedlingua.finished import FinishedRun, same_backbone, settings_of
from fedlingua.languages import Direction, nearest, parse_written
from fedlingua.parts import Part


@dataclass(frozen=True)
class Trained:
    """Tensors that no model holds yet.

    fingerprint: of the backbone that they fit on. tensors: all that trained; None of a method that trains nothing. direction: of an encoder
    the language of the site's text. site: None where a direction was asked for. number: of the round that they are of; None of no round.
    """

    settings: Settings
    fingerprint: str
    tensors: Tensors | None
    direction: Direction
    site: str | None
    number: int | None

    @classmethod
    def of_site(cls, run_dir: Path, site: str) -> Self:
        """What `site` uses after the run.

        Raises:
            RunError: no such site, or a run that did not get that far.
        """
        finished = FinishedRun.of(run_dir)
        folder, settings = finished.folder, finished.settings
        sites = folder.read("sites.json") or {}
        # A pooled site stands for many, which keep their names.
        hosts = {name: host for host, about in sites.items() for name in about["members"]}
        if site not in hosts:
            raise RunError(f"run {run_dir} has no site {site!r}{nearest(site, hosts)}; it has {', '.join(hosts)}")
        host = hosts[site]
        direction = parse_written(sites[host]["members"][site])
        left = folder.directory / "sites" / host
        if not settings.how.trains:
            return cls(settings, _fingerprint(finished), None, direction, site, None)
        if is_delivered(left):
            tensors, about = delivered(left)
            return cls(settings, _fingerprint(finished), tensors, direction, site, about["round"])
        if settings.how.travels and TENSOR_SETS[settings.trained_set].travels_whole:
            clusters = cast(Clusters, folder.read("clusters.json"))
            chosen = {part: cluster_of(clusters, part, host) for part in clusters}
            return cls._of_clusters(finished, chosen, direction, site)
        raise RunError(
            f"{left}: nothing was delivered here; what {site} trained lies with the site itself (`fedlingua site translate` and "
            "`fedlingua site export` there)"
        )

    @classmethod
    def of_direction(cls, run_dir: Path, direction: Direction) -> Self:
        """For any direction, held by a site or not: the encoder cluster nearest to the source, the decoder cluster nearest to the target.

        Raises:
            RunError: a method that leaves nothing at the server, or a run that trained no translation. ConfigError: no cluster for these
                languages.
        """
        finished = FinishedRun.of(run_dir)
        folder, settings = finished.folder, finished.settings
        check_translates(settings, run_dir)
        if not settings.how.trains:
            return cls(settings, _fingerprint(finished), None, direction, None, None)
        if not settings.how.travels:
            raise RunError(f"method {settings.method} leaves nothing at the server; give --site instead of --direction")
        if not TENSOR_SETS[settings.trained_set].travels_whole:
            raise RunError(
                f"tensor-set = {settings.trained_set!r}: only a part of what was trained is at the server, each site keeps the rest of it; "
                "give --site instead of --direction"
            )
        federation = read_federation(resolve(settings.federation), Path())
        clusters = cast(Clusters, folder.read("clusters.json"))
        directions = {site.name: [site.direction] for site in federation.sites}
        relatives = federation.relatives(settings.cluster_by)
        chosen = {part: cluster_for(direction, part, clusters, directions, relatives) for part in clusters}
        return cls._of_clusters(finished, chosen, direction, None)

    @classmethod
    def of_delivery(cls, folder: Path) -> Self:
        """What a deployed site was sent at a run's end; `folder`: the run's, in the site's state.

        Raises:
            RunError: nothing was delivered there.
        """
        tensors, about = delivered(folder)
        direction = parse_written(about["direction"])
        return cls(
            settings_of(about["settings"]), about["backbone_fingerprint"], tensors, direction, about["site"], about["round"]
        )

    @classmethod
    def _of_clusters(cls, finished: FinishedRun, chosen: dict[Part, str], direction: Direction, site: str | None) -> Self:
        number = int(finished.about["best_round"])
        kept = finished.folder.checkpoints.load(number).tensors
        tensors = {name: array for part, cluster in chosen.items() for name, array in kept[part].get(cluster, {}).items()}
        return cls(finished.settings, _fingerprint(finished), tensors, direction, site, number)

    def trainable(self, **changes: Any) -> Trainable:
        """The backbone with what the run's method trains, as before any training. changes: of the settings, such as `device`.

        Raises:
            RunError: the backbone is not the one that the tensors fit on. BackboneError: it cannot be loaded.
        """
        return same_backbone(replace(self.settings, **changes), self.fingerprint)


def check_translates(settings: Settings, where: Path) -> None:
    """Refuse a run that trained an encoder.

    Raises:
        RunError: with what can be done with one.
    """
    if settings.task != "translation":
        raise RunError(
            f"{where}: task = {settings.task!r} trained an encoder, which translates nothing; give a run with task = 'translation', or "
            "judge the encoder with `fedlingua finetune --run`"
        )


def _fingerprint(finished: FinishedRun) -> str:
    return str(finished.about["backbone"]["fingerprint"])
