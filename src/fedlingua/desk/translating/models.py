"""The models of a completed run: each site's own, the clusters' for any direction, and what was delivered to a site."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from safetensors import SafetensorError
from safetensors.numpy import load_file

from fedlingua.backbones.parts import Part
from fedlingua.clustering.clusters import EVERYBODY, Clusters, Relatives, cluster_of, language_of_part
from fedlingua.common.errors import ConfigError, RunError
from fedlingua.common.languages import Direction, nearest, parse_written
from fedlingua.corpora.sites import read_federation
from fedlingua.desk.completed import CompletedRun, same_backbone, settings_of
from fedlingua.exchange.delivery import ADAPTER, AGAIN, MODEL, SCORES, SECOND, delivered_about, is_delivered
from fedlingua.exchange.tensors import Tensors
from fedlingua.settings.config import Settings

if TYPE_CHECKING:  # a model that a run does not have is refused without loading torch
    from fedlingua.exchange.trainable import Trainable


@dataclass(frozen=True)
class TrainedModel:
    """A direction and the tensors that translate it, not loaded yet.

    Attributes:
        settings: Settings of the run.
        fingerprint: Fingerprint of the backbone that the tensors fit.
        direction: What is translated; of an encoder, the language of its text.
        site: The site that uses the model; None if a direction was asked for.
        round: The round that the tensors are from; None if from no round.
        load: Reads the tensors; None for the base, as it was published.
        key: Equal for two models of a run if their tensors are the same.
        clusters: Part -> cluster, if the tensors are those of clusters.
        folder: The site's folder in the run; None without a site.
        candidate: The candidate that the site kept (`personalization.choice`), or that is an ensemble's first model; None if it chose
            among none.
        second: The second model of an ensemble, with its share of the mean; None without.
    """

    settings: Settings = field(repr=False, compare=False)
    fingerprint: str = field(repr=False, compare=False)
    direction: Direction
    site: str | None
    round: int | None = None
    load: Callable[[], Tensors] | None = field(default=None, repr=False, compare=False)
    key: tuple[str, ...] = ("base",)
    clusters: Mapping[Part, str] = field(default_factory=dict)
    folder: Path | None = field(default=None, repr=False, compare=False)
    candidate: str | None = None
    second: "tuple[TrainedModel, float] | None" = None

    @classmethod
    def of_delivery(cls, folder: Path) -> Self:
        """Load the model that was delivered to a deployed site. folder: the run's folder in the site's state."""
        about = delivered_about(folder)
        settings, direction = settings_of(about["settings"]), parse_written(about["direction"])
        base = cls(settings, about["backbone_fingerprint"], direction, about["site"], folder=folder)
        return base.with_delivered(folder)

    def with_delivered(self, folder: Path) -> Self:
        """Return the model with what was delivered to its site's folder."""
        about = delivered_about(folder)
        key, load = ("site", str(folder)), lambda: delivered(folder)[0]
        first = replace(self, round=about["round"], load=load, key=key, candidate=about.get("kept"))
        if "ensemble" not in about:
            return first
        names = about["ensemble"]
        second = replace(first, load=lambda: delivered_second(folder), key=(*key, "second"), candidate=names["second"])
        return replace(first, candidate=names["first"], second=(second, names["share"]))

    @property
    def site_scores(self) -> dict[str, Any]:
        """The scores that the run told the site, with their split; empty if none. Raises RunError if their file is damaged."""
        file = self.folder and self.folder / f"{SCORES}{self.site}.json"
        try:
            return dict(json.loads(file.read_bytes())[self.site]) if file and file.is_file() else {}
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise RunError(f"{file} is damaged ({error!r}); restore it, or move it away") from error

    @property
    def owner(self) -> str:
        """Whose model it is, in words."""
        if self.site:
            both = f", an ensemble of {self.candidate} and {self.second[0].candidate}" if self.second else ""
            return f"site {self.site}{both}" if self.load else f"site {self.site}, which uses the base"
        if self.load is None:
            return "the base"
        if set(self.clusters.values()) <= {EVERYBODY}:
            return "the federation, all sites in one cluster"
        return ", ".join(f"{part} cluster {name}" for part, name in self.clusters.items() if part != "shared")

    def trainable(self, backbone: str = "", **changes: Any) -> "Trainable":
        """Load the backbone with the modules that the run's method trains, as before any training.

        Args:
            backbone: Where the backbone lies, if not where its name says.
            changes: Other settings to change, such as `device`.

        Raises:
            RunError: It is not the backbone that the tensors fit. BackboneError: It cannot be loaded.
        """
        settings = replace(self.settings, backbone=backbone or self.settings.backbone, **changes)
        return same_backbone(settings, self.fingerprint)


