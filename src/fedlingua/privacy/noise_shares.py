"""Differential privacy by noise that sites make in shares inside a secure sum: the Skellam mechanism (Agarwal, Kairouz & Liu 2021).

A site multiplies its sum of clipped gradients by a scale, rounds it to whole numbers and adds its share of the noise. Shares of Skellam
noise, differences of Poisson numbers, add up to Skellam noise of the summed variance, so the sum over `least` sites has the whole noise
and a larger sum has more. Everything after the rounding is sums modulo 2^16, which tell no more than sums of whole numbers.

Sensitivity. Let d be the difference that one sentence makes to a part's n scaled numbers, |d| <= q, with q the scale in levels per clip.
Two neighbouring texts are rounded with the same dither, so each rounded difference e_j is d_j rounded down or up, with expectation d_j:

    E |e|^2 = |d|^2 + sum of f (1 - f) <= |d|^2 + n / 4                   f: the fraction of d_j
    |e|^2 <= |d|^2 + r,  r = n / 4 + (2 q + sqrt(n)) sqrt(ln(1e12) / 2)   but for a probability of 1e-12 (Hoeffding 1963),

since e_j^2 has a range of 2 |d_j| + 1 at most. A sentence's gradient is clipped over all parts together, so the sum of |d|^2 / q^2 over
the parts is at most 1, and that of |e|^2 / q^2 is at most k^2 = 1 + sum of r / q^2.

Noise. The Rényi divergence of whole order a > 1 between Skellam noise of variance v and the same moved by a whole number e is at most
a e^2 / 2v + ((2a - 1) e^2 + 6 |e|) / 4v^2 (theorem 3.5 there), which is at most (1 + 9 / 4v) a e^2 / 2v, because |e| <= e^2. With
v = (z k q)^2 + 9/4 in each part, it is in all at most a / 2z^2, which is that of Gaussian noise of z clips.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from fedlingua.clustering.clusters import Clusters
from fedlingua.common.errors import ConfigError
from fedlingua.exchange.joined import Numbers, cuts
from fedlingua.exchange.tensors import TensorSet
from fedlingua.privacy.accounting import noise_for
from fedlingua.privacy.secrets import derived
from fedlingua.settings.config import Settings

SEED = "noise seed"
"""Name, beside a site's sums of clipped gradients, of the 32 bytes from which their dither and noise are drawn."""
ROUNDING = (1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.5)
"""Values of k, by which rounding makes the noise larger. The first with which noise and signals fit into 16 bits is taken."""
_MISS = math.sqrt(math.log(1e12) / 2)
_MOST = 2**15 - 1
"""The greatest magnitude of a sum."""


@dataclass(frozen=True)
class PartNoise:
    """How a site's sum of clipped gradients in one part becomes levels, whole numbers modulo 2^16.

    Attributes:
        scale: Levels per clip.
        clip: `dp.clip`.
        variance: That of one site's share of the noise, in levels squared.
        top: The greatest magnitude of a site's number before its noise, in levels; larger ones are cut.
    """

    scale: float
    clip: float
    variance: float
    top: int

    def levels(self, sums: Numbers, seed: bytes) -> Numbers:
        """Return (n,) uint16, the rounded levels with this site's share of the noise.

        Args:
            sums: (n,) float32, the part's sums of clipped gradients, end to end.
            seed: 32 secret random bytes, drawn once the tensors to train from are known, so that these do not depend on the dither.
        """
        dither, noise = (
            np.random.default_rng(int.from_bytes(derived(seed, "dither"))),
            Skellam(self.variance, derived(seed, "noise")),
        )
        levels = np.empty(len(sums), np.uint16)
        for each in cuts(len(sums)):
            scaled = np.nan_to_num(sums[each].astype(np.float64) * (self.scale / self.clip), nan=0.0)
            rounded = np.floor(np.clip(scaled, -self.top, self.top) + dither.random(len(scaled))).astype(np.int64)
            levels[each] = (rounded + noise.draw(len(scaled))).astype(np.uint16)
        return levels

    def change(self, total: Numbers, rate: float, sentences: int) -> Numbers:
        """Return the step of SGD, (n,) float32, that a sum takes. total: (n,) uint16. sentences: Those of the sites in the sum."""
        change: Numbers = (total.view(np.int16) * (-rate * self.clip / (self.scale * sentences))).astype(np.float32)
        return change


