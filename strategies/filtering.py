"""The server's side of the second filter: the network that goes out with every threshold, and its Adam."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.tensors import Tensors
from fedlingua.selection.second_filter import drawn


class SecondFilter:
    """What `selection.second_filter` computes with, from round to round."""

    def __init__(self, seed: int, lr: float) -> None:
        self._network = torch.tensor(drawn(seed), requires_grad=True)
        self._adam = torch.optim.Adam([self._network], lr=lr, foreach=False)
        self.steps = 0

    @property
    def network(self) -> Numbers:
        """(SIZE,) float32, to be sent."""
        return self._network.detach().numpy().copy()

    def step(self, gradients: Mapping[str, Sequence[float]], weights: Mapping[str, float]) -> tuple[bool, list[str]]:
        """One step with the mean of the sites' gradients, as L_val is one of their losses; (whether it was taken, sites left out because
        theirs are no numbers). weights: site -> what its dev text counts in L_val.
        """
        finite = {site: np.array(gradient, np.float64) for site, gradient in gradients.items() if np.isfinite(gradient).all()}
        left_out = [site for site in gradients if site not in finite]
        if not finite:
            return False, left_out
        total = sum(weights[site] for site in finite)
        mean = sum(weights[site] / total * gradient for site, gradient in finite.items())
        self._network.grad = torch.tensor(mean, dtype=torch.float32)
        self._adam.step()
        self.steps += 1
        return True, left_out

    def state(self) -> tuple[Tensors, dict[str, Any]]:
        """All that the next round needs."""
        tensors = {"filter": self.network}
        if self.steps:
            moments = self._adam.state[self._network]
            tensors |= {"filter.mean": moments["exp_avg"].numpy().copy(), "filter.square": moments["exp_avg_sq"].numpy().copy()}
        return tensors, {"filter_steps": self.steps}

    def restore(self, tensors: Mapping[str, Numbers], values: Mapping[str, Any]) -> None:
        """Go on where `state` was taken."""
        self.steps = values["filter_steps"]
        with torch.no_grad():
            self._network.copy_(torch.from_numpy(tensors["filter"].copy()))
        if self.steps:
            self._adam.state[self._network] = {
                "step": torch.tensor(float(self.steps)),
                "exp_avg": torch.from_numpy(tensors["filter.mean"].copy()),
                "exp_avg_sq": torch.from_numpy(tensors["filter.square"].copy()),
            }
