"""The trainer of a site that translates: translations to look at, BLEU and chrF as sums.

Text, hypotheses and references stay here. The round itself is clients/site_client.py.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from flwr.common import NDArrays

from clients.round_translations import RoundTranslations, round_lines
from clients.selecting import SelectingClient
from fedlingua.common.errors import FedlinguaError
from fedlingua.common.languages import Direction
from fedlingua.corpora.read import Pair
from fedlingua.corpora.split import Split
from fedlingua.evaluation.base_results import base_result
from fedlingua.evaluation.measuring import Measured, measure
from fedlingua.evaluation.scores import ScoreSums, score_sums
from fedlingua.evaluation.text_metrics import Translated
from fedlingua.evaluation.text_scores import translations
from fedlingua.exchange.protocol import Stage

_log = logging.getLogger("fedlingua.client")


@dataclass(frozen=True)
class Scored:
    """Sentences to be translated and scored; they and their translations stay at the site."""

    direction: Direction
    pairs: Sequence[Pair]

    def sums(self, hypotheses: Sequence[str], more: Mapping[str, Measured]) -> ScoreSums:
        """BLEU and chrF counts of the translations, and the sums of what else was measured of them."""
        sums = score_sums(hypotheses, [pair.target for pair in self.pairs], self.direction.target)
        totals = {name: tuple(map(float, one.counts.sum(axis=0))) for name, one in more.items()}
        return replace(sums, more=totals, comet_checkpoint=max((one.checkpoint for one in more.values()), default=0))

    def translated(self, hypotheses: Sequence[str]) -> Translated:
        """Sources, translations and references."""
        sources, references = [pair.source for pair in self.pairs], [pair.target for pair in self.pairs]
        return Translated(sources, hypotheses, references, self.direction.target)

    def table(self, base: Sequence[str], hypotheses: Sequence[str]) -> str:
        """All of it as tab-separated lines, for the site's own eyes."""
        lines = ["\t".join((*pair, *both)) for pair, *both in zip(self.pairs, base, hypotheses, strict=True)]
        return "\n".join(["source\treference\tbase\thypothesis", *lines]) + "\n"


class TranslationClient(SelectingClient):
    """Trains, evaluates and scores for one site that translates; with `keep-translations` it also keeps what each round makes of a few
    sentences.
    """

    @property
    def _by_round(self) -> RoundTranslations:
        return RoundTranslations(self.folder / "translations-by-round")

    def begins(self, number: int) -> None:
        self._by_round.cut(number)

    def evaluated(self, number: int) -> None:
        """What the model that stands here makes of the first dev sentences, as it would translate them at the end."""
        if not self.settings.keep_translations:
            return
        lines = []
        for name, text in self.own_texts.items():
            first = Scored(text.direction, text.splits["dev"][: self.settings.keep_translations])
            lines += round_lines(number, name, first.direction, first.pairs, self._translate(first))
        self._by_round.save(number, lines)

    def finish(self, parameters: NDArrays, number: int, own: Stage) -> dict[str, tuple[ScoreSums, ScoreSums]]:
        """BLEU and chrF counts, and those of the run's other metrics. The site keeps both translations."""
        split: Split = "test" if self.settings.score_split == "test" else "dev"
        scored = {name: Scored(text.direction, text.splits[split]) for name, text in self.own_texts.items()}
        base = {name: self._of_base(one) for name, one in scored.items()}
        hypotheses = base
        trained = self.settings.how.trains and number > 0
        if trained:
            self.take(parameters, own)
            hypotheses = {name: self._translate(one) for name, one in scored.items()}
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, one in scored.items():
            file = "translations.tsv" if name == self.site else f"translations-{name}.tsv"
            (self.folder / file).write_text(one.table(base[name], hypotheses[name]), encoding="utf-8")
        if trained:
            self.deliver(number)
        texts = {name: one.translated(hypotheses[name]) for name, one in scored.items()}
        before = {f"base.{name}": one.translated(base[name]) for name, one in scored.items()}
        more = self._measured(texts | before)
        return {
            name: (one.sums(hypotheses[name], more[name]), one.sums(base[name], more[f"base.{name}"]))
            for name, one in scored.items()
        }

    def _measured(self, texts: Mapping[str, Translated]) -> dict[str, dict[str, Measured]]:
        """Text -> what the run measures besides BLEU and chrF. What cannot be measured here costs no other score: the site's log says why,
        and the server sees that it is missing."""
        found: dict[str, dict[str, Measured]] = {name: {} for name in texts}
        for metric in self.settings.more_metrics:
            try:
                for name, one in measure(texts, [metric], self.settings.comet_model, _log.info).items():
                    found[name] |= one
            except FedlinguaError as error:
                _log.error("site %s: %s is not measured: %s", self.site, metric, error)
        return found

    def _of_base(self, scored: Scored) -> list[str]:
        how, sources = self.settings, [pair.source for pair in scored.pairs]
        asked = [str(scored.direction), how.beam, how.max_tokens, how.max_decode_tokens, sources]
        return base_result(self.base_results, self.trainable, how, asked, lambda: self._translate(scored))

    def _translate(self, scored: Scored) -> list[str]:
        return translations(self.trainable.model, self.trainable.backbone.codec, scored.pairs, scored.direction, self.settings)
