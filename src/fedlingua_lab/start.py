"""A completed run to go on from: its sites' text and a round's tensors, all checked before a model is loaded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

from fedlingua.clustering.clusters import Clusters, cluster_of
from fedlingua.common.errors import RunError
from fedlingua.common.languages import nearest
from fedlingua.corpora.overlap import load_without_leaks
from fedlingua.corpora.simulated import OVERLAP_KEY, texts_by_site
from fedlingua.corpora.sites import read_federation
from fedlingua.corpora.texts import SiteText
from fedlingua.desk.check_settings import check_corpora
from fedlingua.desk.completed import CompletedRun
from fedlingua.exchange.state import ClusterTensors
from fedlingua.exchange.tensors import Tensors, check_tensors
from fedlingua.settings.config import Settings

if TYPE_CHECKING:  # so that errors are reported without importing torch
    from fedlingua.exchange.trainable import Trainable


@dataclass(frozen=True)
class Start:
    """A round of a run, and the sites that go on from it. texts: Each site's texts, as they were in the run."""

    run: CompletedRun
    settings: Settings
    sites: tuple[str, ...]
    number: int
    clusters: Clusters
    tensors: ClusterTensors
    texts: Mapping[str, Mapping[str, SiteText]]

    @classmethod
    def of(cls, run_dir: Path, sites: Sequence[str] = (), number: int | None = None, data_dir: str = "") -> Self:
        """Read a run for some of its sites, by default all, and one round, by default the best. data_dir: The text's folder, if it moved.

        Raises:
            RunError: The run is not completed or no tensors left its sites, a site is unknown or its text is not here, or the
                round's checkpoint is missing or damaged.
            ConfigError, CorpusError: The run's federation file or text is invalid.
        """
        run = CompletedRun.of(run_dir)
        settings = replace(run.settings, data_dir=data_dir or run.settings.data_dir)
        if not settings.how.travels:
            raise RunError(
                f"method {settings.method}: nothing that was trained left a site, so there is no federated model to start from; "
                "personalize a run of a federated method"
            )
        if settings.splits_model:
            raise RunError(
                f"tensor-set = {settings.trained_set!r}: only a part of what was trained is at the server, and each site's model is its "
                "own already; personalize a run under which all that trains travels"
            )
        chosen = sites_of(run, sites)
        number = int(run.about["best_round"]) if number is None else number
        stored = run.folder.checkpoints.rounds()
        if number not in stored:
            raise RunError(
                f"{run_dir}: the checkpoint of round {number} is not there; kept rounds: {', '.join(map(str, stored)) or 'none'}"
            )
        federation = read_federation(settings.federation_path, Path(settings.data_dir).expanduser())
        corpora = {site.name: site.corpus for site in federation.sites}
        if gone := [site for site in chosen if site not in corpora]:
            raise RunError(
                f"run {run_dir} has {', '.join(gone)}, and its federation file {federation.name} does not have them any more; give the "
                "file back as it was"
            )
        if away := [site for site in chosen if corpora[site] is None]:
            raise RunError(f"run {run_dir}: the text of {', '.join(away)} is not here; sites across machines keep theirs")
        check_corpora(federation.sites)
        tensors = run.folder.checkpoints.load(number).tensors
        held = texts_by_site(settings.federation_path, settings.data_dir)
        texts = {site: held[site] for site in chosen}
        if settings.overlap == "remove":
            folder = run.folder.directory / "sites"
            texts = {site: load_without_leaks(of_site, folder / site, OVERLAP_KEY) for site, of_site in texts.items()}
        return cls(run, settings, chosen, number, cast(Clusters, run.folder.read("clusters.json")), tensors, texts)

    def federated(self, site: str, trainable: "Trainable") -> Tensors:
        """Return the tensors that a site received in the round: those of its encoder and decoder clusters and the shared part."""
        parts = [clusters[cluster_of(self.clusters, part, site)] for part, clusters in self.tensors.items() if clusters]
        return check_tensors({name: array for part in parts for name, array in part.items()}, trainable.trained)


def sites_of(run: CompletedRun, asked: Sequence[str]) -> tuple[str, ...]:
    """Return the sites asked for, by default all of the run; RunError for one that it does not have."""
    known = run.folder.read("sites.json") or {}
    for site in asked:
        if site not in known:
            raise RunError(f"run {run.folder.directory} has no site {site!r}{nearest(site, known)}; it has {', '.join(known)}")
    return tuple(dict.fromkeys(asked or known))
