"""A finished run as a translator: a site's own tensors, or the clusters' for any direction."""

from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

from fedlingua.clustering import Clusters, cluster_for
from fedlingua.config import Settings
from fedlingua.corpora.sites import read_federation
from fedlingua.errors import RunError
from fedlingua.exchange.delivery import delivered, is_delivered
from fedlingua.exchange.tensors import TRAVEL_WHOLE, Tensors, check_tensors
from fedlingua.files import resolve
from fedlingua.finished import FinishedRun, same_backbone, settings_of
from fedlingua.languages import Direction, nearest, parse_direction

if TYPE_CHECKING:  # what a run cannot give is told without torch
    from fedlingua.exchange.trainable import Trainable


class Translator:
    """Translates in one direction with fixed tensors; `tensors = None` is the base."""

    def __init__(self, settings: Settings, trainable: "Trainable", tensors: Tensors | None, direction: Direction) -> None:
        self.settings, self.trainable, self.direction = settings, trainable, direction
        trainable.backbone.codec.check([direction])
        self.is_base = tensors is None
        if tensors is not None:
            from fedlingua.exchange.tensor_sets import write_tensors

            write_tensors(trainable.model, check_tensors(tensors, trainable.trained))

    @classmethod
    def of_site(cls, run_dir: Path, site: str) -> Self:
        """What `site` uses after the run.

        Raises:
            RunError: no such site, a run that did not get that far, or one that trained no translation.
        """
        finished = FinishedRun.of(run_dir)
        folder, settings = finished.folder, finished.settings
        _check_translates(settings, run_dir)
        sites = folder.read("sites.json") or {}
        # A pooled site stands for many, which keep their names.
        hosts = {name: host for host, about in sites.items() for name in about["members"]}
        if site not in hosts:
            raise RunError(f"run {run_dir} has no site {site!r}{nearest(site, hosts)}; it has {', '.join(hosts)}")
        direction = parse_direction(sites[hosts[site]]["members"][site])
        left = folder.directory / "sites" / hosts[site]
        if not settings.how.trains:
            return cls(settings, finished.trainable(), None, direction)
        if is_delivered(left):
            tensors, _ = delivered(left)
            return cls(settings, finished.trainable(), tensors, direction)
        if settings.how.travels and settings.trained_set in TRAVEL_WHOLE:
            return cls.of_direction(run_dir, direction)
        raise RunError(
            f"{left}: nothing was delivered here; what {site} trained lies with the site itself (`fedlingua site translate` there)"
        )

    @classmethod
    def of_delivery(cls, folder: Path) -> Self:
        """What a deployed site was sent at a run's end; `folder`: the run's, in the site's state.

        Raises:
            RunError: nothing was delivered there, it does not translate, or the backbone has changed since.
        """
        tensors, about = delivered(folder)
        settings = settings_of(about["settings"])
        _check_translates(settings, folder)
        trainable = same_backbone(settings, about["backbone_fingerprint"])
        return cls(settings, trainable, tensors, parse_direction(about["direction"]))

    @classmethod
    def of_direction(cls, run_dir: Path, direction: Direction) -> Self:
        """Any direction, held by a site or not: the encoder cluster nearest to the source, the decoder cluster nearest to the target.

        Raises:
            RunError: a method that leaves nothing at the server, or a run that trained no translation. ConfigError: no cluster for these
                languages.
        """
        finished = FinishedRun.of(run_dir)
        folder, settings = finished.folder, finished.settings
        _check_translates(settings, run_dir)
        if not settings.how.trains:
            return cls(settings, finished.trainable(), None, direction)
        if not settings.how.travels:
            raise RunError(f"method {settings.method} leaves nothing at the server; give --site instead of --direction")
        if settings.trained_set not in TRAVEL_WHOLE:
            raise RunError(
                f"tensor-set = {settings.trained_set!r}: only a part of what was trained is at the server, each site keeps the rest of it; "
                "give --site instead of --direction"
            )
        federation = read_federation(resolve(settings.federation), Path())
        kept = folder.checkpoints.load(int(finished.about["best_round"])).tensors
        clusters = cast(Clusters, folder.read("clusters.json"))
        directions = {site.name: [site.direction] for site in federation.sites}
        tensors: Tensors = {}
        for part in clusters:
            tensors |= kept[part][cluster_for(direction, part, clusters, directions, federation.relatives(settings.cluster_by))]
        return cls(settings, finished.trainable(), tensors, direction)

    def translate(self, sentences: list[str]) -> list[str]:
        """One translation a sentence, in order; empty ones stay empty."""
        from fedlingua.evaluation.decode import translate

        model, codec, settings = self.trainable.model, self.trainable.backbone.codec, self.settings
        lengths = (settings.beam, settings.max_tokens, settings.max_decode_tokens)
        if self.is_base:
            with self.trainable.as_base():
                return translate(model, codec, sentences, self.direction, *lengths)
        return translate(model, codec, sentences, self.direction, *lengths)


def _check_translates(settings: Settings, where: Path) -> None:
    if settings.task != "translation":
        raise RunError(
            f"{where}: task = {settings.task!r} trained an encoder, which translates nothing; give a run with task = 'translation', or "
            "judge the encoder with `fedlingua finetune --run`"
        )
