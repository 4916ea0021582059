"""The round of a run that is audited, and the protections of updates. Everything is checked here before a model loads."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from fedlingua.backbones.parts import Part
from fedlingua.clustering.clusters import cluster_of
from fedlingua.common.errors import ConfigError, RunError
from fedlingua.corpora.split import SPLITS
from fedlingua.corpora.texts import SiteText
from fedlingua.desk.completed import CompletedRun
from fedlingua.desk.json_values import objects
from fedlingua.settings.config import Settings
from fedlingua_lab.start import Start, sites_of
from fedlingua_lab.tracking.values import read_rounds

LEAST = 16
"""Fewest sentences of a site, in train and in dev and test, that an audit needs."""


@dataclass(frozen=True)
class Protection:
    """What protects updates. sites: fewest sites in a secure sum; 1: the server sees each update. epsilon: that of DP; 0: no DP."""

    sites: int = 1
    epsilon: float = 0.0

    @property
    def shares_noise(self) -> bool:
        """Whether the sites of a sum make its noise in shares, and so send sums of clipped gradients."""
        return self.sites > 1 and self.epsilon > 0

    @property
    def name(self) -> str:
        """The protection in words, for tables."""
        if self.sites > 1:
            noise = f", noise in shares, epsilon {self.epsilon:g}" if self.shares_noise else ""
            return f"secure sum, {self.sites} sites{noise}"
        return f"DP, epsilon {self.epsilon:g}" if self.epsilon else "plain"


@dataclass(frozen=True)
class Subject:
    """A site's round. texts: those of all sites. groups: part -> the sites averaged with this one, itself included.

    start: The round before, from which sites get their tensors; None: the run's first tensors. train_loss: The run's own, if known.
    """

    settings: Settings
    site: str
    number: int
    texts: Mapping[str, Mapping[str, SiteText]]
    groups: Mapping[Part, tuple[str, ...]]
    start: Start | None = None
    train_loss: float | None = None

    @classmethod
    def of(cls, run_dir: Path, site: str | None = None, number: int = 1, data_dir: str = "") -> Self:
        """Open a site's round of a finished run, by default the first site's first round.

        Raises:
            RunError: The run is not completed, its text is not here, nothing travels, or the round cannot be trained again.
            ConfigError, CorpusError: Its federation file or text is faulty.
        """
        run = CompletedRun.of(run_dir)
        _check(run.settings, run_dir)
        chosen, *_ = sites_of(run, [site] if site else [])
        if not 1 <= number <= int(run.about["rounds"]):
            raise RunError(f"{run_dir}: --round {number}: wanted 1 to {run.about['rounds']}, a round that the run has trained")
        if number > 1 and run.settings.remembers:
            raise RunError(
                f"{run_dir}: round {number} cannot be trained again: under optimizer-state = 'kept' or a send.code it "
                "depends on what the site stored in rounds before; give --round 1"
            )
        start = Start.of(run_dir, (), number - 1 if number > 1 else None, data_dir)
        clusters = start.clusters
        groups = {part: tuple(named[cluster_of(clusters, part, chosen)]) for part, named in clusters.items() if named}
        sites = objects(read_rounds(run_dir / "rounds.jsonl", 0).get(number, {}).get("sites"))
        if sites and chosen not in sites:
            raise RunError(f"{run_dir}: site {chosen} sent no update in round {number}; give one of {', '.join(sites)}")
        texts = [text.splits for text in start.texts[chosen].values()]
        for what, splits in (("train", SPLITS[:1]), ("dev and test", SPLITS[1:])):
            if (size := sum(len(each[split]) for each in texts for split in splits)) < LEAST:
                raise ConfigError(f"site {chosen} has {size} sentences in {what}; wanted {LEAST} at least: give another --site")
        loss = sites.get(chosen, {}).get("train_loss")
        return cls(start.settings, chosen, number, start.texts, groups, start if number > 1 else None, loss)

    def protections(self) -> list[Protection]:
        """Return what to compare: plain, a secure sum (also with noise in shares, if the run has it), DP at epsilon 8, 2, and the run's."""
        settings = self.settings
        number = max(settings.privacy_min_cluster, 3, *map(len, self.groups.values()))
        secure = [Protection(sites=number)] if number <= len(self.texts) else []
        shared = [Protection(number, settings.dp_epsilon)] if settings.shares_noise else []
        epsilons = sorted({8.0, 2.0, settings.dp_epsilon} - {0.0}, reverse=True)
        return [Protection(), *secure, *shared, *(Protection(epsilon=each) for each in epsilons)]

    def group(self, part: Part, protection: Protection) -> tuple[str, ...]:
        """Return the sites whose mean the server sees of a part: this one, or its cluster with other sites added in order."""
        if protection.sites == 1:
            return (self.site,)
        own = self.groups[part]
        sites = dict.fromkeys((*own, *self.texts))
        return tuple(sites)[: max(len(own), protection.sites)]


def _check(settings: Settings, run_dir: Path) -> None:
    """Refuse runs whose updates an audit cannot make again."""
    refused = {
        f"method = {settings.method!r} sends no tensors that were trained": not (settings.how.travels and settings.how.trains),
        f"client = {settings.client!r} trains in a way of its own": bool(settings.client),
        f"layers = {settings.layers!r} may change what was trained": bool(settings.layers),
        f"task = {settings.task!r} trains on no sentence pairs": settings.task != "translation",
        f"tensor-set = {settings.trained_set!r} leaves a part of the model at the site": settings.splits_model,
        f"send.rule = {settings.rule!r} sends a part of each update": settings.rule != "all",
        "dp.unit = 'document' hides more than the single sentences that are looked for": settings.dp_unit == "document",
    }
    for why, holds in refused.items():
        if holds:
            raise RunError(f"{run_dir}: {why}; audit a run whose sites send all that they train, such as experiments/demo.toml")
