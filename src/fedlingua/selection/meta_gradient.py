"""dL_val / dtheta: what a higher threshold of MetaSend would do to the validation loss (the gradient of eq. 5), estimated in three ways.

Site k sends the tensors whose deviation lies on the right side of theta; one that is not sent counts with what the site received:

    W_s(l) = W_g(l) + sum_k w_k g_k(l) u_k(l)       u: W_k - W_g; w: weights inside a cluster; g: 1 where sent, else 0

With g as a soft gate (selection/gates.py) and L_val = sum_j v_j L_j over the sites' own dev texts,

    dL_val / dtheta = sum_j v_j sum_k sum_l w_k g_k'(l) <grad L_j(W_s)(l), u_k(l)>

- `own`: each site makes its own terms, k = j, by itself (`own_slope`); nothing but the one number travels. Biased: what one site's
  tensors do to the others' loss is left out.
- `cross`: the same, and the terms of other sites from projections P: of every tensor's change, sent or not, and
  gradient each site sends 16 numbers, with E <P g, P u> = <g, u> (`cross_slope`). Nothing goes down.
- `loss`: the journal lets L_val alone travel. As a function of theta it is a staircase, so the slope is that of its mean over thetas drawn
  around mu (`score_slope`). Unbiased for that, and noisy: one draw a round.

Were the mean taken over those who sent (`send.missing = "renormalise"`), a tensor of one site alone would count in full however
far its gate is open: its true slope is 0, and there would be nothing to learn from. So theta is learnt as above whichever mean is used.
"""

import math
from collections.abc import Mapping

import numpy as np

from fedlingua.exchange.coding.coder import generator_of
from fedlingua.exchange.joined import Flat, Numbers, flat
from fedlingua.exchange.tensors import TensorSet
from fedlingua.selection.blocks import cuts
from fedlingua.selection.gates import Keep, gate_slope

BLOCK = 64 * 1024
"""Numbers at a time; an inner product is added up block by block, so another number would give a slope other last bits."""
PROJECTED = 16
"""Numbers of a projection."""
SPREAD = 0.25
"""sigma as a share of mu: the thetas tried are within a half of mu around it nearly always, and below 0 once in 30,000 rounds."""


def mean_over_sites(answers: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """sum_j v_j answer_j over the sites that answered, slopes or losses, their weights made to add up to 1; NaN where none did.

    weights: site -> how much its dev text counts in L_val, over the whole federation. The sum is exact, so no order changes it.
    """
    present = math.fsum(weights[site] for site in answers)
    if not present or not all(map(math.isfinite, answers.values())):
        return math.nan
    return math.fsum(weights[site] / present * answer for site, answer in answers.items())


# --- own and cross -------------------------------------------------------------------------------------------------------------


def products(
    gradients: Mapping[str, Numbers], received: Mapping[str, Numbers], trained: Mapping[str, Numbers]
) -> dict[str, float]:
    """<grad L_k(W_s), u_k> of each tensor that has a gradient, in float64."""
    return {name: _product(*(flat(each, name) for each in (gradients, received, trained))) for name in gradients}


def _product(gradient: Flat, start: Flat, there: Flat) -> float:
    """Added up by numpy itself: a BLAS would cut the sum by the number of its threads."""
    total = 0.0
    with np.errstate(invalid="ignore"):  # whoever takes the answer looks at it
        for cut in cuts(len(there), BLOCK):
            total += float((gradient[cut] * (there[cut].astype(np.float64) - start[cut])).sum())
    return total


def own_slope(
    of_tensors: Mapping[str, float], weight: float, deviations: Mapping[str, float], theta: float, tau: float, keep: Keep
) -> float:
    """sum_l w_k g_k'(l) <grad L_k(W_s), u_k>(l): what a site's own update does to its loss, in one part.

    Args:
        of_tensors: `products` of those that count; weight: the site's in its cluster; deviations: tensor -> eq. 2.
    """
    slopes = {name: float(gate_slope(deviations[name], theta, tau, keep)) for name in of_tensors}
    return weight * sum((slope * of_tensors[name] for name, slope in slopes.items() if slope), 0.0)


def projections(
    tensors: Mapping[str, Numbers], chosen: TensorSet, seed: int, number: int, received: Mapping[str, Numbers] | None = None
) -> Numbers:
    """(tensors, PROJECTED) float32 in the set's order: P of each tensor, or of its change; zeros of a missing one.

    Every number is added, with a sign, to one of 16 sums; both are drawn by run, round and tensor, for all sites
    alike. Feature hashing (Weinberger et al. 2009): as good as 16 rows of random signs, in a sixteenth of the time.

    Args:
        seed: the run's; number: the round; received: what the tensors were before, if a change is wanted.
    """
    sums = np.zeros((len(chosen.specs), 2 * PROJECTED))
    for row, name in zip(sums, chosen.names, strict=True):
        if name in tensors:
            draws, there = generator_of(seed, number, "every site", name).bit_generator, flat(tensors, name)
            start = flat(received, name) if received else np.zeros(len(there), np.float32)
            for cut in cuts(len(there), BLOCK):
                change = there[cut].astype(np.float64) - start[cut]
                places = draws.random_raw(-(-len(change) // 8)).view(np.uint8)[: len(change)] % (2 * PROJECTED)
                row += np.bincount(places, change, 2 * PROJECTED)
    return (sums[:, :PROJECTED] - sums[:, PROJECTED:]).astype(np.float32)


def cross_slope(
    gradient: Numbers, update: Numbers, weights: Numbers, deviations: Numbers, theta: float, tau: float, keep: Keep
) -> float:
    """sum_l w_k g_k'(l) <P grad L_j, P u_k>(l): about what site k's update does to the loss of site j.

    Args:
        gradient, update: (tensors, PROJECTED) projections, of j and of k.
        weights: (tensors,) of k in the cluster of each tensor, 0 where j is in another; deviations: (tensors,) of k.
    """
    slopes = weights * gate_slope(deviations, theta, tau, keep)
    return float((slopes[:, None] * gradient * update).sum())


# --- loss ----------------------------------------------------------------------------------------------------------------------


def score_slope(loss: float, baseline: float, theta: float, mu: float, sigma: float) -> float:
    """One draw's estimate of d/dmu of the mean of L over theta ~ N(mu, sigma^2): (L - baseline) d log p(theta) / dmu.

    The score (theta - mu) / sigma^2 has mean 0, so a baseline that does not depend on this draw takes noise away and adds no bias.
    theta: as drawn, below 0 too. A run uses its absolute value; L(|theta|) is a function of what was drawn like any other, so the estimate
    is that of its mean. sigma may follow mu from round to round; in the slope of one round it is a constant.
    """
    return (loss - baseline) * (theta - mu) / sigma**2


# --- bytes ---------------------------------------------------------------------------------------------------------------------


def bytes_slope(deviations: Mapping[str, Numbers], sizes: Numbers, theta: float, tau: float, keep: Keep) -> float:
    """d / d theta of the share of a site's numbers that soft gates let through, mean over sites.

    Times lambda it is what the weight on bytes adds to the slope of `own` and `cross`: L_val does not know what
    sending costs, so theta may drift to where all is sent. With `loss`, lambda x the share sent is added to the loss.

    Args:
        deviations: site -> (tensors,) of all tensors, sent or not; sizes: (tensors,) numbers of each.
    """
    slopes = [math.fsum(sizes * gate_slope(of_site, theta, tau, keep)) for of_site in deviations.values()]
    return math.fsum(slopes) / float(sizes.sum()) / len(slopes)
