"""FedMean and its kin inside clusters: what every federated method of the papers is on the server's side, whoever its clusters are of.

One round (Liu et al. 2023, algorithm 1), told here from the server; what is not in this file is strategies/site_strategy.py, the same for
every method, with deadlines, checked replies, quorum, best round and checkpoints:

1. `configure_train` sends every site its `downlink`: its encoder cluster's and its decoder cluster's tensors, in one message.
2. The sites train (clients/site_client.py) and answer with all those tensors.
3. `aggregate_train` checks the replies and hands them to `fold`: inside every cluster the sites' tensors are averaged; where the run has
   an optimiser for the server, it steps towards that mean.
4. `configure_evaluate`, `aggregate_evaluate`: every site measures the loss of what it would now use on its dev text.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from fedlingua.clustering import Clusters
from fedlingua.config import Settings
from fedlingua.exchange.tensors import Tensors, TensorSet
from fedlingua.runs import RunFolder
from strategies.aggregation import (
    Rule,
    Update,
    inner_cluster_aggregation,
    start_everywhere,
    tensors_for,
    weighted_mean,
    weights_of,
)
from strategies.partial import MISSING, pseudo_gradients, selective_aggregation, sent_to_clusters
from strategies.roll_call import Roll
from strategies.server_optimizer import ServerOptimizer
from strategies.site_strategy import SiteStrategy


class FedMean(SiteStrategy):
    """Averages the sites of each cluster by the weights that `aggregation` names: every site the same (eq. 3), by size (eq. 2), by loss.

    rule: what a cluster's updates become, where that is no such mean.
    """

    rule: Rule | None = None

    def __init__(self, settings: Settings, roll: Roll, clusters: Clusters, tensor_set: TensorSet, folder: RunFolder) -> None:
        super().__init__(settings, roll, clusters, tensor_set, folder)
        self.weights = weights_of(settings, self._note_bound)
        self.optimizer = None if settings.optimized_by == "none" else ServerOptimizer(settings)

    def begin(self, initial: Tensors) -> None:
        self.state = start_everywhere(initial, self.tensor_set, self.clusters)

    def downlink(self, site: str) -> Tensors:
        return tensors_for(site, self.state, self.tensor_set, self.clusters)

    def fold(self, updates: Mapping[str, Update]) -> None:
        if self.rule is not None or (self.optimizer is None and self.settings.selected_by == "all"):
            # A rule of one's own gets whole updates: what was not sent stands at what the site was given.
            rule = self.rule or partial(weighted_mean, by=self.weights)
            self.state = inner_cluster_aggregation(self.state, updates, self.tensor_set, self.clusters, rule)
            return
        mean = MISSING[self.settings.missing]
        sendings = sent_to_clusters(updates, self.tensor_set, self.clusters, self.weights)
        if self.optimizer:
            self.state = self.optimizer.step(self.progress.round, self.state, pseudo_gradients(self.state, sendings, mean))
        else:
            self.state = selective_aggregation(self.state, sendings, mean)

    def _note_bound(self, site: str, share: float) -> None:
        most = self.settings.max_site_share
        self.folder.event(
            "note", text=f"site {site} would be {share:.0%} of its cluster's mean; max-site-share = {most:g} bounds it"
        )

    def declared_state(self) -> tuple[Tensors, dict[str, Any]]:
        return self.optimizer.state() if self.optimizer else super().declared_state()

    def restore(self, tensors: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        if self.optimizer:
            self.optimizer.restore(tensors, values)
