"""Measures of each tensor in a round: MetaSend's deviation, the difference that DP sorts by, and the mean magnitude.

Each raises an ExchangeError that names the first tensor that is not finite.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from fedlingua.exchange.joined import BLOCK, Numbers, cuts
from fedlingua.exchange.tensors import TensorSet, not_finite

ROW = 1024
"""Numbers in a row: magnitudes inside a row are added in float32, in many partial sums; the rows' sums in float64."""
_ONES = np.ones(ROW, np.float32)
_MOST = float(np.finfo(np.float32).max)


def deviations(new: Mapping[str, Numbers], previous: Mapping[str, Numbers], chosen: TensorSet) -> Numbers:
    """Return dev = ||new - previous|| / ||previous|| of each tensor: MetaSend (WWW 2024), eq. 2.

    (n_tensors,) float32 in the set's order. The norm is the sum of magnitudes ("absolute-value norm"). A previous tensor of
    zeros has no deviation: inf if it changed, else 0. Other deviations that overflow float32 become its largest number.
    """
    changes, norms = _norms(new, previous, chosen)
    shares = np.where(changes > 0, np.inf, 0.0)
    np.divide(changes, norms, out=shares, where=norms > 0)
    return np.where(norms > 0, np.minimum(shares, _MOST), shares).astype(np.float32)


def differences(new: Mapping[str, Numbers], previous: Mapping[str, Numbers], chosen: TensorSet) -> Numbers:
    """Return ||new - previous|| per tensor, (n_tensors,) float64 in the set's order: Passban et al. 2022 sort by it."""
    return _norms(new, previous, chosen)[0]


def magnitudes(tensors: Mapping[str, Numbers], chosen: TensorSet) -> Numbers:
    """Return the mean |number| per tensor, (n_tensors,) float32 in order: the second filter's input (MetaSend's journal, §V-E)."""
    sizes = np.array([max(1, spec.size) for spec in chosen.specs], np.float64)
    return (_norms(tensors, tensors, chosen)[1] / sizes).astype(np.float32)


def _norms(new: Mapping[str, Numbers], previous: Mapping[str, Numbers], chosen: TensorSet) -> tuple[Numbers, Numbers]:
    """Return ||new - previous|| and ||previous|| per tensor, in one pass over both."""
    scratch = np.empty((2, BLOCK // ROW, ROW), np.float32)
    norms = np.empty((2, len(chosen.specs)))
    for place, name in enumerate(chosen.names):
        after, before = np.ravel(new[name]), np.ravel(previous[name])
        norms[:, place] = _sums(after, before, scratch)
        if not np.isfinite(norms[:, place]).all():
            # A row overflowed float32, or a number is not finite: float64 tells which.
            norms[:, place] = _sums_in_float64(after, before)
            if not np.isfinite(norms[:, place]).all():
                raise not_finite(name)
    return norms[0], norms[1]


def _sums(after: Numbers, before: Numbers, scratch: Numbers) -> Numbers:
    """Return the sums of |after - before| and of |before|; each number is read once, and temporary results fit in two blocks."""
    sums = np.empty((-(-after.size // BLOCK), *scratch.shape[:2]), np.float32)
    change, start = scratch.reshape(2, BLOCK)
    with np.errstate(over="ignore", invalid="ignore"):  # the sum shows it
        for new, previous, of_rows in zip(_blocks(after), _blocks(before), sums, strict=True):
            np.subtract(new, previous, out=change)
            np.abs(change, out=change)
            np.abs(previous, out=start)
            np.vecdot(scratch, _ONES, out=of_rows)
    return np.asarray(sums.sum(axis=(0, 2), dtype=np.float64))


def _blocks(flat: Numbers) -> Iterator[Numbers]:
    """Yield the numbers block by block, the last block filled up with zeros; slicing would take a tenth of the whole time."""
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