def planned(settings: Settings, clusters: Clusters, chosen: TensorSet) -> dict[str, PartNoise]:
    """Return part -> its scale and noise, which follow from what all sites and the server know before training.

    Args:
        clusters: Part -> cluster -> sites; all clusters of a part have the scale of the largest.

    Raises:
        ConfigError: The rounding of so many numbers is too coarse beside the noise that fits into 16 bits.
    """
    noise, least = noise_for(settings.dp_epsilon, settings.dp_delta, 1.0, settings.rounds, True), settings.privacy_min_cluster
    sizes = {part: sum(chosen.sizes_of(part)) for part in clusters if chosen.of_part(part)}
    most = {part: max(map(len, clusters[part].values())) for part in sizes}
    for factor in ROUNDING:
        parts = {
            part: _part(size, (factor**2 - 1) / len(sizes), factor * noise, least, most[part], settings.dp_clip)
            for part, size in sizes.items()
        }
        if all(_spread(each.variance, most[part]) <= 5 / 8 * _MOST and each.top >= each.scale for part, each in parts.items()):
            return {str(part): each for part, each in parts.items()}
    numbers, sites = " and ".join(f"{size:,}" for size in sizes.values()), max(most.values())
    raise ConfigError(
        f"dp.noise = 'shares': the noise of {sites} sites for epsilon = {settings.dp_epsilon:g} over {settings.rounds} rounds, {noise:.3g} "
        f"clips in a sum of {least}, does not fit into 16 bits on a scale that is fine enough for {numbers} parameters; train fewer "
        "parameters (adapter.dim, tensor-set), or give a larger privacy.min-cluster or dp.epsilon, or fewer rounds"
    )


def _part(size: int, room: float, noise: float, least: int, sites: int, clip: float) -> PartNoise:
    """Return the part's plan with the least scale for which r / q^2 is at most `room`. noise: z k, in clips."""
    scale = (_MISS + math.sqrt(_MISS**2 + room * (size / 4 + math.sqrt(size) * _MISS))) / room
    share = ((noise * scale) ** 2 + 9 / 4) / least
    return PartNoise(scale, clip, share, int((_MOST - _spread(share, sites)) // sites))


def _spread(share: float, sites: int) -> float:
    """Return six standard deviations of the noise of all sites, in levels. share: The variance of one."""
    return 6 * math.sqrt(share * sites)


class Skellam:
    """Skellam numbers of mean 0, drawn from the key stream of ChaCha20.

    Their probabilities are those of the distribution but for the rounding of float64, and for numbers that come less often than 2^-63.
    """

    def __init__(self, variance: float, key: bytes) -> None:
        self._stream = Cipher(ChaCha20(key, bytes(16)), None).encryptor()
        self._reached = _reached(variance)

    def draw(self, count: int) -> Numbers:
        """Return the next (count,) int64: a magnitude by 63 bits of a word, a sign by the last, which 0 does not need."""
        words = np.frombuffer(self._stream.update(bytes(8 * count)), "<u8")
        uniform = ((words >> np.uint64(1)) + 0.5) * 2.0**-63
        magnitude = np.searchsorted(self._reached, -uniform)
        return np.where(words & np.uint64(1), magnitude, -magnitude)


@lru_cache(maxsize=4)
def _reached(variance: float) -> Numbers:
    """Return minus the probability that a number's magnitude is m or more, for m = 1, 2, ...: ascending, as searchsorted wants it."""
    from scipy.special import ive

    each = 2 * ive(np.arange(1.0, 12 * math.sqrt(variance) + 64), variance)  # both signs; the probability of m is e^-v I_m(v)
    at_least: Numbers = -np.cumsum(each[::-1])[::-1]  # the smallest first, so that the tail is exact
    return at_least
