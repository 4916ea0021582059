"""The server's network of MetaSend: an MLP that computes each round's threshold theta from training losses and learns from L_val.

One round (algorithm 2 of the paper): `theta` maps the losses to a threshold, line 5; the sites select and send, and their updates are
aggregated; selection/meta_gradient.py estimates the slope dL_val / dtheta of the global model, and `step` backpropagates it through the
MLP, line 9 and eq. 5.

The paper leaves open, and this module decides:

- theta = scale x softplus(o + c), o the MLP's output: above 0 for every o, and equal to the scale at o = 0. The paper's thresholds lie in
  0..1; with small learning rates deviations are far below, so the scale is their median, of the first round or of each (`meta.scale`).
  After the first round deviations fall to a half or less, faster than the MLP learns to follow; with each round's median, an MLP that
  learns little is just a median rule.
- The output layer starts at 0, so theta starts at the scale (half of the tensors) and only learning moves it.
- The losses are not normalised. The MLP is float32 with ReLU; its hidden layer is initialised like torch's linear layers.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from fedlingua.common.errors import RunError
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.tensors import Tensors
from fedlingua.selection.meta_gradient import bounded, mean_over_sites, score_slope
from fedlingua.selection.second_filter import drawn
from fedlingua.settings.config import Settings
from fedlingua.training.optimizers import optimizer_state, restore_optimizer

TEMPERATURE = 0.1
"""Width of the soft gate in the backward pass, as a share of the deviations' scale: narrow beside it, so that near tensors count most."""
NOISE = 0.25
"""Standard deviation of the thresholds to try under the estimator `loss`, as a share of mu: so that they are seldom below 0."""
MEMORY = 0.7
"""Share of a baseline that carries over to the next round. Losses fall, so a mean over all earlier rounds would lag far behind."""
_AT_ONE = math.log(math.e - 1)
"""The number whose softplus is 1."""
_NO_LOSS = 1e30
"""A loss of this magnitude or more counts as missing: the MLP could not compute with it in float32."""
_FAR = 50.0
"""Outputs are clamped to this magnitude: theta is then above every deviation, or almost 0 without being rounded to it."""


@dataclass(frozen=True)
class Theta:
    """A round's threshold.

    value: the threshold sent to the sites, above 0. mu: the MLP's result. drawn: the number drawn around mu, with its sign; without
    exploration mu itself. replaced: site whose loss is missing -> which value replaced it, in words.
    """

    value: float
    mu: float
    drawn: float
    replaced: Mapping[str, str]


class _Learned:
    """Weights that one Adam trains, and the state of both from round to round. weights: by their names in a checkpoint."""

    def __init__(self, weights: Mapping[str, torch.Tensor], lr: float) -> None:
        self.weights = weights
        self.adam = torch.optim.Adam(weights.values(), lr=lr, foreach=False)

    def _descend(self, gradients: Sequence[torch.Tensor]) -> None:
        for weight, gradient in zip(self.weights.values(), gradients, strict=True):
            weight.grad = gradient
        self.adam.step()

    def tensors(self) -> Tensors:
        """Copy the weights and Adam's state."""
        weights = {name: weight.detach().numpy().copy() for name, weight in self.weights.items()}
        return weights | optimizer_state(self.adam, self.weights)

    def load(self, tensors: Mapping[str, Numbers]) -> None:
        """Load what `tensors` returned, among others."""
        with torch.no_grad():
            for name, weight in self.weights.items():
                weight.copy_(torch.from_numpy(tensors[name].copy()))
        of_adam = {key: value for key, value in tensors.items() if key.rpartition("/")[0] in self.weights}
        restore_optimizer(self.adam, self.weights, of_adam)


