"""FedMean and its kin inside clusters: what every federated method of the papers is on the server's side, whoever its clusters are of.

One round (Liu et al. 2023, algorithm 1), told here from the server:

1. `configure_train`: every site gets its encoder cluster's and its decoder cluster's tensors, in one message.
2. The sites train (clients/translation.py) and answer with all those tensors.
3. `aggregate_train`: the replies are checked, and inside every cluster the sites' tensors are averaged; where the run has an optimiser
   for the server, it steps towards that mean.
4. `configure_evaluate`, `aggregate_evaluate`: every site measures the loss of what it would now use on its dev text.

The loop around it, deadlines, quorum, best round and checkpoints are strategies/site_strategy.py, the same for every method.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from fedlingua.clustering import Clusters
from fedlingua.config import Settings
from fedlingua.exchange.tensor_sets import Tensors, TensorSet
from fedlingua.runs import RunFolder
from strategies.aggregation import (
    Rule,
    Update,
    Weights,
    by_size,
    equally,
    inner_cluster_aggregation,
    start_everywhere,
    tensors_for,
    weighted_mean,
    weights_of,
)
from strategies.partial import MISSING, selective_aggregation
from strategies.roll_call import Roll
from strategies.server_optimizer import ServerOptimizer
from strategies.site_strategy import SiteStrategy


class FedMean(SiteStrategy):
    """Averages the sites of each cluster, every site counting the same: eq. 3.

    rule: what a cluster's updates become, where that is no mean by `weights`.
    """

    weights: Weights = staticmethod(equally)
    rule: Rule | None = None

    def __init__(self, settings: Settings, roll: Roll, clusters: Clusters, tensor_set: TensorSet, folder: RunFolder) -> None:
        super().__init__(settings, roll, clusters, tensor_set, folder)
        self.optimizer = None if settings.optimized_by == "none" else ServerOptimizer(settings)

    def begin(self, initial: Tensors) -> None:
        self.state = start_everywhere(initial, self.tensor_set, self.clusters)

    def downlink(self, site: str) -> Tensors:
        return tensors_for(site, self.state, self.tensor_set, self.clusters)

    def fold(self, updates: Mapping[str, Update]) -> None:
        about = (self.state, updates, self.tensor_set, self.clusters)
        if self.rule is not None:  # it gets whole updates: what was not sent stands at what the site was given
            mean = inner_cluster_aggregation(*about, self.rule)
        elif self.settings.selected_by == "all":
            mean = inner_cluster_aggregation(*about, partial(weighted_mean, by=self.weights))
        else:
            mean = selective_aggregation(*about, self.weights, MISSING[self.settings.missing])
        self.state = self.optimizer.step(self.progress.round, self.state, mean) if self.optimizer else mean

    def declared_state(self) -> tuple[Tensors, dict[str, Any]]:
        return self.optimizer.state() if self.optimizer else super().declared_state()

    def restore(self, tensors: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        if self.optimizer:
            self.optimizer.restore(tensors, values)


class FedAvg(FedMean):
    """Averages the sites of each cluster by how much text they trained on: eq. 2."""

    weights: Weights = staticmethod(by_size)


class FedByLoss(FedMean):
    """Averages the sites of each cluster, the more the lower their training loss is: Dimitriadis et al. 2021."""

    def __init__(self, settings: Settings, roll: Roll, clusters: Clusters, tensor_set: TensorSet, folder: RunFolder) -> None:
        super().__init__(settings, roll, clusters, tensor_set, folder)
        self.weights = weights_of(settings)
