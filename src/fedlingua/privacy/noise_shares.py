"""Differential privacy by noise that sites make in shares inside a secure sum: the Skellam mechanism (Agarwal, Kairouz & Liu 2021).

A site multiplies its sum of clipped gradients by a scale of q levels per clip, rounds, and adds its share of the noise. Shares of Skellam
noise add up to Skellam noise of the summed variance: the sum of `least` sites has the whole noise, a larger one more. Only sums follow.

Sensitivity. d: what a sentence changes in the n scaled numbers of a part, |d| <= q. e: the same after rounding, each d_j up or down.
    E |e|^2 = |d|^2 + sum f (1 - f) <= |d|^2 + n / 4                      f: fraction of d_j; neighbouring texts have the same dither
    |e|^2 <= |d|^2 + r,  r = n / 4 + (2 q + sqrt(n)) sqrt(ln(1e12) / 2)   with probability 1 - 1e-12 (Hoeffding 1963)
Clipping is joint, so the sum of |d|^2 / q^2 over the parts is at most 1, and that of |e|^2 / q^2 at most k^2 = 1 + sum of r / q^2.

Noise. Moving Skellam noise of variance v by a whole number e has a Rényi divergence of whole order a > 1 of at most
    a e^2 / 2v + ((2a - 1) e^2 + 6 |e|) / 4v^2 <= (1 + 9 / 4v) a e^2 / 2v     their bound; |e| <= e^2
With v = (z k q)^2 + 9/4 that is in all at most a / 2z^2, the divergence of Gaussian noise of z clips.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from fedlingua.clustering.clusters import Clusters
from fedlingua.common.errors import ConfigError
from fedlingua.exchange.joined import Numbers, cuts
from fedlingua.exchange.tensors import TensorSet
from fedlingua.privacy.accounting import noise_for
from fedlingua.privacy.fixed_point import Group
from fedlingua.privacy.secrets import derived
from fedlingua.settings.config import Settings

SEED = "noise seed"
"""Name, beside a site's sums of clipped gradients, of the 32 bytes from which their dither and noise are drawn."""
ROUNDING = (1.05, 1.1, 1.2)
"""Values of k, by which rounding makes the noise larger, and the scale smaller."""
BITS = (16, 24)
"""Bits of a number that is sent: the first in which noise and sums fit."""
MOST_VARIANCE = 1e9
"""The largest variance, in levels squared, whose probabilities are exact in float64."""
REACH = 0.03
"""Clips per sentence of the largest site that a number of its sum should reach before it is cut; the most on the phrasebook."""
_MISS = math.sqrt(math.log(1e12) / 2)


@dataclass(frozen=True)
class PartNoise:
    """How a site's sum of clipped gradients in one part becomes levels, whole numbers of `group`.

    scale: Levels per clip. clip: `dp.clip`. variance: That of one site's share of the noise, in levels squared. top: The greatest magnitude
    of a site's number before its noise, in levels; larger ones are cut.
    """

    scale: float
    clip: float
    variance: float
    top: int
    group: Group

    def levels(self, sums: Numbers, seed: bytes) -> Numbers:
        """Return (n,), the rounded levels of (n,) float32 sums, with this site's share of the noise.

        seed: 32 secret bytes, drawn after the tensors to train from came, so that these do not depend on the dither.
        """
        dither = np.random.default_rng(int.from_bytes(derived(seed, "dither")))
        noise = Skellam(self.variance, derived(seed, "noise"))
        levels = np.empty(len(sums), self.group.dtype)
        for each in cuts(len(sums)):
            scaled = np.nan_to_num(sums[each].astype(np.float64) * (self.scale / self.clip))
            rounded = np.floor(np.clip(scaled, -self.top, self.top) + dither.random(len(scaled))).astype(np.int64)
            levels[each] = self.group.reduced(rounded + noise.draw(len(scaled)))
        return levels

    def change(self, total: Numbers, rate: float, sentences: int) -> Numbers:
        """Return the step of SGD, (n,) float32, by a sum of levels, (n,), over sites with so many sentences."""
        change: Numbers = (self.group.signed(total) * (-rate * self.clip / (self.scale * sentences))).astype(np.float32)
        return change


