"""The trainer of a site that pre-trains: perplexity and accuracy of what is masked, as sums.

Manoel et al. 2022, §2.1: training goes on by masked-language modelling alone, also of XLM-K, whose own pre-training had knowledge tasks
besides (Jiang et al. 2022, public). The round itself is clients/site_client.py.
"""

from flwr.common import NDArrays

from clients.selecting import SelectingClient
from fedlingua.corpora.split import Split
from fedlingua.evaluation.perplexity import MaskedScores
from fedlingua.evaluation.text_scores import masked_sums_of
from fedlingua.protocol import Stage


class MaskedLanguageClient(SelectingClient):
    """Trains, evaluates and scores for one site that pre-trains on text in one language."""

    def finish(self, parameters: NDArrays, number: int, own: Stage) -> dict[str, tuple[MaskedScores, MaskedScores]]:
        """Perplexity's and accuracy's sums, in four parts of the text, every piece masked once."""
        split: Split = "test" if self.settings.score_split == "test" else "dev"
        with self.trainable.as_base():
            base = self._scores(split)
        if not (self.settings.how.trains and number > 0):
            return {name: (sums, sums) for name, sums in base.items()}
        self.take(parameters, own)
        result = self._scores(split)
        self.deliver(number)
        return {name: (result[name], base[name]) for name in base}

    def _scores(self, split: Split) -> dict[str, MaskedScores]:
        model, codec = self.trainable.model, self.trainable.backbone.codec
        return {name: masked_sums_of(model, codec, text, split, self.settings) for name, text in self.own_texts.items()}
