"""Local-only training, the baseline of every federated result: no tensor travels, each site keeps its own."""

from collections.abc import Mapping

from fedlingua.exchange.state import State
from fedlingua.exchange.tensors import NamedTensors
from fedlingua.exchange.updates import Update
from strategies.strategy import SiteStrategy


class LocalOnly(SiteStrategy):
    """Rounds like a federation's in which only losses and scores leave a site; every site has a best round of its own."""

    travels = False
    one_best_round = False

    def init(self, tensors: NamedTensors) -> State:
        """Return an empty state: sites draw the initial tensors from the run's seed themselves."""
        return State({})

    def model_for(self, state: State, site: str) -> NamedTensors:
        return {}

    def aggregate(self, state: State, updates: Mapping[str, Update]) -> State:
        """Return the state unchanged: there are no updates."""
        return state
