"""Sites that send models of their own: every one goes on from its own. MR-MTL's are pulled to their mean; under shared-private a site
makes of the mean what the others sent, for which every request says what the site counts in it.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message
from flwr.serverapp import Grid

from fedlingua.backbones.parts import PARTS
from fedlingua.exchange import protocol
from fedlingua.exchange.joined import Numbers, runs
from fedlingua.exchange.protocol import Task
from fedlingua.exchange.tensors import Tensors
from strategies.aggregation import State, in_clusters, weights_of
from strategies.fed_mean import FedMean
from strategies.updates import Update

SENT, SHARES = "own-model", "shares"
"""In a state: prefix in its memory of what every site has sent last; key in its values of what that counts."""


class OwnModels(FedMean):
    """FedMean, but that an update is measured from what its site sent last (`_received`), where its training began, and not from the
    mean. Of an update that was scaled down that is what counted.
    """

    initial: Tensors

    @property
    def tells_shares(self) -> bool:
        return self.settings.own_model == "shared-private"

    def init(self, tensors: Tensors) -> State:
        self.initial = tensors
        return super().init(tensors)

    def aggregate(self, state: State, updates: Mapping[str, Update]) -> State:
        """The clusters' means, and every site's model beside them."""
        sent = {f"{SENT}/{site}/{name}": np.array(tensor) for site, of in updates.items() for name, tensor in of.tensors.items()}
        values = {**state.values, SHARES: self._shares(state, updates)} if self.tells_shares else state.values
        return replace(super().aggregate(state, updates), memory={**state.memory, **sent}, values=values)

    def _shares(self, state: State, updates: Mapping[str, Update]) -> dict[str, list[float]]:
        """Site -> what its model counts in its clusters' means, by part; of a cluster of which nobody answered as before."""
        shares = {site: list(own) for site, own in state.values.get(SHARES, {}).items()}
        weights = weights_of(self.settings)
        for part, cluster, members in in_clusters(updates, self.tensor_set, self.clusters):
            counts = dict(zip([update.site for update in members], weights(members) if members else [], strict=True))
            for site in self.clusters[part][cluster] if members else ():
                shares.setdefault(site, [0.0] * len(PARTS))[PARTS.index(part)] = counts.get(site, 0.0)
        return shares

    def _requests(self, message_type: str, state: State, grid: Grid, round_of: Callable[[str], int]) -> list[Message]:
        return [self._with_shares(message, state) for message in super()._requests(message_type, state, grid, round_of)]

    def _train_requests(self, *request: Any) -> list[Message]:
        return [self._with_shares(message, self.sent) for message in super()._train_requests(*request)]

    def _with_shares(self, message: Message, state: State) -> Message:
        task = Task.of(message.content.config_records[protocol.TASK])
        task = replace(task, shares=tuple(state.values.get(SHARES, {}).get(task.site, ())))
        message.content[protocol.TASK] = ConfigRecord(task.request())
        return message

    def _received(self, site: str) -> dict[str, list[Numbers]]:
        memory = self.sent.memory
        return runs(
            {name: memory.get(f"{SENT}/{site}/{name}", self.initial[name]) for name in self.tensor_set.names}, self.tensor_set
        )
