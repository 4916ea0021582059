"""A run's state besides its tensors. It goes into every checkpoint, and a resumed run starts from it."""

import math
from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, fields
from itertools import accumulate
from statistics import median
from typing import Any, NamedTuple

from fedlingua.exchange.protocol import Stage
from fedlingua.settings.config import Settings

Sums = Mapping[str, float]
SLACK = 0.01
"""Share of the dev loss that one site's report may cost all others when the best round is chosen."""


@dataclass
class Progress:
    """The progress of a run; `round` is the last complete one, -1 before round 0.

    dev_losses: round -> site -> sums. pending: the round whose dev losses arrive with the next round's updates. traffic: (uplink,
    downlink) bytes by site and round. savings: shares of (tensors, numbers) left out by site and round, 0-1. stages: site -> rounds
    in which it trained, with the attempt that counts. bad_replies: site -> number of refused replies since its last good one.
    digests: site -> digest of its last accepted update. aggregated: the rounds in which any update counted. lengths: site ->
    `outliers.Distance` of its last update that was accepted unscaled. opposed: site -> the rounds in which its update was left out and
    opposed those of the others. highest_rate: the highest learning rate that a strategy has set for a round.
    """

    round: int = -1
    best_round: int = 0
    dev_losses: dict[int, dict[str, Sums]] = field(default_factory=dict)
    pending: int | None = None
    traffic: list[tuple[int, int]] = field(default_factory=list)
    savings: list[tuple[float, float]] = field(default_factory=list)
    stages: dict[str, dict[int, int]] = field(default_factory=dict)
    bad_replies: dict[str, int] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    aggregated: list[int] = field(default_factory=list)
    outvoted: str = ""
    """The site whose report the last choice of `best_round` left out."""
    lengths: dict[str, dict[str, Any]] = field(default_factory=dict)
    opposed: dict[str, int] = field(default_factory=dict)
    highest_rate: float = 0.0
    earlier_stages: dict[str, list[Stage]] = field(default_factory=dict)
    """Site -> the stages of its own tensors that a run asks for if it goes on from the checkpoint before."""

    def forget(self, number: int) -> None:
        """Forget a round in which no site trained, so that it does not count."""
        for trained in self.stages.values():
            trained.pop(number, None)
        self.aggregated = [past for past in self.aggregated if past != number]

    def own(self, site: str, number: int) -> Stage:
        """Return the stage of the site's own tensors in round `number`: its last good round up to there."""
        trained = self.stages.get(site, {})
        last = max((past for past in trained if past <= number), default=0)
        return (last, trained[last]) if last else (0, 0)

    def own_best(self, site: str, last: int, best_by: str) -> int:
        """Return the round up to `last` with the site's lowest dev loss, under "last" its last; 0: it never trained."""
        if best_by == "last":
            return self.own(site, last)[0]
        measured = {n: losses[site] for n, losses in self.dev_losses.items() if 0 < n <= last and site in losses}
        own = {n: sums["nll_sum"] / sums["num_tokens"] for n, sums in measured.items()}
        return min(own, key=lambda n: (own[n], n), default=0)

    def loss(self, number: int, best_by: str) -> float | None:
        """Return the federation's dev loss after a round; None if no site measured it."""
        losses = self.dev_losses.get(number)
        return mean_loss(losses, best_by) if losses else None

    def measured_in(self, site: str) -> int:
        """Return the last round in which the site itself measured its dev loss; -1: none."""
        measured, newest = -1, None
        for number in sorted(self.dev_losses, reverse=True):
            sums = self.dev_losses[number].get(site)
            if sums is None or (newest is not None and sums != newest):
                break
            measured, newest = number, sums
        return measured

    def choose_best(self, best_by: str, stored: Collection[int]) -> None:
        """Set `best_round`, which stays as it is if the checkpoint of the round to choose is gone. stored: Rounds with a checkpoint."""
        chosen, self.outvoted = self.best_up_to(max(self.round, *self.dev_losses, 0), best_by)
        self.best_round = chosen if chosen in stored else self.best_round

    def best_up_to(self, last: int, best_by: str) -> tuple[int, str]:
        """Return the federation's best round up to `last`, and the site whose report that choice left out, "" if none.

        The round is 0 if none was measured, and under "last" the last one with training.

        Rounds that more sites measured are preferred: a loss over fewer sites is not comparable. With three or more sites, none decides
        alone, neither by its reports nor by its silence: if the choice would cost all others more than `SLACK`, it is made again between
        that round and the others' choice, by the median over sites of the loss relative to the site's first. A site with most of the
        sentences is never left out.
        """
        if best_by == "last":
            return max((past for past in self.aggregated if past <= last), default=0), ""
        measured = {n: losses for n, losses in self.dev_losses.items() if 0 < n <= last}
        best = _best(_means(measured, best_by))
        costs: dict[str, tuple[float, int]] = {}
        for site, others in _without_each(measured, best, best_by):
            theirs = _best(others)
            cost = others[best].loss / others[theirs].loss
            if cost > 1 + SLACK:
                costs[site] = cost, theirs
        chosen = min((best, *(theirs for _, theirs in costs.values())), key=lambda n: (self.typical(n), n)) if costs else best
        wanted = [site for site, (_, theirs) in costs.items() if theirs == chosen != best]
        return chosen, max(wanted, key=lambda site: costs[site], default="")

    def typical(self, number: int) -> float:
        """Return the median over sites of the dev loss after a round, relative to the site's first."""
        losses = self.dev_losses[number]
        first = {site: next(earlier[site] for earlier in self.dev_losses.values() if site in earlier) for site in losses}
        return median(mean_loss({site: losses[site]}, "tokens") / mean_loss({site: first[site]}, "tokens") for site in losses)

    def is_stale(self, patience: int, min_gain: float, best_by: str) -> bool:
        """Return whether `patience` rounds have passed since the dev loss last fell by a share of `min_gain`, also if any one
        site is left out: as in `best_up_to`, no site ends a run alone."""
        measured = {n: losses for n, losses in self.dev_losses.items() if n > 0}
        newest = max(measured, default=0)
        others = [means for _, means in _without_each(measured, newest, best_by)]
        better = [_last_fall(means, min_gain) for means in (_means(measured, best_by), *others)]
        return 0 < patience <= self.round - max(better)

    def may_end(self, number: int, patience: int, min_gain: float, best_by: str) -> bool:
        """Return whether `is_stale` could be true after round `number`, whose dev loss is not known yet."""
        measured = {n: losses for n, losses in self.dev_losses.items() if n > 0}
        return 0 < patience <= number - _last_fall(_means(measured, best_by), min_gain)

    def mean_savings(self) -> dict[str, float]:
        """Return tensor_saving and number_saving, the means of `savings` (Chu et al. 2024, §4.2, counts tensors); none without any."""
        names, count = ("tensor_saving", "number_saving"), len(self.savings)
        return {name: sum(shares) / count for name, shares in zip(names, zip(*self.savings, strict=True), strict=False)}

    def values(self) -> dict[str, Any]:
        """Return the fields that a checkpoint holds as JSON values."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("round", "outvoted")}

    @classmethod
    def of(cls, number: int, values: Mapping[str, Any]) -> "Progress":
        """Restore the progress after round `number` from what `values` returned."""
        known = {each.name for each in fields(cls)}
        progress = cls(number, **deepcopy({name: value for name, value in values.items() if name in known}))
        # JSON has neither integer keys nor tuples.
        progress.dev_losses = {int(n): losses for n, losses in progress.dev_losses.items()}
        progress.stages = {site: {int(n): attempt for n, attempt in rounds.items()} for site, rounds in progress.stages.items()}
        progress.earlier_stages = {
            site: [(number, attempt) for number, attempt in stages] for site, stages in progress.earlier_stages.items()
        }
        progress.traffic = [(up, down) for up, down in progress.traffic]
        progress.savings = [(tensors, numbers) for tensors, numbers in progress.savings]
        return progress


def last_phase_rounds(settings: Settings, sizes: Mapping[str, float]) -> float:
    """Return about how many rounds the last phase is as long as. sizes: Split -> the sites' sentences.

    The passes are the most that alone and own may take: what stops early makes up for a second model alone. A beam of n takes about as
    long for a sentence as training on n, and an ensemble as two models.
    """
    passes = 0.0
    beam = settings.beam if settings.task == "translation" else 1
    translated = 2.0 * beam * sizes[settings.score_split]
    if settings.chooses:
        passes = settings.passes_of_rounds + 2.0 * (settings.keep_passes or settings.passes_of_rounds)
        models, of_dev = (8, 6) if settings.keep_ensemble else (4, 2)
        translated = models * beam * sizes[settings.score_split] + (of_dev if settings.keep_by != "loss" else 0) * sizes["dev"]
    return (passes + translated / max(1.0, sizes["train"])) / settings.passes_of_a_round


def mean_loss(losses: Mapping[str, Sums], best_by: str) -> float:
    """Return the mean of the sites' dev losses (nats a token), weighted by sentences as in the paper's code, or by tokens."""
    weighted = [_weighted(sums, best_by) for sums in losses.values()]
    return sum(loss for loss, _ in weighted) / sum(weight for _, weight in weighted)


def _weighted(sums: Sums, best_by: str) -> tuple[float, float]:
    """Return (weight x loss, weight) of one site."""
    if best_by == "tokens":
        return sums["nll_sum"], sums["num_tokens"]
    return sums["nll_sum"] / sums["num_tokens"] * sums["num_examples"], sums["num_examples"]


DevLosses = Mapping[int, Mapping[str, Sums]]
"""round -> site -> sums"""


class Mean(NamedTuple):
    """A round's mean dev loss, and the number of sites that it is over."""

    loss: float
    sites: int


