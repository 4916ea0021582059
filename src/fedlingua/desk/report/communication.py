"""What a round costs on the wire: seconds of transfer, and their share of the round: Liu et al. 2023, §2.4 and figure 1."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from fedlingua.common.errors import ConfigError

BANDWIDTH_MBPS = 1000.0
"""The paper's server: 1000 Mbit/s, which all sites share."""
BYTES_PER_PARAMETER = 4
"""fp32, in which a full model would travel."""


@dataclass(frozen=True)
class Traffic:
    """What one site exchanges in one round: parameters one way, bytes each way; mean over sites and rounds."""

    parameters: float | None
    uplink_bytes: float
    downlink_bytes: float


@dataclass(frozen=True)
class Cost:
    """What one round of all sites costs: seconds of transfer each way, and the seconds of its training where known."""

    up_s: float
    down_s: float
    training_s: float | None = None

    @property
    def transfer_s(self) -> float:
        """Up and down together."""
        return self.up_s + self.down_s

    @property
    def share(self) -> float | None:
        """Transfer as a share of the round, 0 to 1."""
        return None if self.training_s is None else transfer_share(self.transfer_s, self.training_s)


def transfer_seconds(site_bytes: float, num_sites: int, bandwidth_mbps: float) -> float:
    """Seconds until every site has moved its bytes one way, over the one line of the server: Liu et al. 2023, §2.4.

    `site_bytes`: one site, one round, one way. `bandwidth_mbps`: 10^6 bits a second, shared by all sites.
    """
    return num_sites * site_bytes * 8 / (bandwidth_mbps * 1e6)


def transfer_share(transfer_s: float, training_s: float) -> float | None:
    """Transfer time / (transfer time + training time) of one round, 0 to 1; None for a round that takes no time."""
    whole = transfer_s + training_s
    return transfer_s / whole if whole else None


def round_cost(traffic: Traffic, num_sites: int, bandwidth_mbps: float, training_s: float | None = None) -> Cost:
    """The cost of one round of `num_sites` sites that exchange the same."""
    up, down = (transfer_seconds(each, num_sites, bandwidth_mbps) for each in (traffic.uplink_bytes, traffic.downlink_bytes))
    return Cost(up, down, training_s)


def full_model(parameters: float) -> Traffic:
    """What it would be to exchange the whole model in fp32."""
    size = parameters * BYTES_PER_PARAMETER
    return Traffic(parameters, size, size)


def training_seconds(rounds: Sequence[Mapping[str, float]]) -> float | None:
    """Mean over the rounds of the longest site's seconds of training; None without any.

    The longest and not the mean: a round lasts until its slowest site has trained. `rounds`: site -> seconds, each round.
    """
    longest = [max(sites.values()) for sites in rounds if sites]
    return fmean(longest) if longest else None


def bandwidths(middle_mbps: float = BANDWIDTH_MBPS) -> tuple[float, float, float]:
    """A tenth of the bandwidth, itself, and ten times it, in Mbit/s.

    Raises:
        ConfigError: no positive number.
    """
    if not 0 < middle_mbps < math.inf:
        raise ConfigError(f"bandwidth = {middle_mbps:g} is no positive number; give the server's line in Mbit/s, such as 1000")
    return middle_mbps / 10, middle_mbps, middle_mbps * 10
