"""Tensor changes as integers modulo 2^b, and counters beside them, whose sums do not overflow, also under masks.

b is 12, 16 or 24, or less where a code of few bits leaves a site few levels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np

from fedlingua.common.errors import ConfigError, ExchangeError
from fedlingua.exchange.joined import Numbers

MOST_SITES = {12: 16, 16: 64}
"""Bits of a number -> the most sites whose numbers can be summed in them."""
MOST_EXPONENT = 60
"""Scales are 2^-60 to 2^60."""
UNSENT = MOST_EXPONENT + 1
"""In place of the exponent of a tensor's scale: the tensor is not in the sum."""
CHECKS = 4
"""Fewest ones that are appended to a part's levels."""
_BLOCK = 1 << 16


def in_sum(exponents: Sequence[int], sizes: Sequence[int]) -> tuple[Numbers, list[int], list[int]]:
    """Return which numbers of a part are in a sum, (n,) bool, and the exponents and sizes of their tensors."""
    taken = [exponent != UNSENT for exponent in exponents]
    return np.repeat(taken, sizes), [*compress(exponents, taken)], [*compress(sizes, taken)]


@dataclass(frozen=True)
class Group:
    """The integers modulo 2^bits, in which the levels of `sites` sites are summed without overflow."""

    bits: int
    sites: int

    @classmethod
    def of(cls, sites: int, least: int = 0) -> "Group":
        """Return the smallest group for this number of sites; raise ConfigError for more than 64.

        least: The magnitude that a site's level has to reach; 0: one that loses next to nothing.
        """
        few = (sites * least).bit_length() + 1
        for bits, most in MOST_SITES.items():
            if sites <= most:
                return cls(min(bits, few if few <= 8 else few + few % 2) if least else bits, sites)
        raise ConfigError(
            f"privacy.sum = 'secure' adds up 64 sites in a cluster at most, but one has {sites}; make more clusters"
        )

    @property
    def top(self) -> int:
        """The greatest magnitude of one site's level."""
        return ((1 << (self.bits - 1)) - 1) // self.sites

    @property
    def dtype(self) -> type[np.unsignedinteger[Any]]:
        """The type of its numbers in memory."""
        return np.uint16 if self.bits <= 16 else np.uint32

    @property
    def checks(self) -> int:
        """How many ones are appended to a part's levels; they sum to the number of sites only if all masks cancelled."""
        return max(CHECKS, 48 // self.bits)

    @property
    def together(self) -> int:
        """How many numbers are packed into whole bytes, at most eight of these."""
        return 8 if self.bits <= 8 else 4 if self.bits <= 16 else 2

    def num_bytes(self, count: int) -> int:
        """Return the bytes that `count` packed numbers take."""
        return -(-self.bits * count // 8)

    def reduced(self, numbers: Numbers) -> Numbers:
        """Return whole numbers, signed or not, modulo 2^bits."""
        levels: Numbers = numbers.astype(self.dtype) & self.dtype((1 << self.bits) - 1)
        return levels

    def signed(self, total: Numbers) -> Numbers:
        """Return numbers modulo 2^bits as the int32 next to 0."""
        signed = total.astype(np.int32)
        signed[signed >= 1 << (self.bits - 1)] -= 1 << self.bits
        return signed


def encode(
    change: Numbers, exponents: Sequence[int], sizes: Sequence[int], group: Group, generator: np.random.Generator
) -> tuple[Numbers, int]:
    """Round a part's change to levels, each stochastically up or down so that its expectation is exact.

    Args:
        change: (n,) float32, the tensors end to end.
        exponents: The exponent of each tensor's scale, a power of two; numbers beyond the scale are clipped to it.
        sizes: The number of elements of each tensor.

    Returns:
        (n,) uint16 levels modulo 2^bits, and how many numbers were clipped. What is no finite number counts as clipped, to 0: an error
        would tell the server something of this one site.
    """
    levels, cut, first = np.empty(len(change), np.uint16), 0, 0
    for exponent, size in zip(exponents, sizes, strict=True):
        for start in range(first, first + size, _BLOCK):
            block = change[start : min(start + _BLOCK, first + size)].astype(np.float64)
            finite = np.isfinite(block)
            scaled = np.where(finite, block, 0.0) * (group.top * 2.0**-exponent)
            cut += int(np.count_nonzero((np.abs(scaled) > group.top) | ~finite))
            rounded = np.floor(np.clip(scaled, -group.top, group.top) + generator.random(len(block)))
            levels[start : start + len(block)] = group.reduced(rounded.astype(np.int64))
        first += size
    return levels, cut


def decode(total: Numbers, exponents: Sequence[int], sizes: Sequence[int], group: Group) -> Numbers:
    """Return the sum of changes, (n,) float32, from `total`, the sum of levels: (n,) uint16, modulo 2^bits."""
    scales = np.repeat(np.ldexp(1.0 / group.top, np.asarray(exponents, np.int64)), np.asarray(sizes, np.int64))
    changes: Numbers = (group.signed(total) * scales).astype(np.float32)
    return changes


def pack(levels: Numbers, group: Group) -> Numbers:
    """Pack levels into bytes, the bits of one after those of the other, the lowest first."""
    padded = np.zeros((-(-len(levels) // group.together), group.together), group.dtype)
    padded.reshape(-1)[: len(levels)] = levels
    words = np.zeros(len(padded), "<u8")
    for place in range(group.together):
        words |= padded[:, place].astype(np.uint64) << np.uint64(group.bits * place)
    return words.view(np.uint8).reshape(-1, 8)[:, : group.bits * group.together // 8].reshape(-1)[: group.num_bytes(len(levels))]


def unpack(packed: Numbers, count: int, group: Group) -> Numbers:
    """Unpack (count,) levels of the group's type; raise ExchangeError if the number of bytes is wrong."""
    if packed.dtype != np.uint8 or packed.shape != (group.num_bytes(count),):
        got = f"{packed.dtype} {packed.shape}"
        raise ExchangeError(
            f"masked numbers are {got}; wanted {group.num_bytes(count)} bytes, {count} numbers of {group.bits} bits"
        )
    each, size = -(-count // group.together), group.bits * group.together // 8
    padded = np.zeros((each, 8), np.uint8)
    padded[:, :size] = np.append(packed, np.zeros(each * size - len(packed), np.uint8)).reshape(-1, size)
    words, levels = padded.view("<u8")[:, 0], np.empty((each, group.together), group.dtype)
    for place in range(group.together):
        levels[:, place] = group.reduced(words >> np.uint64(group.bits * place))
    return levels.reshape(-1)[:count]


def next_exponents(mean: Numbers, sizes: Sequence[int], before: Sequence[int], most: int, cuts: bool) -> list[int]:
    """Return the next round's exponents. They follow from the aggregate, so all sites may know them.

    A site's change is larger than the mean change, so its scale is 4 to 8 times the mean's largest magnitude. If numbers were clipped
    in this round, every scale is at least doubled.

    Args:
        mean: (n,), the mean change, the tensors end to end.
        before: This round's exponents.
        most: The exponent of the largest change that a site can make in a round.
        cuts: Whether any number was clipped in this round.
    """
    ends = np.cumsum(sizes)
    pieces = (mean[end - size : end] for end, size in zip(ends, sizes, strict=True))
    greatest = [float(np.abs(piece).max(initial=0.0)) for piece in pieces]
    wanted = [int(np.ceil(np.log2(4 * number))) if number else old for number, old in zip(greatest, before, strict=True)]
    if cuts:
        wanted = [max(new, old + 1) for new, old in zip(wanted, before, strict=True)]
    return [max(-MOST_EXPONENT, min(new, most)) for new in wanted]


COUNTERS_PART = "counters"
"""Name of the array of counters in a reply; its masks cancel in the sum over all sites of the run."""
SITES = "sites"
"""Name of the first of any counters: 1 for the site itself, so that the sum tells whether all masks cancelled."""
DEV_LOSS = ("dev_examples", "dev_tokens", "dev_nll", "dev_weighted")
"""Counters of a dev loss: its sums, and the loss a token times the examples. They are 0 if a round's training measures none."""
TRAINING = ("steps", "num_examples", "num_tokens", "nll_sum", "cut", *DEV_LOSS)
"""Counters of a round: the sums of its training, how many numbers were clipped to their scale, and the dev loss of the round before."""
_FRACTION = 1 << 20
MOST_COUNTED = float(1 << 37)
"""Largest number of a site in a sum: those of 64 sites fit in 64 bits."""


def counted(sums: Mapping[str, Any], names: Sequence[str]) -> Numbers:
    """Return a site's counters, (1 + n,) uint64 with 20 fractional bits: 1 for the site, then those named; 0 for a missing sum.

    A number below 0, above `MOST_COUNTED` or no number counts as `MOST_COUNTED`, which no honest sum comes to: an error would tell the
    server something of this one site.
    """
    values = (1.0, *(float(sums.get(name, 0)) for name in names))
    return np.array([round((value if 0 <= value <= MOST_COUNTED else MOST_COUNTED) * _FRACTION) for value in values], np.uint64)


def totals(counters: Numbers, names: Sequence[str]) -> dict[str, float]:
    """Decode unmasked counters into sums by name."""
    return {name: int(value) / _FRACTION for name, value in zip((SITES, *names), counters, strict=True)}
