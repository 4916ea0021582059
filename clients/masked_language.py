"""The client of a pre-training site: perplexity and accuracy on masked pieces, as sums.

Training uses masked-language modelling alone (Manoel et al. 2022, §2.1), even for XLM-K, which was also pre-trained on knowledge
tasks (Jiang et al. 2022, public). The round of training is in clients/site_client.py.
"""

from dataclasses import asdict

import numpy as np

from clients.site_client import SiteClient
from fedlingua.corpora.split import Split
from fedlingua.corpora.texts import SiteText
from fedlingua.evaluation.base_results import base_result
from fedlingua.evaluation.bootstrap import Numbers, draws, resampled_sums
from fedlingua.evaluation.perplexity import SequenceScores
from fedlingua.evaluation.sums import Scores
from fedlingua.evaluation.text_scores import masked_scores
from fedlingua.exchange.protocol import Stage
from fedlingua.exchange.tensors import NamedTensors
from fedlingua.personalization.choice import BASE, FEDERATION, gain_on_test
from fedlingua.training.masked_language import MASKS_KEY


class MaskedLanguageClient(SiteClient):
    """A client of one site, which pre-trains on text in one language."""

    def finish(self, received: NamedTensors, number: int, own: Stage) -> dict[str, Scores]:
        """Return the sums for perplexity and accuracy over four parts of each text, with every piece masked once."""
        split: Split = "test" if self.settings.score_split == "test" else "dev"
        sentences = {name: len(text.splits[split]) for name, text in self.own_texts.items()}
        base = {name: self._of_base(text, split) for name, text in self.own_texts.items()}
        if not (self.settings.how.trains and number > 0):
            return {name: Scores(of_base := each.summed(sentences[name]), of_base) for name, each in base.items()}
        self.load(received, own)
        by_model, chosen = self.score_models(
            number, lambda _: {name: self._score(text, split) for name, text in self.own_texts.items()}
        )
        by_model[BASE] = base
        result = {}
        for name in base:
            sums = {model: each[name].summed(sentences[name]) for model, each in by_model.items()}
            result[name] = Scores(sums[chosen.name if chosen else FEDERATION], sums[BASE])
            if chosen:
                samples = {model: _samples(by_model[model][name]) for model in (chosen.name, chosen.reference)}
                over = gain_on_test(chosen.name, chosen.reference, samples)
                result[name] = result[name].chosen(sums, chosen.name, chosen.single, chosen.reference, over)
        return result

    def _of_base(self, text: SiteText, split: Split) -> SequenceScores:
        how = self.settings
        asked = [MASKS_KEY, how.max_tokens, how.mask_share, [pair.source for pair in text.splits[split]]]
        record = base_result(self.base_results, self.trainable, how, asked, lambda: asdict(self._score(text, split)))
        return SequenceScores(**record)

    def _score(self, text: SiteText, split: Split) -> SequenceScores:
        return masked_scores(self.trainable.model, self.trainable.backbone.codec, text, split, self.settings)


def _samples(scores: SequenceScores) -> Numbers:
    """Return the negative perplexity of each bootstrap sample of sequences, (samples,)."""
    drawn = draws(len(scores.nll))
    nll, tokens = (resampled_sums(np.array(each, float), drawn) for each in (scores.nll, scores.tokens))
    return -np.exp(nll / tokens)
