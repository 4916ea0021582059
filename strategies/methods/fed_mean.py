"""FedMean inside clusters, and its relatives: the server's side of every federated method of the papers, however clusters are made.

One round (Liu et al. 2023, algorithm 1), as `SiteStrategy.round` (strategies/strategy.py) runs it at the server:

1. ask: `configure_train` makes a request for every site that trains, with the tensors of its encoder and decoder cluster (`model_for`).
   The sites train (clients/site_client.py).
2. wait: `Phases.exchange` (strategies/rounds/phases.py) pulls the replies, until all have arrived, the deadline has passed, or the quorum
   cannot be reached.
3. parse: `parse_update` takes each reply as it arrives; `parse_training` (strategies/checks/contents.py) refuses one that cannot be true.
4. check: the run's layers look at all updates together (src/fedlingua/layers/bounded_updates.py): those that no honest site can have
   sent, or that oppose the others, are left out, and those that are a little too long are scaled down.
5. aggregate: `aggregate_updates` calls Flower's hook `aggregate_train`, and this calls `aggregate`. In every cluster it takes the mean of
   what the sites sent (strategies/aggregation/mean.py); a server optimizer steps towards it (strategies/methods/server_optimizer.py).
6. store: the new state becomes the run's, and a checkpoint is written (strategies/rounds/loop.py). A round with too few good replies ends
   before this step, so nothing has to be undone.
7. evaluate: with the next round's training every site measures the dev loss of the model that it would use now. If no training is certain
   to follow, `evaluate` asks for this loss before the state is stored.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from fedlingua.exchange.state import State
from fedlingua.exchange.tensors import NamedTensors
from fedlingua.exchange.updates import Update
from fedlingua.settings.config import Settings
from strategies.aggregation.mean import inner_cluster_aggregation, mean, weights_of
from strategies.methods.server_optimizer import ServerOptimizer, pseudo_gradient
from strategies.strategy import Federated, SiteStrategy

Rule = Callable[[Sequence[Update]], NamedTensors]
"""The updates of a cluster's sites, with the tensors of one part alone -> the part's new tensors."""


class FedMean(SiteStrategy):
    """The mean of each cluster's updates, with the weights that `aggregation` names: equal (eq. 3), by size (eq. 2), or by loss.

    rule: A subclass's rule that replaces the mean; it needs whole updates.
    """

    rule: Rule | None = None

    def __init__(self, of: Federated) -> None:
        super().__init__(of)
        settings = of.settings
        self.weights = weights_of(settings, self._note_bound)
        self.optimizer = None if settings.optimized_by == "none" else ServerOptimizer(settings)

    def aggregate(self, state: State, updates: Mapping[str, Update]) -> State:
        """Replace each cluster's tensors by its sites' mean, or the rule's result; with a server optimizer, step towards the mean."""
        combine = partial(pseudo_gradient, combine=self._combined) if self.optimizer else self._combined
        new = inner_cluster_aggregation(state.tensors, updates, self.tensor_set, self.clusters, combine)
        return self.optimizer.step(state, new) if self.optimizer else replace(state, tensors=new)

    def _combined(self, before: NamedTensors, members: Sequence[Update]) -> NamedTensors:
        if not members:
            return before
        if self.rule:
            return self.rule(members)
        weights = self.weights([replace(update, tensors={}) for update in members])  # weights depend on sizes and losses alone
        return mean(before, [update.sent(weight) for update, weight in zip(members, weights, strict=True)])

    def _note_bound(self, site: str, share: float) -> None:
        most = self.settings.max_site_share
        self.note(f"site {site} would be {share:.0%} of its cluster's mean; robust.max-share = {most:g} bounds it")


def needs_means(settings: Settings) -> tuple[str, str] | None:
    """Return which setting has no effect but in a mean, in words, and its value without one; None if there is none."""
    if settings.aggregation != "fed-mean":
        return f"aggregation = {settings.aggregation!r} says what a site counts in a mean", "fed-mean"
    if settings.optimized_by != "none":
        return f"server.optimizer = {settings.optimized_by!r} steps against the mean of the sites' updates", "none"
    return None
