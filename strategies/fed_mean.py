"""FedMean and its kin inside clusters: what every federated method of the papers is on the server's side, whoever its clusters are of.

One round (Liu et al. 2023, algorithm 1), told here from the server; what is not in this file is strategies/site_strategy.py, the same for
every method, with deadlines, checked replies, quorum, best round and checkpoints:

1. `configure_train` sends every site its `downlink`: its encoder cluster's and its decoder cluster's tensors, in one message.
2. The sites train (clients/site_client.py) and answer with all those tensors.
3. `aggregate_train` checks the replies and hands them to `fold`: inside every cluster the sites' tensors are averaged; where the run has
   an optimiser for the server, it steps towards that mean.
4. `configure_evaluate`, `aggregate_evaluate`: every site measures the loss of what it would now use on its dev text.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from fedlingua.clustering.clusters import Clusters
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.tensors import Tensors, TensorSet
from fedlingua.runs.folder import RunFolder
from fedlingua.runs.plan import sites_needed
from fedlingua.settings.config import Settings
from strategies.aggregation import (
    Rule,
    Update,
    inner_cluster_aggregation,
    start_everywhere,
    tensors_for,
    weighted_mean,
    weights_of,
)
from strategies.partial import MISSING, Sent, pseudo_gradients, selective_aggregation, sent_to_clusters
from strategies.robust_rules import ROBUST
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
        self.robust = ROBUST[settings.aggregation](settings.byzantine_sites) if settings.aggregation in ROBUST else None
        self.least = sites_needed(settings)
        self.optimizer = None if settings.optimized_by == "none" else ServerOptimizer(settings)

    def begin(self, initial: Tensors) -> None:
        self.state = start_everywhere(initial, self.tensor_set, self.clusters)

    def downlink(self, site: str) -> Tensors:
        return tensors_for(site, self.state, self.tensor_set, self.clusters)

    def fold(self, updates: Mapping[str, Update]) -> None:
        self._note_small_clusters(updates)
        own = self.rule or self.robust
        if self.optimizer is None and (own is not None or self.settings.selected_by == "all"):
            # A rule of one's own gets whole updates: what was not sent stands at what the site was given.
            rule = own or partial(weighted_mean, by=self.weights)
            self.state = inner_cluster_aggregation(self.state, updates, self.tensor_set, self.clusters, rule, self.least)
            return
        mean = self._by_rule if self.robust else MISSING[self.settings.missing]
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

    def _by_rule(self, _: Mapping[str, Numbers], sent: Sequence[Sent]) -> Tensors:
        """The robust rule in the place of a mean of what sites sent, where each sent all; nothing of fewer than it needs."""
        assert self.robust
        return self.robust([Update("", site.tensors, 1) for site in sent]) if len(sent) >= self.least else {}

    def _note_small_clusters(self, updates: Mapping[str, Update]) -> None:
        """Say which clusters stay as they were, since too few of their sites answered well for the rule."""
        for part, named in self.clusters.items() if self.least > 1 else ():
            for name, sites in named.items() if self.tensor_set.of_part(part) else ():
                if (here := sum(site in updates for site in sites)) < self.least:
                    told = f"{here} good updates, and aggregation = {self.settings.aggregation!r} needs {self.least}"
                    self.folder.event("note", text=f"the {part} cluster {name} stays as it was: {told}")

    def declared_state(self) -> tuple[Tensors, dict[str, Any]]:
        return self.optimizer.state() if self.optimizer else super().declared_state()

    def restore(self, tensors: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        if self.optimizer:
            self.optimizer.restore(tensors, values)
