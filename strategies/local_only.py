"""Local-only training, the baseline of every federated result: nothing travels, each site keeps its own tensors."""

from collections.abc import Mapping

from fedlingua.exchange.tensors import NamedTensors
from strategies.aggregation import State
from strategies.strategy import SiteStrategy
from strategies.updates import Update


class LocalOnly(SiteStrategy):
    """The same rounds as a federation's, of which only losses and scores leave a site; every site has a best round of its own."""

    travels = False
    one_best_round = False

    def init(self, tensors: NamedTensors) -> State:
        """Nothing: sites draw the initial tensors from the run's seed themselves."""
        return State({})

    def model_for(self, state: State, site: str) -> NamedTensors:
        return {}

    def aggregate(self, state: State, updates: Mapping[str, Update]) -> State:
        """There is no update, so the state stays."""
        return state
