"""Strategy for sites that send models of their own and continue from them. MR-MTL pulls these models to their mean. Under
shared-private a site subtracts its own model from the mean, so each request holds the site's weight in the mean.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedlingua.backbones.parts import PARTS
from fedlingua.exchange.protocol import Task
from fedlingua.exchange.tensors import NamedTensors
from strategies.aggregation.mean import State, shares_of, weights_of
from strategies.aggregation.updates import Update
from strategies.methods.fed_mean import FedMean

SENT, SHARES = "own-model", "shares"
"""Keys in a state: prefix in `memory` of each site's last model; key in `values` of the sites' weights."""


class OwnModels(FedMean):
    """FedMean that measures each update against its site's last model, scaled down or not, instead of against the mean."""

    initial: NamedTensors

    def init(self, tensors: NamedTensors) -> State:
        self.initial = tensors
        return super().init(tensors)

    def aggregate(self, state: State, updates: Mapping[str, Update]) -> State:
        """Aggregate the clusters' means, and store every site's model beside them."""
        sent = {f"{SENT}/{site}/{name}": np.array(tensor) for site, of in updates.items() for name, tensor in of.tensors.items()}
        tells_shares = self.settings.own_model == "shared-private"
        values = {**state.values, SHARES: self._shares(state, updates)} if tells_shares else state.values
        return replace(super().aggregate(state, updates), memory={**state.memory, **sent}, values=values)

    def _shares(self, state: State, updates: Mapping[str, Update]) -> dict[str, list[float]]:
        """Return site -> its weight in its clusters' means, by part; clusters without any reply keep the previous weights."""
        shares = {site: list(own) for site, own in state.values.get(SHARES, {}).items()}
        for part, cluster, weights in shares_of(updates, self.clusters, weights_of(self.settings)):
            for site in self.clusters[part][cluster]:
                shares.setdefault(site, [0.0] * len(PARTS))[PARTS.index(part)] = weights.get(site, 0.0)
        return shares

    def _task(self, values: Mapping[str, Any], site: str, number: int, own_round: int, trains: bool) -> Task:
        task = super()._task(values, site, number, own_round, trains)
        return replace(task, shares=tuple(values.get(SHARES, {}).get(site, ())))

    def training_start(self, site: str) -> NamedTensors:
        """Return the model that the site sent last; at first the initial tensors of the run."""
        memory = self.sent.memory
        return {name: memory.get(f"{SENT}/{site}/{name}", self.initial[name]) for name in self.tensor_set.names}
