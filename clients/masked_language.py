"""The client of a pre-training site: perplexity and accuracy on masked pieces, as sums.

Training uses masked-language modelling alone (Manoel et al. 2022, §2.1), even for XLM-K, which was also pre-trained on knowledge
tasks (Jiang et al. 2022, public). The round of training is in clients/site_client.py.
"""

import numpy as np

from clients.site_client import SiteClient
from fedlingua.corpora.split import Split
from fedlingua.corpora.texts import SiteText
from fedlingua.evaluation.base_results import base_result
from fedlingua.evaluation.bootstrap import Numbers, draws, resampled_sums
from fedlingua.evaluation.perplexity import MaskedScores, perplexity
from fedlingua.evaluation.sums import Scores
from fedlingua.evaluation.text_scores import masked_sums_of
from fedlingua.exchange.protocol import Stage
from fedlingua.exchange.tensors import NamedTensors
from fedlingua.personalization.choice import ALONE, BASE, FEDERATION, gains_on_test
from fedlingua.training.masked_language import MASKS_KEY
from fedlingua.training.objective import nll_of_each
from fedlingua.training.site_examples import sequences_of


class MaskedLanguageClient(SiteClient):
    """A client that trains, evaluates and scores for one site, which pre-trains on text in one language."""

    def finish(self, received: NamedTensors, number: int, own: Stage) -> dict[str, Scores]:
        """Return the sums for perplexity and accuracy over four parts of each text, with every piece masked once."""
        split: Split = "test" if self.settings.score_split == "test" else "dev"
        base = {name: self._of_base(text, split) for name, text in self.own_texts.items()}
        if not (self.settings.how.trains and number > 0):
            return {name: Scores(sums, sums) for name, sums in base.items()}
        self.load(received, own)
        by_model, candidate = self.score_models(number, lambda _: self._scores_of_all(split))
        if not self.chooses:
            return {name: Scores(sums, base[name]) for name, sums in by_model[candidate][0].items()}
        with self.trainable.as_base():
            by_model[BASE] = base, self._nll_of_each(split)
        result = {}
        for name in base:
            sums = {model: each[0][name] for model, each in by_model.items()}
            samples = {model: _samples(*each[1][name]) for model, each in by_model.items()}
            gains = gains_on_test(candidate, {model: -perplexity(each) for model, each in sums.items()}, samples)
            result[name] = Scores(sums[candidate], base[name], sums.get(ALONE), sums[FEDERATION], candidate, *gains)
        return result

    def _scores_of_all(self, split: Split) -> tuple[dict[str, MaskedScores], dict[str, tuple[Numbers, Numbers]]]:
        """Score all texts with the current model; if the site chooses, also return (nll, masked pieces) of each sequence."""
        sums = {name: self._score(text, split) for name, text in self.own_texts.items()}
        return sums, self._nll_of_each(split) if self.chooses else {}

    def _nll_of_each(self, split: Split) -> dict[str, tuple[Numbers, Numbers]]:
        """Measure (nll, masked pieces) of every sequence of each text with the current model; every piece is masked once."""
        model, codec, of_texts = self.trainable.model, self.trainable.backbone.codec, {}
        for name, text in self.own_texts.items():
            parts = [each.fixed(MASKS_KEY, len(each.ids)) for each in sequences_of(text, split, codec, self.settings)]
            masked = [example for part in parts for example in part]
            nll, tokens = nll_of_each(model, codec, masked, self.settings.precision)
            first = np.cumsum([0, *map(len, parts)])[:-1]
            of_texts[name] = np.add.reduceat(nll, first), np.add.reduceat(tokens, first)
        return of_texts

    def _of_base(self, text: SiteText, split: Split) -> MaskedScores:
        how = self.settings
        asked = [MASKS_KEY, how.max_tokens, how.mask_share, [pair.source for pair in text.splits[split]]]
        record = base_result(self.base_results, self.trainable, how, asked, lambda: self._score(text, split).record())
        return MaskedScores(**{key: tuple(value) if isinstance(value, list) else value for key, value in record.items()})  # type: ignore[arg-type]

    def _score(self, text: SiteText, split: Split) -> MaskedScores:
        return masked_sums_of(self.trainable.model, self.trainable.backbone.codec, text, split, self.settings)


def _samples(nll: Numbers, tokens: Numbers) -> Numbers:
    """Return the negative perplexity of each bootstrap sample of sequences, (samples,)."""
    drawn = draws(len(nll))
    return -np.exp(resampled_sums(nll, drawn) / resampled_sums(tokens, drawn))