Means = Mapping[int, Mean]
"""round -> mean"""


def _means(measured: DevLosses, best_by: str) -> Means:
    return {number: Mean(mean_loss(losses, best_by), len(losses)) for number, losses in measured.items()}


def _best(means: Means) -> int:
    return min(means, key=lambda n: (-means[n].sites, means[n].loss, n), default=0)


def _last_fall(means: Means, min_gain: float) -> int:
    """Return the last round whose loss was lower by `min_gain` than all before; 0 if there is none."""
    better, lowest = 0, math.inf
    for number, mean in means.items():
        if mean.loss < lowest * (1 - min_gain):
            better, lowest = number, mean.loss
    return better


def _without_each(measured: DevLosses, number: int, best_by: str) -> Iterator[tuple[str, Means]]:
    """Yield (site, means without it) for sites with at most half of that round's sentences; nothing below three sites."""
    sites = dict.fromkeys(site for losses in measured.values() for site in losses)
    sizes = {site: sums["num_examples"] for site, sums in measured.get(number, {}).items()}
    total, whole = sum(sizes.values()), _means(measured, best_by)
    others = {n: _of_the_others(losses, best_by) for n, losses in measured.items()}
    for site in sites if len(sites) > 2 else ():
        if 2 * sizes.get(site, 0) <= total:
            means = {n: others[n].get(site) if site in losses else whole[n] for n, losses in measured.items()}
            yield site, {n: mean for n, mean in means.items() if mean}


def _of_the_others(losses: Mapping[str, Sums], best_by: str) -> dict[str, Mean]:
    """Return site -> mean without it, by sums from both ends, so that a thousand sites take a thousand steps; {} for a single site."""
    weighted = [_weighted(sums, best_by) for sums in losses.values()]
    before = [*accumulate(weighted, _added, initial=(0.0, 0.0))]
    after = [*accumulate(reversed(weighted), _added, initial=(0.0, 0.0))][::-1]
    ends = [_added(before[place], after[place + 1]) for place in range(len(weighted))]
    left = len(losses) - 1
    return {site: Mean(loss / weight, left) for site, (loss, weight) in zip(losses, ends, strict=True)} if left else {}


def _added(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    return one[0] + other[0], one[1] + other[1]
