"""FedMean and its kin inside clusters: what every federated method of the papers is on the server's side, whoever its clusters are of.

One round (Liu et al. 2023, algorithm 1), as the server goes through it in `SiteStrategy.round` (strategies/strategy.py); each step
returns what the next takes:

1. ask: `configure_train` makes a request for every site, or those drawn (strategies/draw.py), with its `model_for`: its encoder
   cluster's and its decoder cluster's tensors, one flat array a part. The sites train (clients/site_client.py).
2. wait: `Phases.exchange` (strategies/phases.py) sends the requests and pulls the replies, until all are there, the deadline has
   passed, or the quorum is out of reach.
3. parse: `parsed`, for each reply as it comes: `parse_training` (strategies/reply_contents.py) refuses what cannot be true of it.
4. check: `checked` compares the updates with each other (strategies/outliers.py); what no honest site can have sent is left out.
5. aggregate: `aggregated` hands them to `aggregate_train`, Flower's hook, and this to `aggregate`, a function from the state that the
   round began with to the next: inside every cluster the mean of what the sites sent (strategies/aggregation.py), or a robust rule
   (strategies/robust_rules.py), or a step of the server's optimiser towards either (strategies/server_optimizer.py).
6. store: the state becomes the run's, and a checkpoint (strategies/rounds.py). A round with too few good replies does not get here, so
   nothing is undone.
7. measure: every site measures the loss of what it would use now on its dev text, before the next round's training, and `measured` enters
   it; or, where none is sure to follow, `evaluate` asks for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedlingua.exchange.tensors import NamedTensors
from fedlingua.runs.plan import sites_needed
from strategies.aggregation import State, inner_cluster_aggregation, mean, weights_of
from strategies.robust_rules import ROBUST, Rule
from strategies.server_optimizer import ServerOptimizer, pseudo_gradient
from strategies.strategy import Federated, SiteStrategy
from strategies.updates import Update


class FedMean(SiteStrategy):
    """Averages the sites of each cluster with the weights that `aggregation` names: equal (eq. 3), by size (eq. 2), or by loss.

    rule: a robust rule that takes the place of the mean; it needs whole updates.
    """

    rule: Rule | None = None

    def __init__(self, of: Federated) -> None:
        super().__init__(of)
        settings = of.settings
        self.weights = weights_of(settings, self._note_bound)
        if settings.aggregation in ROBUST:
            self.rule = self.rule or ROBUST[settings.aggregation](settings.byzantine_sites)
        self.missing = "previous" if settings.selected_by == "all" else settings.missing
        self.least = sites_needed(settings)
        self.optimizer = None if settings.optimized_by == "none" else ServerOptimizer(settings)

    def aggregate(self, state: State, updates: Mapping[str, Update]) -> State:
        """Replace each cluster's tensors by the mean of its sites or the rule's result; with a server optimiser, step towards it."""
        self._note_small_clusters(set(updates))
        combine = self._gradient if self.optimizer else self._combined
        new = inner_cluster_aggregation(state.tensors, updates, self.tensor_set, self.clusters, combine)
        return self.optimizer.step(state, new) if self.optimizer else replace(state, tensors=new)

    def _combined(self, before: NamedTensors, members: Sequence[Update]) -> NamedTensors:
        if len(members) < self.least or not members:
            return before
        if self.rule:
            return self.rule(members)
        weights = self.weights([replace(update, tensors={}) for update in members])  # weights depend on sizes and losses alone
        return mean(before, [update.sent(weight) for update, weight in zip(members, weights, strict=True)], self.missing)

    def _gradient(self, before: NamedTensors, members: Sequence[Update]) -> NamedTensors:
        return pseudo_gradient(before, members, self._combined) if len(members) >= self.least else {}

    def _note_bound(self, site: str, share: float) -> None:
        most = self.settings.max_site_share
        self.note(f"site {site} would be {share:.0%} of its cluster's mean; robust.max-share = {most:g} bounds it")

    def _note_small_clusters(self, answered: set[str]) -> None:
        """Announce the clusters that stay unchanged because the rule needs more good updates than they have."""
        for part, name, sites in self.averaged_clusters() if self.least > 1 else ():
            if (here := sum(site in answered for site in sites)) < self.least:
                why = f"{here} good updates, and aggregation = {self.settings.aggregation!r} needs {self.least}"
                self.note(f"the {part} cluster {name} stays as it was: {why}")
