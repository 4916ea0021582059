"""What the sites of a run sent of their updates, round by round, and by which threshold; from its folder."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from fedlingua.desk.report.deviations import FILE, Deviations, read_deviations
from fedlingua.desk.report.read import RoundThreshold, RunFolder
from fedlingua.desk.report.values import number


@dataclass(frozen=True)
class Spread:
    """A figure over the sites of one round."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Sent:
    """Shares are of an update, 0-1; every mapping goes by round and holds only those that tell something.

    `sites`: all that sent, in the order of the run's other plots, not in that of their replies. `tensors`, `numbers`: what was sent.
    `thresholds`: learned, the same for all; `own_thresholds`: fixed or random, each site's. `medians`: of a site's deviations.
    `tensor_saving`, `number_saving`: what was not sent, mean over sites and rounds; so far, while the run goes on.
    """

    sites: list[str]
    tensors: dict[int, Spread]
    numbers: dict[int, Spread]
    thresholds: dict[int, RoundThreshold]
    own_thresholds: dict[int, Spread]
    medians: dict[int, Spread]
    deviations: Deviations
    tensor_saving: float | None
    number_saving: float | None

    @property
    def scale(self) -> float | None:
        """Where the threshold began: the first that is told."""
        return next((each.scale for each in self.thresholds.values() if each.scale is not None), None)

    def theta(self, index: int) -> float | None:
        """The threshold that all sites had in a round; None where each had its own."""
        if index in self.thresholds:
            return self.thresholds[index].theta
        own = self.own_thresholds.get(index)
        return own.mean if own and own.low == own.high else None


def what_was_sent(folder: RunFolder) -> Sent | None:
    """None of a run that sends whole updates."""
    deviations = read_deviations(folder.path / FILE)
    thresholds = {each.number: each.threshold for each in folder.rounds if each.threshold and each.threshold.theta is not None}
    tensors, numbers = _by_round(folder, "tensors_share"), _by_round(folder, "numbers_share")
    if not (tensors or numbers or thresholds or deviations.rounds or deviations.note):
        return None
    told = [site for of_round in deviations.rounds.values() for site in of_round]
    return Sent(
        sites=list(dict.fromkeys([*folder.round_sites, *told])),
        tensors=tensors,
        numbers=numbers,
        thresholds=thresholds,
        own_thresholds=_by_round(folder, "theta"),
        medians=_by_round(folder, "deviation"),
        deviations=deviations,
        tensor_saving=_saving(folder, "tensor_saving", "tensors_share"),
        number_saving=_saving(folder, "number_saving", "numbers_share"),
    )


def _by_round(folder: RunFolder, figure: str) -> dict[int, Spread]:
    found = {each.number: _known(getattr(site, figure) for site in each.sites.values()) for each in folder.rounds}
    return {index: Spread(fmean(values), min(values), max(values)) for index, values in found.items() if values}


def _saving(folder: RunFolder, told: str, share: str) -> float | None:
    """As the scores say, else of the rounds so far."""
    found = number(folder.summary.get(told))
    sent = _known(getattr(site, share) for each in folder.rounds for site in each.sites.values())
    return 1 - fmean(sent) if found is None and sent else found


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