class RunModels:
    """The models of a completed run. sites: name -> direction of every site, pooled ones included."""

    def __init__(self, run_dir: Path) -> None:
        """Open a run's folder; raises what `CompletedRun.of` does."""
        self.run_dir, self.run = run_dir, CompletedRun.of(run_dir)
        self.settings = self.run.settings
        sites = self.run.folder.read("sites.json") or {}
        # A pooled site hosts many sites, which keep their names.
        self._hosts = {name: host for host, about in sites.items() for name in about["members"]}
        self.sites = {name: parse_written(sites[host]["members"][name]) for name, host in self._hosts.items()}
        self.clusters = cast(Clusters, self.run.folder.read("clusters.json") or {})

    @property
    def why_no_direction(self) -> str:
        """Why only a site can be chosen, not a direction without a site; empty if both can."""
        if self._why_not_here or not self.settings.how.trains:
            return self._why_not_here
        try:
            _ = self._relatives
        except ConfigError as error:
            return f"the federation's file, which says which languages are related, cannot be read here ({error})"
        return ""

    @property
    def _why_not_here(self) -> str:
        """Return why the server does not have all trained tensors; empty if it does."""
        if not self.settings.how.trains:
            return ""
        if not self.settings.how.travels:
            return f"method {self.settings.method} leaves nothing at the server"
        if self.settings.splits_model:
            return f"tensor-set = {self.settings.trained_set!r}: only a part of what was trained is at the server, each site keeps the rest"
        return ""

    def of_site(self, site: str) -> TrainedModel:
        """Return the model that `site` uses after the run: the delivered one, else its clusters' tensors of the best round.

        Raises:
            RunError: there is no such site, or its model is not here.
        """
        if site not in self._hosts:
            raise RunError(
                f"run {self.run_dir} has no site {site!r}{nearest(site, self._hosts)}; it has {', '.join(self._hosts)}"
            )
        host, folder = self._hosts[site], self._folder(site)
        base = TrainedModel(self.settings, self.run.fingerprint, self.sites[site], site, folder=folder)
        if not self.settings.how.trains:
            return base
        if is_delivered(folder):
            return base.with_delivered(folder)
        if not self._why_not_here:
            return self._of_clusters(base, {part: cluster_of(self.clusters, part, host) for part in self.clusters})
        raise RunError(
            f"{folder}: nothing was delivered here; {site}'s model is at the site itself (`fedlingua site translate` and "
            "`fedlingua site export` there)"
        )

    def is_here(self, site: str) -> bool:
        """Return whether a site's model is here, not only at the site itself."""
        return not self._why_not_here or is_delivered(self._folder(site))

    def _folder(self, site: str) -> Path:
        return self.run.folder.directory / "sites" / self._hosts[site]

    def of_direction(self, direction: Direction) -> TrainedModel:
        """Return a model for any direction, held by a site or not; the base if the run trained nothing.

        Its encoder cluster is the one nearest to the source, its decoder cluster the one nearest to the target.

        Raises:
            RunError: The method leaves nothing at the server, or the run trained no translation.
            ConfigError: There is no cluster for these languages.
        """
        check_translates(self.settings, self.run_dir)
        if self.why_no_direction:
            raise RunError(f"{self.why_no_direction}; give --site instead of --direction")
        base = TrainedModel(self.settings, self.run.fingerprint, direction, None)
        return self._of_clusters(base, self._nearest(direction)) if self.settings.how.trains else base

    @cached_property
    def _relatives(self) -> Relatives | None:
        """How languages are related, by the federation's file; None if every part is one cluster, so that relations do not matter."""
        if all(len(named) == 1 for named in self.clusters.values()):
            return None
        return read_federation(self.settings.federation_path, Path()).relatives(self.settings.cluster_by)

    def _nearest(self, direction: Direction) -> dict[Part, str]:
        if self._relatives is None:
            return {part: next(iter(named)) for part, named in self.clusters.items()}
        directions: dict[str, list[Direction]] = {}
        for name, host in self._hosts.items():
            directions.setdefault(host, []).append(self.sites[name])
        return {part: cluster_for(direction, part, self.clusters, directions, self._relatives) for part in self.clusters}

    def _of_clusters(self, base: TrainedModel, chosen: Mapping[Part, str]) -> TrainedModel:
        number = int(self.run.about["best_round"])

        def load() -> Tensors:
            parts = self.run.folder.checkpoints.load(number).tensors
            return {name: array for part, cluster in chosen.items() for name, array in parts[part].get(cluster, {}).items()}

        return replace(base, round=number, load=load, key=("clusters", *chosen.values()), clusters=chosen)