def planned(settings: Settings, clusters: Clusters, chosen: TensorSet, sentences: int) -> dict[str, PartNoise]:
    """Return part -> its scale and noise, which all know before training; a part's clusters have those of its largest.

    sentences: Those of the largest site.

    Raises:
        ConfigError: On a scale that is fine enough for so many parameters, the noise is too large.
    """
    noise, least = noise_for(settings.dp_epsilon, settings.dp_delta, 1.0, settings.rounds, True), settings.privacy_min_cluster
    sizes = {part: sum(chosen.sizes_of(part)) for part in clusters if chosen.of_part(part)}
    most = {part: max(map(len, clusters[part].values())) for part in sizes}
    fitting = list[dict[str, PartNoise]]()
    for bits, factor in product(BITS, ROUNDING):
        room, wanted = (factor**2 - 1) / len(sizes), factor * noise
        parts = {str(part): _part(size, room, wanted, least, Group(bits, most[part]), settings) for part, size in sizes.items()}
        if all(map(_fits, parts.values())):
            if all(each.top >= REACH * sentences * each.scale for each in parts.values()):
                return parts
            fitting.append(parts)
    if fitting:
        return fitting[-1]
    numbers, sites = " and ".join(f"{size:,}" for size in sizes.values()), max(most.values())
    raise ConfigError(
        f"dp.noise = 'shares': the noise of {sites} sites for epsilon = {settings.dp_epsilon:g} over {settings.rounds} rounds, {noise:.3g} "
        f"clips in a sum of {least}, is too large on a scale that is fine enough for {numbers} parameters; train fewer "
        "parameters (adapter.dim, tensor-set), or give a larger privacy.min-cluster or dp.epsilon, or fewer rounds"
    )


def _part(size: int, room: float, noise: float, least: int, group: Group, settings: Settings) -> PartNoise:
    """Return the plan with the least scale for which r / q^2 is at most `room`, and 6 standard deviations of all noise. noise: z k."""
    scale = (_MISS + math.sqrt(_MISS**2 + room * (size / 4 + math.sqrt(size) * _MISS))) / room
    share = ((noise * scale) ** 2 + 9 / 4) / least
    top = int((2 ** (group.bits - 1) - 1 - 6 * math.sqrt(share * group.sites)) / group.sites)
    return PartNoise(scale, settings.dp_clip, share, top, group)


def _fits(part: PartNoise) -> bool:
    """Return whether 3/8 of a group's numbers at the least are left beside the noise, and a site's sum may reach a clip."""
    return (
        part.group.sites * part.top >= 3 * 2 ** (part.group.bits - 4)
        and part.top >= part.scale
        and part.variance <= MOST_VARIANCE
    )


class Skellam:
    """Skellam numbers of mean 0 from ChaCha20's key stream, exact but for float64's rounding and what comes less often than 2^-63."""

    def __init__(self, variance: float, key: bytes) -> None:
        self._stream, self._reached = Cipher(ChaCha20(key, bytes(16)), None).encryptor(), _reached(variance)

    def draw(self, count: int) -> Numbers:
        """Return the next (count,) int64: a magnitude by 63 bits of a word, and a sign by the last, without effect on 0."""
        words = np.frombuffer(self._stream.update(bytes(8 * count)), "<u8")
        magnitude = np.searchsorted(self._reached, -((words >> np.uint64(1)) + 0.5) * 2.0**-63)
        return np.where(words & np.uint64(1), magnitude, -magnitude)


@lru_cache(maxsize=4)
def _reached(variance: float) -> Numbers:
    """Return minus the probability of a magnitude of m or more, for m = 1, 2, ...: ascending, as searchsorted wants it."""
    from scipy.special import ive

    each = 2 * ive(np.arange(1.0, 12 * math.sqrt(variance) + 64), variance)  # e^-v I_m(v), for m and for -m
    at_least: Numbers = -np.cumsum(each[::-1])[::-1]  # the smallest first, so that the tail is exact
    return at_least
