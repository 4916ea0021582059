"""The client of a site that pre-trains: perplexity and accuracy of what is masked, as sums.

Manoel et al. 2022, §2.1: training goes on by masked-language modelling alone, also of XLM-K, whose own pre-training had knowledge tasks
besides (Jiang et al. 2022, public). The round itself is clients/site_client.py.
"""

from clients.site_client import SiteClient
from fedlingua.corpora.split import Split
from fedlingua.corpora.texts import SiteText
from fedlingua.evaluation.base_results import base_result
from fedlingua.evaluation.perplexity import MaskedScores
from fedlingua.evaluation.sums import Scores
from fedlingua.evaluation.text_scores import masked_sums_of
from fedlingua.exchange.protocol import Stage
from fedlingua.exchange.tensor_sets import write_tensors
from fedlingua.exchange.tensors import NamedTensors
from fedlingua.personalization.choice import ALONE, BASE, FEDERATION
from fedlingua.training.masked_language import MASKS_KEY


class MaskedLanguageClient(SiteClient):
    """Train, evaluate and score for one site that pre-trains on text in one language."""

    def finish(self, received: NamedTensors, number: int, own: Stage) -> dict[str, Scores]:
        """Sum what perplexity and accuracy are made of, in four parts of the text, every piece masked once."""
        split: Split = "test" if self.settings.score_split == "test" else "dev"
        base = {name: self._of_base(text, split) for name, text in self.own_texts.items()}
        if not (self.settings.how.trains and number > 0):
            return {name: Scores(sums, sums) for name, sums in base.items()}
        self.load(received, own)
        chosen = self.choose(number)
        if chosen is None:
            return {name: Scores(self._score(text, split), base[name]) for name, text in self.own_texts.items()}
        kept, federated = chosen
        by_model = {BASE: base}
        for model, tensors in ((FEDERATION, federated), (ALONE, kept.alone), (kept.name, kept.tensors)):
            if tensors is not None and model not in by_model:
                write_tensors(self.trainable.model, tensors)
                by_model[model] = {name: self._score(text, split) for name, text in self.own_texts.items()}
        alone = by_model.get(ALONE, {})
        return {
            name: Scores(by_model[kept.name][name], base[name], alone.get(name), by_model[FEDERATION][name], kept.name)
            for name in base
        }

    def _of_base(self, text: SiteText, split: Split) -> MaskedScores:
        how = self.settings
        asked = [MASKS_KEY, how.max_tokens, how.mask_share, [pair.source for pair in text.splits[split]]]
        record = base_result(self.base_results, self.trainable, how, asked, lambda: self._score(text, split).record())
        return MaskedScores(**{key: tuple(value) if isinstance(value, list) else value for key, value in record.items()})  # type: ignore[arg-type]

    def _score(self, text: SiteText, split: Split) -> MaskedScores:
        return masked_sums_of(self.trainable.model, self.trainable.backbone.codec, text, split, self.settings)