def check_translates(settings: Settings, where: Path | str) -> None:
    """Raise RunError for a run that trained an encoder. where: what the user gave, for the message."""
    if settings.task != "translation":
        raise RunError(
            f"{where}: task = {settings.task!r} trained an encoder, which translates nothing; give a run with task = 'translation', or "
            "judge the encoder with `fedlingua finetune --run`"
        )


def cluster_for(
    direction: Direction, part: Part, clusters: Clusters, directions: Mapping[str, Sequence[Direction]], relatives: Relatives
) -> str:
    """Return the name of the cluster that translates a direction, even one that no site holds.

    The first site that matches decides: by direction, else by source (encoder) or target (decoder) language, else by a related language.

    Raises:
        ConfigError: No site has this language or a related one.
    """
    if len(clusters[part]) == 1:
        return next(iter(clusters[part]))
    language = language_of_part(direction, part)
    family = relatives.of(language)
    for trait in (
        lambda one: one,
        lambda one: language_of_part(one, part),
        lambda one: relatives.of(language_of_part(one, part)),
    ):
        for site, held in directions.items():
            if trait(direction) is not None and trait(direction) in map(trait, held):
                return cluster_of(clusters, part, site)
    side, related = "source" if part == "encoder" else "target", f"another of {family}" if family else "a related one"
    raise ConfigError(
        f"direction {direction}: no site has {side} {language} or {related}, so no {part} cluster knows it; the run has "
        f"{', '.join(clusters[part])}"
    )


def delivered(folder: Path) -> tuple[Tensors, dict[str, Any]]:
    """Load what `deliver` stored: the trained tensors, and the content of delivered.json.

    Raises:
        RunError: nothing was delivered there, or a file is missing or damaged.
    """
    about = delivered_about(folder)
    files = [folder / name for name in (ADAPTER, MODEL) if (folder / name).is_file()]
    if not files:
        raise RunError(f"{folder}: the delivered tensors are gone; wanted {ADAPTER} or {MODEL}")
    return _loaded(files[0]), about


def delivered_second(folder: Path) -> Tensors:
    """Load the tensors of the second model of an ensemble; raise RunError if the file is missing or damaged."""
    return _loaded(folder / SECOND)


def _loaded(file: Path) -> Tensors:
    try:
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise RunError(f"{file} is damaged or missing ({error}); {AGAIN}") from error
