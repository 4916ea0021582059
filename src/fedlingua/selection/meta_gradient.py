"""dL_val / dtheta: what a higher threshold of MetaSend would do to the validation loss (the gradient of eq. 5), estimated in three ways.

Site k sends the tensors whose deviation lies on the right side of theta; one that is not sent counts with what the site received:

    W_s(l) = W_g(l) + sum_k w_k g_k(l) (W_k(l) - W_g(l))          w: weights inside a cluster, g: 1 where sent, else 0

With g as a soft gate (selection/gates.py) and L_val = sum_j v_j L_j over the sites' own dev texts,

    dL_val / dtheta = sum_j v_j <grad L_j(W_s), D>     with D(l) = sum_k w_k g_k'(l) (W_k(l) - W_g(l))

- `cross`: the server makes D of what it received (`direction`), each site answers with one number (`inner_product`), and `mean_over_sites`
  adds them up. Exact under soft gates where all was sent; of a tensor that stayed at its site the server has nothing to make a term of, so
  theta rests about a tau on the side that sends more, and a round in which nobody sent anything has no D: ask for `own` in it. D goes down
  to every site of the cluster: bytes of what was sent, once more.
- `own`: each site makes its own terms, k = j, by itself (`own_slope`); nothing but the one number travels. Biased: what one site's
  tensors do to the others' loss is left out.
- `loss`: the journal lets L_val alone travel. As a function of theta it is a staircase, so the slope is that of its mean over thetas drawn
  around mu (`score_slope`). Unbiased for that, and noisy: one draw a round.

Were the mean taken over those who sent (`send.missing = "renormalise"`), a tensor of one site alone would count in full however
far its gate is open: its true slope is 0, and there would be nothing to learn from. So theta is learnt as above whichever mean is used.
"""

import math
from collections.abc import Mapping

import numpy as np

from fedlingua.exchange.joined import Flat, Numbers, flat
from fedlingua.exchange.tensors import Tensors
from fedlingua.selection.blocks import cuts
from fedlingua.selection.gates import Keep, gate, gate_slope

BLOCK = 64 * 1024
"""Numbers at a time; an inner product is added up block by block, so another number would give a slope other last bits."""
SPREAD = 0.25
"""sigma as a share of mu: the thetas tried are within a half of mu around it nearly always, and below 0 once in 30,000 rounds."""


Deviations = Mapping[str, float]
"""tensor -> deviation (eq. 2)"""


# --- cross ---------------------------------------------------------------------------------------------------------------------


def direction(
    received: Mapping[str, Numbers],
    updates: Mapping[str, Mapping[str, Numbers]],
    weights: Mapping[str, float],
    deviations: Mapping[str, Deviations],
    theta: float,
    tau: float,
    keep: Keep,
) -> Tensors:
    """D of one cluster's tensors, float32: where W_s would go, per theta. Tensors that nobody sent, or that no theta moves, are not in it.

    received: what the cluster's sites began the round with. updates: site -> the tensors that it sent, in federation order, in which
    they are added. weights: site -> w, adding up to 1 over the cluster's sites, those that sent nothing counted.
    """
    moves: Tensors = {}
    for name, start in received.items():
        senders = [
            (flat(tensors, name), np.float32(weights[site] * float(gate_slope(deviations[site][name], theta, tau, keep))))
            for site, tensors in updates.items()
            if name in tensors
        ]
        moving = [(numbers, factor) for numbers, factor in senders if factor != 0]
        if moving:
            moves[name] = _direction(np.ravel(start), moving).reshape(start.shape)
    return moves


def _direction(start: Numbers, senders: list[tuple[Flat, np.float32]]) -> Numbers:
    total = np.zeros(len(start), np.float32)
    for cut in cuts(len(start), BLOCK):
        for numbers, factor in senders:
            total[cut] += factor * (numbers[cut] - start[cut])
    return total


def inner_product(gradients: Mapping[str, Numbers], direction: Mapping[str, Numbers]) -> float:
    """<grad L_j, D> over the tensors of D, in float64: a site's answer. Not finite where a gradient is not."""
    return sum((_product(flat(gradients, name), flat(direction, name)) for name in direction), 0.0)