class ThresholdModel(_Learned):
    """The MLP; the same seed and losses give the same bytes on one CPU type.

    sites: all sites in federation order, the order of the MLP's inputs. spread: sigma of the drawn thetas as a share of mu; 0 unless
    the estimator is `loss`.
    """

    def __init__(self, sites: Sequence[str], settings: Settings) -> None:
        explores = settings.meta_estimator == "loss" and not settings.meta_frozen
        self.sites, self.settings, self.spread = tuple(sites), settings, NOISE if explores else 0.0
        self.scale: float | None = None
        generator = torch.Generator().manual_seed(settings.seed)
        super().__init__(_drawn(len(sites), settings.meta_neurons, generator), settings.meta_learning_rate)
        self.random = Random(f"{settings.seed}/theta")
        self.silent: list[float] = []
        """Thetas of the latest successive rounds in which no site sent anything, two at most."""
        self.losses: dict[str, float] = {}
        """site -> its last usable training loss"""
        self.baselines: dict[str, float] = {}
        """site -> mean of its earlier validation losses, with more weight on newer ones"""
        self._mu: torch.Tensor | None = None
        self._theta: Theta | None = None

    # --- Forward -------------------------------------------------------------------------------------------------------------------

    def begin(self, deviations: Sequence[float]) -> None:
        """Set the scale to the median of the sites' deviations, in the first round or, with `meta.scale = "round"`, in every round.

        Raises:
            RunError: The scale was never set, and no deviation is finite and above 0.
        """
        if self.scale is None or self.settings.meta_scale == "round":
            finite = [value for value in deviations if 0 < value < math.inf]
            if finite:
                self.scale = float(np.median(finite))
            elif self.scale is None:
                raise RunError(
                    f"theta has nowhere to begin: none of the {len(deviations)} sites that answered has a tensor whose deviation is finite "
                    "and above 0, so training has changed nothing; look at learning-rate and the sites' logs"
                )

    @property
    def tau(self) -> float:
        """Width of the soft gates, independent of theta, so that even a theta far from all deviations gets a slope towards them."""
        assert self.scale is not None, "begin() first"
        return TEMPERATURE * self.scale

    def theta(self, losses: Mapping[str, float]) -> Theta:
        """Return the round's threshold. losses: site -> training loss of this round, of the sites that answered.

        A missing or unusable loss is replaced by the site's last known loss, or else by the mean of all known losses.

        Raises:
            RunError: No loss is known at all.
        """
        assert self.scale is not None, "begin() first"
        replaced = self._take(losses)
        mean = math.fsum(self.losses.values()) / len(self.losses)
        inputs = torch.tensor([self.losses.get(site, mean) for site in self.sites], dtype=torch.float32)
        self._mu = self.scale * functional.softplus(self._output(inputs).double().clamp(-_FAR, _FAR) + _AT_ONE)
        mu = float(self._mu.detach())
        drawn = self.random.gauss(mu, self.spread * mu) if self.spread else mu
        self._theta = Theta(abs(drawn), mu, drawn, replaced)
        return self._theta

    def _take(self, losses: Mapping[str, float]) -> dict[str, str]:
        """Store the losses. Return site -> what is wrong with its loss and which value replaces it."""
        given = {site: float(losses[site]) for site in self.sites if abs(losses.get(site, math.nan)) < _NO_LOSS}
        self.losses = known = {**self.losses, **given}
        if not known:
            raise RunError(
                f"no site gave a training loss, now or before, so there is no theta; wanted those of {', '.join(self.sites)}"
            )
        mean, replaced = math.fsum(known.values()) / len(known), dict[str, str]()
        for site in (site for site in self.sites if site not in given):
            wrong = f"its loss is {losses[site]}" if site in losses else "it gave no loss"
            instead = f"its last, {known[site]:.4g}" if site in known else f"the mean of the others, {mean:.4g}"
            replaced[site] = f"{wrong}; {instead}, is used"
        return replaced

    def _output(self, losses: torch.Tensor) -> torch.Tensor:
        """Compute o, (1,), by products and sums, because a BLAS may split its sums by the number of threads."""
        to_hidden, hidden_bias, to_output, output_bias = self.weights.values()
        hidden = functional.relu((to_hidden * losses).sum(1) + hidden_bias)
        return (to_output * hidden).sum() + output_bias

    # --- Backward ------------------------------------------------------------------------------------------------------------------

    def step(self, slope: float) -> bool:
        """Take one step of Adam with dL_val / dtheta = slope through the last theta; return whether it was taken.

        A slope that is not finite, or makes a gradient or its square overflow, is left out, and nothing changes.
        """
        assert self._mu is not None, "theta() first, and one step for each"
        if not math.isfinite(slope):
            return False
        parameters = list(self.weights.values())
        gradients = torch.autograd.grad(self._mu, parameters, torch.full_like(self._mu, slope), retain_graph=True)
        if not all(bool(gradient.square().isfinite().all()) for gradient in gradients):
            return False  # Adam's mean of squares would be infinite ever after
        self._descend(gradients)
        self._mu = None
        return True

    def step_by_loss(self, losses: Mapping[str, float], weights: Mapping[str, float]) -> bool:
        """Take one step by the losses under the drawn theta (estimator `loss`); return whether it was taken.

        losses: site -> L_j, plus lambda x the share sent if bytes have a price; only finite ones count. weights: site -> its v in L_val.
        Each site is compared with its own baseline, so L_val does not depend on who answers; its first loss only becomes its baseline.
        A loss enters the baseline after the comparison, or it would bias the slope.
        """
        assert self._theta, "theta() first"
        assert self.spread, "nothing was tried out"
        finite = {site: loss for site, loss in losses.items() if math.isfinite(loss)}
        before = {site: self.baselines[site] for site in finite if site in self.baselines}
        for site, loss in finite.items():
            self.baselines[site] = MEMORY * before[site] + (1 - MEMORY) * loss if site in before else loss
        if not before:
            return False
        loss, baseline = (mean_over_sites({site: of[site] for site in before}, weights) for of in (finite, before))
        theta = self._theta
        return self.step(score_slope(loss, baseline, theta.drawn, theta.mu, self.spread * theta.mu))

    # --- From round to round -------------------------------------------------------------------------------------------------------

    def report(self, shares: Sequence[float]) -> str | None:
        """Return a warning if no site has sent anything for two rounds. shares: each site's share of numbers sent."""
        assert self._theta, "theta() first"
        self.silent = [] if any(shares) else [*self.silent, self._theta.value][-2:]
        if len(self.silent) < 2:
            return None
        return (
            f"no site has sent anything for two rounds: theta was {self.silent[0]:.3g}, then {self.silent[1]:.3g}, and nothing lay on "
            "the side that is sent; where nothing is sent the server learns little"
        )

    def state(self) -> tuple[Tensors, dict[str, Any]]:
        """Return what the next round needs: named tensors, and JSON values."""
        version, words, gauss = self.random.getstate()
        return self.tensors(), {
            "scale": self.scale,
            "silent": self.silent,
            "losses": self.losses,
            "baselines": self.baselines,
            "random": [version, list(words), gauss],
        }

    def restore(self, tensors: Mapping[str, Numbers], values: Mapping[str, Any]) -> None:
        """Load what `state` returned."""
        self.load(tensors)
        self.scale, self.silent = values["scale"], list(values["silent"])
        self.losses, self.baselines = dict(values["losses"]), dict(values["baselines"])
        version, words, gauss = values["random"]
        self.random.setstate((version, tuple(words), gauss))
        self._mu = self._theta = None


