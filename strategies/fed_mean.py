"""FedMean and FedAvg inside clusters: what every federated method of the paper is on the server's side, whoever its clusters are of.

One round (Liu et al. 2023, algorithm 1), told here from the server:

1. `configure_train`: every site gets its encoder cluster's and its decoder cluster's tensors, in one message.
2. The sites train (clients/translation.py) and answer with all those tensors.
3. `aggregate_train`: the replies are checked, and inside every cluster the sites' tensors are averaged.
4. `configure_evaluate`, `aggregate_evaluate`: every site measures the loss of what it would now use on its dev text.

The loop around it, deadlines, quorum, best round and checkpoints are strategies/site_strategy.py, the same for every method.
"""

from collections.abc import Mapping

from fedlingua.exchange.tensor_sets import Tensors
from strategies.aggregation import (
    Rule,
    Update,
    Weights,
    by_size,
    equally,
    fed_avg,
    fed_mean,
    inner_cluster_aggregation,
    start_everywhere,
    tensors_for,
)
from strategies.partial import MISSING, selective_aggregation
from strategies.site_strategy import SiteStrategy


class FedMean(SiteStrategy):
    """Averages the sites of each cluster, every site counting the same: eq. 3."""

    rule: Rule = staticmethod(fed_mean)
    weights: Weights = staticmethod(equally)

    def begin(self, initial: Tensors) -> None:
        self.state = start_everywhere(initial, self.tensor_set, self.clusters)

    def downlink(self, site: str) -> Tensors:
        return tensors_for(site, self.state, self.tensor_set, self.clusters)

    def fold(self, updates: Mapping[str, Update]) -> None:
        # A rule of one's own gets whole updates: what was not sent stands at what the site was given.
        if self.settings.selected_by == "all" or self.rule not in (fed_mean, fed_avg):
            self.state = inner_cluster_aggregation(self.state, updates, self.tensor_set, self.clusters, self.rule)
        else:
            mean = MISSING[self.settings.missing]
            self.state = selective_aggregation(self.state, updates, self.tensor_set, self.clusters, self.weights, mean)


class FedAvg(FedMean):
    """Averages the sites of each cluster by how much text they trained on: eq. 2."""

    rule: Rule = staticmethod(fed_avg)
    weights: Weights = staticmethod(by_size)
