"""How far each tensor moved in a round: the deviation of MetaSend, the difference that DP sorts by, and a tensor's magnitude."""

import math
from collections.abc import Iterator, Mapping

import numpy as np

from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.tensors import TensorSet, not_finite
from fedlingua.selection.blocks import BLOCK, cuts

ROW = 1024
"""Numbers whose magnitudes are added in float32, by many partial sums; rows are added in float64."""
_ONES = np.ones(ROW, np.float32)
_MOST = float(np.finfo(np.float32).max)


def deviations(new: Mapping[str, Numbers], previous: Mapping[str, Numbers], chosen: TensorSet) -> Numbers:
    """dev = ||new - previous|| / ||previous|| per tensor, (n_tensors,) float32 in the set's order: MetaSend (WWW 2024), eq. 2.

    The norm is the sum of magnitudes ("absolute-value norm"). A tensor of zeros has no deviation: inf where it changed, 0 where it
    did not. Nothing else is inf: where float32 ends, its largest number stands.

    Raises:
        ExchangeError: names the first tensor that is not finite.
    """
    changes, norms = _norms(new, previous, chosen)
    shares = np.where(changes > 0, np.inf, 0.0)
    np.divide(changes, norms, out=shares, where=norms > 0)
    return np.where(norms > 0, np.minimum(shares, _MOST), shares).astype(np.float32)


def differences(new: Mapping[str, Numbers], previous: Mapping[str, Numbers], chosen: TensorSet) -> Numbers:
    """||new - previous|| per tensor, (n_tensors,) float64 in the set's order: what Passban et al. 2022 sort by.

    Raises:
        ExchangeError: names the first tensor that is not finite.
    """
    return _norms(new, previous, chosen)[0]


def magnitudes(tensors: Mapping[str, Numbers], chosen: TensorSet) -> Numbers:
    """Mean |number| per tensor, (n_tensors,) float32 in the set's order: what the second filter looks at (MetaSend's journal, §V-E).

    Raises:
        ExchangeError: names the first tensor that is not finite.
    """
    sizes = np.array([max(1, math.prod(spec.shape)) for spec in chosen.specs], np.float64)
    return (_norms(tensors, tensors, chosen)[1] / sizes).astype(np.float32)


def _norms(new: Mapping[str, Numbers], previous: Mapping[str, Numbers], chosen: TensorSet) -> tuple[Numbers, Numbers]:
    """||new - previous|| and ||previous|| per tensor, in one pass over both."""
    scratch = np.empty((2, BLOCK // ROW, ROW), np.float32)
    norms = np.empty((2, len(chosen.specs)))
    for place, name in enumerate(chosen.names):
        after, before = np.ravel(new[name]), np.ravel(previous[name])
        norms[:, place] = _sums(after, before, scratch)
        if not np.isfinite(norms[:, place]).all():
            # float32 ended within a row, or a number is not finite: float64 tells which.
            norms[:, place] = _sums_in_float64(after, before)
            if not np.isfinite(norms[:, place]).all():
                raise not_finite(name)
    return norms[0], norms[1]


def _sums(after: Numbers, before: Numbers, scratch: Numbers) -> Numbers:
    """Sum of |after - before| and of |before|: each number comes from memory once, all else happens in two blocks."""
    sums = np.empty((-(-after.size // BLOCK), *scratch.shape[:2]), np.float32)
    change, start = scratch.reshape(2, BLOCK)
    with np.errstate(over="ignore", invalid="ignore"):  # found by the sum
        for new, previous, of_rows in zip(_blocks(after), _blocks(before), sums, strict=True):
            np.subtract(new, previous, out=change)
            np.abs(change, out=change)
            np.abs(previous, out=start)
            np.vecdot(scratch, _ONES, out=of_rows)
    return np.asarray(sums.sum(axis=(0, 2), dtype=np.float64))


def _blocks(flat: Numbers) -> Iterator[Numbers]:
    """Its numbers, a block at a time; the last filled up with zeros. Not by slices: they would be a tenth of the time."""
    whole = flat.size // BLOCK * BLOCK
    yield from flat[:whole].reshape(-1, BLOCK)
    if whole < flat.size:
        last = np.zeros(BLOCK, flat.dtype)
        last[: flat.size - whole] = flat[whole:]
        yield last


def _sums_in_float64(after: Numbers, before: Numbers) -> Numbers:
    sums = np.zeros(2)
    with np.errstate(invalid="ignore"):
        for cut in cuts(after.size):
            start = before[cut].astype(np.float64)
            sums += np.abs(after[cut] - start).sum(), np.abs(start).sum()
    return sums
