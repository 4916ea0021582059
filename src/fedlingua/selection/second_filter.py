"""The second filter of MetaSend's journal (Chu et al., §V-E): a small network that looks at the magnitudes of the tensors that
the threshold selected, and decides which of them need not be sent after all.

The journal gives the network's input and output, not how it learns. Here it learns as the threshold does, by a soft gate: in
the backward pass a tensor's keep probability p is the gate, so dL_val / dp of tensor l is w_k <grad L_k, W_k(l) - W_g(l)>; each
site computes its own terms. A price on numbers is added, because by the loss alone no tensor would be left out to save bytes.
"""

import numpy as np

from fedlingua.exchange.joined import Numbers

NEURONS = 8
SIZE = 3 * NEURONS + 1
"""Parameters of the network, which is sent to every site in every round."""
KEPT_FROM = 0.5
"""Least probability at which a tensor is kept."""
PRICE = 0.001
"""What sending all numbers of an update costs, in nats per token: little beside the loss, as it only has to break ties."""
_SMALLEST = 1e-8
_KEEPS_AT_FIRST = 2.0
"""Initial bias of the output, a probability of 0.88: the filter begins by keeping everything."""


def drawn(seed: int) -> Numbers:
    """Return a newly drawn network with one hidden layer, (SIZE,) float32."""
    rng = np.random.default_rng([seed, 2])
    hidden, output = rng.normal(0, 1, 2 * NEURONS), rng.normal(0, 0.1, NEURONS)
    return np.concatenate([hidden, output, [_KEEPS_AT_FIRST]]).astype(np.float32)


def keep_probability(network: Numbers, magnitudes: Numbers) -> Numbers:
    """Return the probability that each tensor is kept, (tensors,) float64, 0-1. network: (SIZE,); magnitudes: (tensors,), mean
    |number| of each; the input is their decimal logarithm, scaled so that 1e-8 is -2 (the least), 0.01 is 0 and 10 is 1."""
    _, _, outputs = _forward(network, magnitudes)
    return 1 / (1 + np.exp(-outputs))


def network_gradient(network: Numbers, magnitudes: Numbers, slopes: Numbers) -> Numbers:
    """Return the gradient of sum_l slopes(l) p(l) in the network's parameters, (SIZE,) float64. slopes: (tensors,), dL / dp."""
    inputs, hidden, outputs = _forward(network, magnitudes)
    keep = 1 / (1 + np.exp(-outputs))
    at_output = slopes * keep * (1 - keep)
    at_hidden = np.where(hidden > 0, np.outer(at_output, network[2 * NEURONS : 3 * NEURONS].astype(np.float64)), 0.0)
    parts = [inputs @ at_hidden, at_hidden.sum(0), at_output @ hidden, [at_output.sum()]]
    return np.concatenate(parts)


def _forward(network: Numbers, magnitudes: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Return (inputs, hidden layer, outputs) in float64."""
    first, bias, second = (network[start : start + NEURONS].astype(np.float64) for start in (0, NEURONS, 2 * NEURONS))
    inputs = (np.log10(np.maximum(magnitudes.astype(np.float64), _SMALLEST)) + 2) / 3
    hidden = np.maximum(np.outer(inputs, first) + bias, 0.0)
    return inputs, hidden, hidden @ second + float(network[3 * NEURONS])
