"""Local-only training, the row every federated result stands beside: nothing travels, each site keeps its own tensors."""

from collections.abc import Mapping

from fedlingua.exchange.tensors import Tensors
from strategies.aggregation import Update
from strategies.site_strategy import SiteStrategy


class LocalOnly(SiteStrategy):
    """The same rounds as a federation's, of which only losses and scores leave a site; every site has a best round of its own."""

    travels = False
    one_best_round = False

    def begin(self, initial: Tensors) -> None:
        """Sites draw the initial tensors from the run's seed themselves."""

    def downlink(self, site: str) -> Tensors:
        return {}

    def fold(self, updates: Mapping[str, Update]) -> None:
        """Nothing came, nothing is averaged."""