def mean_over_sites(answers: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """sum_j v_j answer_j over the sites that answered, slopes or losses, their weights made to add up to 1; NaN where none did.

    weights: site -> how much its dev text counts in L_val, over the whole federation. The sum is exact, so no order changes it.
    """
    present = math.fsum(weights[site] for site in answers)
    if not present or not all(map(math.isfinite, answers.values())):
        return math.nan
    return math.fsum(weights[site] / present * answer for site, answer in answers.items())


# --- own -----------------------------------------------------------------------------------------------------------------------


def own_slope(
    gradients: Mapping[str, Numbers],
    received: Mapping[str, Numbers],
    trained: Mapping[str, Numbers],
    weight: float,
    deviations: Deviations,
    theta: float,
    tau: float,
    keep: Keep,
) -> float:
    """<grad L_k(W_s), w_k g_k' (W_k - W_g)> over the tensors of `trained`, in float64: one site's answer.

    A site has what it did not send, too: of all that it trained, its own terms are whole on both sides of theta, as no server's are.
    weight: the site's in its cluster; a site whose parts lie in clusters of their own answers with the sum over its parts.
    """
    slopes = {name: float(gate_slope(deviations[name], theta, tau, keep)) for name in trained}
    products = {
        name: _product(flat(gradients, name), flat(trained, name), flat(received, name))
        for name, slope in slopes.items()
        if slope
    }
    return weight * sum((slopes[name] * product for name, product in products.items()), 0.0)


def _product(gradient: Flat, there: Flat, start: Flat | None = None) -> float:
    """<gradient, there - start>, added up by numpy itself: a BLAS would cut the sum by the number of its threads."""
    total = 0.0
    with np.errstate(invalid="ignore"):  # whoever takes the answer looks at it
        for cut in cuts(len(there), BLOCK):
            change = there[cut].astype(np.float64)
            if start is not None:
                change -= start[cut]
            total += float((gradient[cut] * change).sum())
    return total


# --- loss ----------------------------------------------------------------------------------------------------------------------


def score_slope(loss: float, baseline: float, theta: float, mu: float, sigma: float) -> float:
    """One draw's estimate of d/dmu of the mean of L over theta ~ N(mu, sigma^2): (L - baseline) d log p(theta) / dmu.

    The score (theta - mu) / sigma^2 has mean 0, so a baseline that does not depend on this draw takes noise away and adds no bias.
    theta: as drawn, below 0 too. A run uses its absolute value; L(|theta|) is a function of what was drawn like any other, so the estimate
    is that of its mean. sigma may follow mu from round to round; in the slope of one round it is a constant.
    """
    return (loss - baseline) * (theta - mu) / sigma**2


# --- bytes ---------------------------------------------------------------------------------------------------------------------


def soft_share(deviations: Mapping[str, Deviations], sizes: Mapping[str, int], theta: float, tau: float, keep: Keep) -> float:
    """Share of a site's numbers that soft gates let through, 0..1, mean over sites. sizes: tensor -> its numbers."""
    return _mean_share({site: gate(_in_order(of_site, sizes), theta, tau, keep) for site, of_site in deviations.items()}, sizes)


def bytes_slope(deviations: Mapping[str, Deviations], sizes: Mapping[str, int], theta: float, tau: float, keep: Keep) -> float:
    """d soft_share / d theta; times lambda, what the weight on bytes adds to the slope of `cross` and `own`.

    L_val does not know what sending costs, so without it theta may drift to where all is sent. With `loss`, lambda x the share really sent
    is added to the loss. deviations: of all tensors, sent or not.
    """
    slopes = {site: gate_slope(_in_order(of_site, sizes), theta, tau, keep) for site, of_site in deviations.items()}
    return _mean_share(slopes, sizes)


def _mean_share(gates: Mapping[str, Numbers], sizes: Mapping[str, int]) -> float:
    numbers = np.array(list(sizes.values()), np.float64)
    return math.fsum(math.fsum(numbers * of_site) for of_site in gates.values()) / float(numbers.sum()) / len(gates)


def _in_order(deviations: Deviations, sizes: Mapping[str, int]) -> list[float]:
    return [deviations[name] for name in sizes]
