"""The cost of transfer: its seconds in a round and its share of the round's time (Liu et al. 2023, §2.4 and figure 1)."""

import math
from dataclasses import dataclass
from statistics import fmean

from fedlingua.common.errors import ConfigError
from fedlingua.desk.json_values import mapping, number
from fedlingua.desk.report.read import RunContent
from fedlingua.desk.report.round_seconds import training_seconds

BANDWIDTH_MBPS = 1000.0
"""Bandwidth of the paper's server in Mbit/s, shared by all sites."""
BYTES_PER_PARAMETER = 4
"""Bytes of a number in fp32, the format in which a full model would travel."""


@dataclass(frozen=True)
class Traffic:
    """What one site exchanges in one round, as means over sites and rounds: parameters one way, bytes each way."""

    parameters: float | None
    uplink_bytes: float
    downlink_bytes: float


@dataclass(frozen=True)
class Cost:
    """The seconds of one round of all sites: transfer each way, and training if known."""

    up_s: float
    down_s: float
    training_s: float | None = None

    @property
    def transfer_s(self) -> float:
        return self.up_s + self.down_s

    @property
    def share(self) -> float | None:
        """Transfer time / (transfer time + training time), 0 to 1; None if training time is unknown or both times are 0."""
        whole = self.transfer_s + self.training_s if self.training_s is not None else 0.0
        return self.transfer_s / whole if whole else None


@dataclass(frozen=True)
class RunCommunication:
    """What a run and the full model exchange, and three bandwidths in Mbit/s. training_s: See `training_seconds`."""

    num_sites: int
    training_s: float | None
    bandwidths_mbps: tuple[float, ...]
    traffic: dict[str, Traffic]

    def costs(self, name: str) -> list[Cost]:
        """Return the cost of a round at each bandwidth."""
        return [round_cost(self.traffic[name], self.num_sites, each, self.training_s) for each in self.bandwidths_mbps]


def round_cost(traffic: Traffic, num_sites: int, bandwidth_mbps: float, training_s: float | None = None) -> Cost:
    """Return the cost of a round in which all sites transfer equal bytes over the server's connection: Liu et al. 2023, §2.4.

    bandwidth_mbps: In 10^6 bits per second, shared by all sites.
    """
    up, down = (num_sites * each * 8 / (bandwidth_mbps * 1e6) for each in (traffic.uplink_bytes, traffic.downlink_bytes))
    return Cost(up, down, training_s)


def full_model(parameters: float) -> Traffic:
    """Return the traffic of exchanging the whole model in fp32."""
    size = parameters * BYTES_PER_PARAMETER
    return Traffic(parameters, size, size)


def run_communication(folder: RunContent, bandwidth_mbps: float = BANDWIDTH_MBPS) -> RunCommunication | None:
    """Return the communication of a run and of the full model, at a tenth of a bandwidth, at it and at ten times it; None until the
    bytes of a round are known. Raise ConfigError unless the bandwidth is a positive number.
    """
    if not 0 < bandwidth_mbps < math.inf:
        raise ConfigError(
            f"bandwidth = {bandwidth_mbps:g} is not a positive number; give the server's bandwidth in Mbit/s, such as 1000"
        )
    uplink, downlink = mean_bytes(folder, "uplink"), mean_bytes(folder, "downlink")
    if uplink is None or downlink is None:
        return None
    traffic = {"this run": Traffic(folder.exchanged_parameters, uplink, downlink)}
    parameters = number(mapping(folder.run.get("backbone")).get("parameters"))
    if parameters is not None:
        traffic["full model"] = full_model(parameters)
    num_sites = len(folder.sites) or len(folder.round_sites)
    lines = (bandwidth_mbps / 10, bandwidth_mbps, bandwidth_mbps * 10)
    return RunCommunication(num_sites, training_seconds(folder.rounds), lines, traffic)


def mean_bytes(folder: RunContent, way: str) -> float | None:
    """Return a site's mean bytes per round, from the scores or else from the rounds so far. way: "uplink" or "downlink"."""
    of_scores = number(folder.summary.get(f"{way}_bytes_per_round"))
    trained = [each for each in folder.rounds if each.number > 0]
    moved = [getattr(site, f"{way}_bytes") for each in trained for site in each.sites.values()]
    return fmean(moved) if of_scores is None and moved else of_scores
