"""The trainer of a site that pre-trains: its text in masked sequences, perplexity and accuracy of what is masked, as sums.

Manoel et al. 2022, §2. The paper's model has an objective of its own, which is not public (XLM-K's knowledge tasks); what is public of it,
masked-language modelling, is what is trained here. The round itself is clients/site_client.py.
"""

from collections.abc import Mapping

from flwr.common import NDArrays

from clients.selecting import SelectingClient
from fedlingua.backbones.codec import TextCodec
from fedlingua.corpora.split import Split
from fedlingua.corpora.texts import SiteText
from fedlingua.evaluation.masked import masked_scores
from fedlingua.evaluation.perplexity import MaskedScores
from fedlingua.protocol import Stage
from fedlingua.training.loop import autocast
from fedlingua.training.masked_language import MaskedExample, TextExample, encode_text

MASKS_KEY = "fedlingua"
"""Decides the masks of text that is measured, with the text itself: under every method, seed and model the same."""


class MaskedLanguageClient(SelectingClient):
    """Trains, evaluates and scores for one site that pre-trains on text in one language."""

    def training_texts(self) -> list[list[TextExample]]:
        return [self._packed(text, "train") for text in self.texts.values()]

    def examples(self, split: Split) -> list[MaskedExample]:
        return [masked for text in self.texts.values() for one in self._packed(text, split) for masked in one.fixed(MASKS_KEY)]

    def finish(self, parameters: NDArrays, number: int, own: Stage) -> dict[str, tuple[MaskedScores, MaskedScores]]:
        """Perplexity's and accuracy's sums, in four parts of the text, every piece masked once."""
        split: Split = "test" if self.settings.score_split == "test" else "dev"
        texts = {name: (len(text.splits[split]), self._packed(text, split)) for name, text in self.own_texts.items()}
        with self.trainable.as_base():
            base = self._scores(texts)
        if not (self.settings.how.trains and number > 0):
            return {name: (sums, sums) for name, sums in base.items()}
        self.take(parameters, own)
        result = self._scores(texts)
        self.deliver(number)
        return {name: (result[name], base[name]) for name in base}

    def _scores(self, texts: Mapping[str, tuple[int, list[TextExample]]]) -> dict[str, MaskedScores]:
        model = self.trainable.model
        with autocast(model, self.settings.precision):
            return {
                name: masked_scores(model, self._codec, sentences, examples, MASKS_KEY)
                for name, (sentences, examples) in texts.items()
            }

    def _packed(self, text: SiteText, split: Split) -> list[TextExample]:
        sentences = [pair.source for pair in text.splits[split]]
        return encode_text(sentences, self._codec, self.settings.max_tokens, self.settings.mask_share)

    @property
    def _codec(self) -> TextCodec:
        codec = self.trainable.backbone.codec
        assert isinstance(codec, TextCodec), type(codec)  # check_backbone refuses others
        return codec