def _drawn(inputs: int, neurons: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Return initial weights: the hidden layer uniform within 1 / sqrt(number of inputs), the output layer zeros."""
    bound = 1 / math.sqrt(inputs)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.empty(shape).uniform_(-bound, bound, generator=generator)

    weights = {
        "theta.hidden.weight": uniform(neurons, inputs),
        "theta.hidden.bias": uniform(neurons),
        "theta.output.weight": torch.zeros(neurons),
        "theta.output.bias": torch.zeros(1),
    }
    return {name: weight.requires_grad_() for name, weight in weights.items()}


class SecondFilter(_Learned):
    """The network of `selection.second_filter`."""

    def __init__(self, seed: int, lr: float) -> None:
        super().__init__({"filter": torch.tensor(drawn(seed), requires_grad=True)}, lr)

    @property
    def network(self) -> Numbers:
        """Return the network's weights, (SIZE,) float32, to be sent."""
        return self.weights["filter"].detach().numpy().copy()

    def step(
        self, gradients: Mapping[str, Sequence[float]], weights: Mapping[str, float], ratio: float = 0.0
    ) -> tuple[bool, list[str]]:
        """Take one step with the weighted mean of the sites' gradients, as L_val is that mean of their losses. Return (whether it was
        taken, sites left out for gradients that are not finite, or whose squares are not in float32). weights, ratio: As in
        `step_by_loss` and `meta_gradient.bounded`.
        """
        with np.errstate(over="ignore"):
            squares = {site: np.square(np.array(gradient, np.float32)) for site, gradient in gradients.items()}
        finite = {site: np.array(gradients[site], np.float64) for site, each in squares.items() if np.isfinite(each).all()}
        left_out = [site for site in gradients if site not in finite]
        if not finite:
            return False, left_out
        total = sum(weights[site] for site in finite)
        norms = {site: float(np.linalg.norm(gradient)) for site, gradient in finite.items()}
        shares = {site: norm / norms[site] if norms[site] else 1.0 for site, norm in bounded(norms, ratio).items()}
        mean = sum(weights[site] / total * shares[site] * gradient for site, gradient in finite.items())
        self._descend([torch.tensor(mean, dtype=torch.float32)])
        return True, left_out
