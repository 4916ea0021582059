"""The slope of the validation loss with respect to MetaSend's threshold, dL_val / dtheta (eq. 5), estimated in two ways.

Site k sends the tensors whose deviation lies on the right side of theta; a tensor that is not sent counts as it was received:

    W_s(l) = W_g(l) + sum_k w_k g_k(l) u_k(l)       u: W_k - W_g; w: weights inside a cluster; g: 1 where sent, else 0

With g as a soft gate (`gate_slope`) and L_val = sum_j v_j L_j over the sites' own dev texts,

    dL_val / dtheta = sum_j v_j sum_k sum_l w_k g_k'(l) <grad L_j(W_s)(l), u_k(l)>

- `own`: each site computes its own terms, k = j (`own_slope`), and sends their sum, one number. Biased: the effect of a site's
  tensors on the others' loss is left out.
- `loss`: only L_val travels, as in the journal. It is a step function of theta, so the slope is that of its mean over thetas drawn
  around mu (`score_slope`). Unbiased for that mean, and noisy: one draw a round.
"""

import math
from collections.abc import Mapping
from statistics import median

import numpy as np
from numpy.typing import ArrayLike

from fedlingua.exchange.joined import Numbers, cuts, flat
from fedlingua.selection.rules import Keep

BLOCK = 64 * 1024
"""Numbers in a block of an inner product's sum; another size would change the last bits of a slope."""


def mean_over_sites(answers: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Return sum_j v_j answer_j of slopes or losses, with the answering sites' weights scaled to sum 1; NaN if none answered.

    weights: site -> the weight of its dev text in L_val, over the whole federation. The sum is exact, so the order does not matter.
    """
    present = math.fsum(weights[site] for site in answers)
    if not present or not all(map(math.isfinite, answers.values())):
        return math.nan
    return math.fsum(weights[site] / present * answer for site, answer in answers.items())


def bounded(values: Mapping[str, float], ratio: float) -> dict[str, float]:
    """Return the sites' values, each of a magnitude of at most `ratio` times the median magnitude of those that are not 0.

    Nothing is bounded if there are fewer than three sites, or if the ratio is 0. Without a bound one huge value would stay in
    Adam's mean of squares, and end the learning.
    """
    most = ratio * median([abs(value) for value in values.values() if value] or [0.0]) if len(values) > 2 else 0.0
    return {site: math.copysign(min(abs(value), most or math.inf), value) for site, value in values.items()}


def gate_slope(deviations: ArrayLike, theta: float, tau: float, keep: Keep) -> Numbers:
    """Return d gate / d theta, float64: negative under "g", positive under "l", 0 where the deviation is infinite.

    Whether a tensor is sent is a step function of theta, which has no slope to learn from. Rounds select by the step; learning uses
    the slope of a sigmoid of width tau, a half where the deviation is theta. The paper gives no form for the step from L_val to phi
    (eq. 5); this one is ours.

    deviations: eq. 2, >= 0; infinite for a tensor whose norm was 0, which is sent whatever theta is.
    """
    small = np.exp(-np.abs((np.asarray(deviations, np.float64) - theta) / tau))
    steepness = small / np.square(1.0 + small) / tau
    return -steepness if keep == "g" else steepness


# --- own -----------------------------------------------------------------------------------------------------------------------


def products(
    gradients: Mapping[str, Numbers], received: Mapping[str, Numbers], trained: Mapping[str, Numbers]
) -> dict[str, float]:
    """Return <grad L_k(W_s), u_k> of each tensor that has a gradient, in float64; u_k = trained - received.

    The products are summed by numpy itself: a BLAS would split the sum by its number of threads.
    """
    sums = dict.fromkeys(gradients, 0.0)
    for name in gradients:
        gradient, start, there = (flat(each, name) for each in (gradients, received, trained))
        with np.errstate(invalid="ignore"):  # the caller checks the result
            for cut in cuts(len(there), BLOCK):
                sums[name] += float((gradient[cut] * (there[cut].astype(np.float64) - start[cut])).sum())
    return sums


def own_slope(
    of_tensors: Mapping[str, float], weight: float, deviations: Mapping[str, float], theta: float, tau: float, keep: Keep
) -> float:
    """Return sum_l w_k g_k'(l) <grad L_k(W_s), u_k>(l): the slope of a site's loss due to its own update, in one part.

    Args:
        of_tensors: The `products` to sum; weight: the site's weight in its cluster; deviations: tensor -> eq. 2.
    """
    slopes = {name: float(gate_slope(deviations[name], theta, tau, keep)) for name in of_tensors}
    return weight * sum((slope * of_tensors[name] for name, slope in slopes.items() if slope), 0.0)


# --- loss ----------------------------------------------------------------------------------------------------------------------


def score_slope(loss: float, baseline: float, theta: float, mu: float, sigma: float) -> float:
    """Return one draw's estimate of d/dmu of the mean of L over theta ~ N(mu, sigma^2): (L - baseline) d log p(theta) / dmu.

    The score (theta - mu) / sigma^2 has mean 0, so a baseline that does not depend on this draw reduces noise and adds no bias.
    theta: as drawn, also if below 0. A run uses |theta|; L(|theta|) is a function of the draw like any other, so the estimate
    is that of its mean. sigma may follow mu from round to round; in the slope of one round it is a constant.
    """
    return (loss - baseline) * (theta - mu) / sigma**2


# --- bytes ---------------------------------------------------------------------------------------------------------------------


def bytes_slope(deviations: Mapping[str, Numbers], sizes: Numbers, theta: float, tau: float, keep: Keep) -> float:
    """Return d / d theta of the share of a site's numbers that soft gates let through, mean over sites.

    Times lambda, the weight on bytes, it is added to the slope of `own`: L_val does not include what sending costs,
    so theta may drift until everything is sent. With `loss`, lambda x the share sent is added to the loss.

    Args:
        deviations: site -> (tensors,) of all tensors, sent or not; sizes: (tensors,), how many numbers each has.
    """
    slopes = [math.fsum(sizes * gate_slope(of_site, theta, tau, keep)) for of_site in deviations.values()]
    return math.fsum(slopes) / float(sizes.sum()) / len(slopes)
