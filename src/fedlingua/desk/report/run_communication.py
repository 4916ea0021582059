"""The communication of one run, reckoned from its folder: what its sites exchange, beside what the full model would cost."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

import plotly.graph_objects as go

from fedlingua.common import units
from fedlingua.desk.report.communication import (
    BANDWIDTH_MBPS,
    Cost,
    Traffic,
    bandwidths,
    full_model,
    round_cost,
    training_seconds,
)
from fedlingua.desk.report.communication_plots import cost_plot
from fedlingua.desk.report.read import RunFolder
from fedlingua.desk.report.values import mapping, number


@dataclass(frozen=True)
class RunCommunication:
    """Who exchanges how much, and its cost at three bandwidths in Mbit/s; `training_s`: see `training_seconds`."""

    num_sites: int
    training_s: float | None
    bandwidths_mbps: tuple[float, ...]
    traffic: dict[str, Traffic]

    def costs(self, name: str) -> list[Cost]:
        """The cost of a round at each bandwidth."""
        return [round_cost(self.traffic[name], self.num_sites, each, self.training_s) for each in self.bandwidths_mbps]


def run_communication(folder: RunFolder, bandwidth_mbps: float = BANDWIDTH_MBPS) -> RunCommunication | None:
    """The communication of a run; None as long as the bytes of no round are known.

    Raises:
        ConfigError: a bandwidth not above 0.
    """
    lines = bandwidths(bandwidth_mbps)
    uplink, downlink = mean_bytes(folder, "uplink"), mean_bytes(folder, "downlink")
    if uplink is None or downlink is None:
        return None
    exchanged = folder.run.get("exchanged_parameters")
    told = folder.summary.get("exchanged_parameters") if exchanged is None else exchanged
    traffic = {"this run": Traffic(number(told), uplink, downlink)}
    parameters = number(mapping(folder.run.get("backbone")).get("parameters"))
    if parameters is not None:
        traffic["full model"] = full_model(parameters)
    num_sites = len(folder.sites) or len(folder.round_sites)
    return RunCommunication(num_sites, training_seconds([each.train_seconds for each in folder.rounds]), lines, traffic)


def mean_bytes(folder: RunFolder, way: str) -> float | None:
    """Bytes of a site and round, `way` "uplink" or "downlink": what the scores say, else the mean over the rounds so far."""
    told = number(folder.summary.get(f"{way}_bytes_per_round"))
    return _mean(_bytes(folder, way)) if told is None else told


def communication_plot(communication: RunCommunication) -> go.Figure:
    """Transfer time and share at each bandwidth, of the run and of the full model."""
    rows = [units.bandwidth(each) for each in communication.bandwidths_mbps]
    return cost_plot(rows, {name: communication.costs(name) for name in communication.traffic}, log=True)


def _bytes(folder: RunFolder, way: str) -> Iterable[float]:
    """Of every site in every round with training."""
    return (getattr(site, f"{way}_bytes") for each in folder.rounds if each.number > 0 for site in each.sites.values())


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return fmean(known) if known else None
