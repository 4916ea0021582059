"""The client of a translating site: count BLEU and chrF as sums, and store translations for people at the site.

Source text, hypotheses and references do not leave the site. The round of training is in clients/site_client.py.
"""

import json
import logging
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from clients.site_client import SiteClient
from fedlingua.common.errors import FedlinguaError
from fedlingua.common.files import json_hash, replace_text
from fedlingua.common.languages import Direction, parse_direction
from fedlingua.corpora.clean import Account
from fedlingua.corpora.read import Pair
from fedlingua.corpora.split import Split
from fedlingua.corpora.texts import SiteText
from fedlingua.evaluation.base_results import base_result, stored_result
from fedlingua.evaluation.bootstrap import draws, resampled
from fedlingua.evaluation.ensemble import Ensemble
from fedlingua.evaluation.measuring import Measured, measure
from fedlingua.evaluation.scores import ScoreSums, bleu_score, score_sums
from fedlingua.evaluation.sums import Scores
from fedlingua.evaluation.text_metrics import TEXT_METRICS, Counts, Translated
from fedlingua.evaluation.text_scores import translations
from fedlingua.exchange.delivery import SCORES, Second
from fedlingua.exchange.protocol import Stage
from fedlingua.exchange.tensor_sets import read_tensors
from fedlingua.exchange.tensors import NamedTensors, digest_of
from fedlingua.exchange.trainable import build_trainable
from fedlingua.personalization.choice import BASE, FEDERATION, gain_on_test
from fedlingua.personalization.phase import Kept
from fedlingua.settings.checks import settings_from
from fedlingua.settings.experiment import default_run_config
from fedlingua.settings.table import AS_ARGUMENTS

_log = logging.getLogger("fedlingua.client")


@dataclass(frozen=True)
class ScoredText:
    """Sentences to be translated and scored; they and their translations stay at the site."""

    direction: Direction
    pairs: Sequence[Pair]

    def sums(self, hypotheses: Sequence[str], more: Mapping[str, Measured]) -> ScoreSums:
        """Return the sums of the translations' BLEU and chrF counts, and those of the further metrics in `more`."""
        sums = score_sums(hypotheses, [pair.target for pair in self.pairs], self.direction.target)
        totals = {name: tuple(map(float, each.counts.sum(axis=0))) for name, each in more.items()}
        return replace(sums, more=totals, comet_checkpoint=max((each.checkpoint for each in more.values()), default=0))

    def translated(self, hypotheses: Sequence[str]) -> Translated:
        """Return the input of the metrics."""
        sources, references = [pair.source for pair in self.pairs], [pair.target for pair in self.pairs]
        return Translated(sources, hypotheses, references, self.direction.target)

    def table(self, base: Sequence[str], hypotheses: Sequence[str]) -> str:
        """Format source, reference and both translations of each sentence as tab-separated lines, for people at the site."""
        lines = ["\t".join((*pair, *both)) for pair, *both in zip(self.pairs, base, hypotheses, strict=True)]
        return "\n".join(["source\treference\tbase\thypothesis", *lines]) + "\n"


class TranslationClient(SiteClient):
    """A client of one translating site; a complete Flower NumPyClient, which also works without a server (docs/guides/client.md)."""

    _ensemble: tuple[Second, Ensemble] | None = None

    @classmethod
    def of_pairs(
        cls,
        pairs: Sequence[tuple[str, str]],
        direction: str,
        dev: Sequence[tuple[str, str]] = (),
        folder: Path | None = None,
        **options: Any,
    ) -> Self:
        """Create a client outside of any run.

        Args:
            pairs: The training sentences as (source, target).
            direction: For example "de-fr".
            dev: The pairs on which `evaluate` measures the loss.
            folder: Where the client stores what it needs in the next round; by default a new temporary folder.
            **options: The run's options that differ from the defaults, with _ in place of . and -: backbone="demo", adapter_dim=16.

        Raises:
            ConfigError: There is no such option, or it cannot have that value.
        """
        keyed = {
            AS_ARGUMENTS.get(name, name): str(value) if isinstance(value, Path) else value for name, value in options.items()
        }
        settings = settings_from({**default_run_config(), **keyed})
        splits: dict[Split, list[Pair]] = {"train": [Pair(*pair) for pair in pairs], "dev": [Pair(*pair) for pair in dev]}
        text = SiteText(parse_direction(direction), Account(), {**splits, "test": []})
        folder = folder or Path(tempfile.mkdtemp(prefix="fedlingua-client-"))
        return cls("notebook", {"notebook": text}, build_trainable(settings), settings, folder, folder / "base-results")

    # --- Translations of the first `keep-translations` dev sentences in every round, for people at the site --------------
    # One file per round, such as `0003.jsonl`, with one line per sentence. A repeated round replaces its own file and removes those
    # of later rounds, so a resumed run leaves the same bytes as an uninterrupted one, even if a client outlives its server.

    def start_round(self, number: int) -> None:
        for file in self._by_round.glob("*.jsonl"):
            if file.stem.isdecimal() and int(file.stem) >= number:
                file.unlink()

    def after_measuring(self, number: int) -> None:
        if not self.settings.keep_translations:
            return
        lines = []
        for name, text in self.own_texts.items():
            first = ScoredText(text.direction, text.splits["dev"][: self.settings.keep_translations])
            lines += round_lines(number, name, first, self._translate(first))
        replace_text(self._by_round / f"{number:04d}.jsonl", "".join(f"{line}\n" for line in lines))

    @property
    def _by_round(self) -> Path:
        return self.folder / "translations-by-round"

    # --- The end ----------------------------------------------------------------------------------------------------

    def finish(self, received: NamedTensors, number: int, own: Stage) -> dict[str, Scores]:
        """Count BLEU, chrF and the run's other metrics; store the base's and the kept model's translations at the site."""
        split: Split = "test" if self.settings.score_split == "test" else "dev"
        scored = {name: ScoredText(text.direction, text.splits[split]) for name, text in self.own_texts.items()}
        base = {name: self._of_base(each) for name, each in scored.items()}
        by_model, chosen = dict[str, dict[str, list[str]]](), None
        if self.settings.how.trains and number > 0:
            self.load(received, own)
            by_model, chosen = self.score_models(
                number, lambda second: {name: self._translated(each, 0, second) for name, each in scored.items()}
            )
        by_model[BASE] = base
        hypotheses = by_model[chosen.name if chosen else FEDERATION if FEDERATION in by_model else BASE]
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, each in scored.items():
            file = "translations.tsv" if name == self.site else f"translations-{name}.tsv"
            replace_text(self.folder / file, each.table(base[name], hypotheses[name]))
        measured = {name: each.translated(hypotheses[name]) for name, each in scored.items()}
        measured |= {f"base.{name}": each.translated(base[name]) for name, each in scored.items()}
        more = self._measured(measured)
        result = {}
        for name, each in scored.items():
            of_kept, of_base = each.sums(hypotheses[name], more[name]), each.sums(base[name], more[f"base.{name}"])
            result[name] = Scores(of_kept, of_base)
            if chosen:
                made = {key: texts[name] for key, texts in by_model.items()}
                result[name] = self._with_choice(result[name], each, made, chosen)
            now, base_bleu = bleu_score(of_kept), bleu_score(of_base)
            _log.info("site %s, %s: BLEU %.1f before, %.1f now, of %d sentences", name, split, base_bleu, now, len(each.pairs))
            about = {"split": split, "sentences": len(each.pairs), "bleu": now, "base_bleu": base_bleu}
            replace_text(self.folder / f"{SCORES}{name}.json", json.dumps({name: about}) + "\n")
        return result

    @staticmethod
    def _with_choice(sums: Scores, scored: ScoredText, by_model: Mapping[str, list[str]], chosen: Kept) -> Scores:
        """Add the sums of the models that the kept one is compared with, and the confidence interval of the gain in BLEU."""
        bleu, drawn = TEXT_METRICS["bleu"], draws(len(scored.pairs))
        compared = {name: bleu.count(scored.translated(by_model[name])) for name in (chosen.name, chosen.reference)}
        samples = {name: resampled(each, bleu.score, drawn) for name, each in compared.items()}
        of = {name: scored.sums(made, {}) for name, made in by_model.items()}
        return sums.chosen(of, chosen.name, chosen.single, chosen.reference, gain_on_test(chosen.name, chosen.reference, samples))

    def count_chrf(self, base: bool, second: Second | None = None) -> Counts:
        """Count chrF of the site's own dev text, translated greedily."""
        counts = []
        for text in self.own_texts.values():
            scored = ScoredText(text.direction, text.splits["dev"])
            hypotheses = self._of_base(scored, beam=1) if base else self._translated(scored, 1, second)
            counts.append(TEXT_METRICS["chrf"].count(scored.translated(hypotheses)))
        return np.concatenate(counts)

    def _measured(self, texts: Mapping[str, Translated]) -> dict[str, dict[str, Measured]]:
        """Measure the run's metrics besides BLEU and chrF: text -> metric -> result.

        A metric that fails does not prevent the others: the site's log gives the reason, and the server sees that the metric is missing.
        """
        measured: dict[str, dict[str, Measured]] = {name: {} for name in texts}
        for metric in self.settings.more_metrics:
            try:
                for name, each in measure(texts, [metric], self.settings.comet_model, _log.info).items():
                    measured[name] |= each
            except FedlinguaError as error:
                _log.error("site %s: %s is not measured: %s", self.site, metric, error)
        return measured

    def _of_base(self, scored: ScoredText, beam: int = 0) -> list[str]:
        asked = self._asked(scored, beam)
        return base_result(self.base_results, self.trainable, self.settings, asked, lambda: self._translate(scored, beam))

    def _asked(self, scored: ScoredText, beam: int) -> list[Any]:
        how, sources = self.settings, [pair.source for pair in scored.pairs]
        return [str(scored.direction), beam or how.beam, how.max_tokens, how.max_decode_tokens, how.no_repeat_ngram, sources]

    def _translated(self, scored: ScoredText, beam: int, second: Second | None) -> list[str]:
        """Translate with the current model, unless one with the same tensors has translated the same."""
        trained, how = self.trainable, self.settings
        if how.client:  # its class may translate otherwise
            return self._translate(scored, beam, second)
        digests = [digest_of("", read_tensors(trained.model, trained.trained))]
        digests += [digest_of(f"{second.share}", second.tensors)] if second else []
        asked = [*self._asked(scored, beam), trained.fingerprint, json_hash(dict(trained.adapter or {})), digests]
        return stored_result(self.base_results, trained, how, asked, lambda: self._translate(scored, beam, second))

    def _translate(self, scored: ScoredText, beam: int = 0, second: Second | None = None) -> list[str]:
        how, codec = replace(self.settings, beam=beam or self.settings.beam), self.trainable.backbone.codec
        guides = [self._ensemble_with(second, scored.direction)] if second else []
        return translations(self.trainable.model, codec, scored.pairs, scored.direction, how, guides)

    def _ensemble_with(self, second: Second, direction: Direction) -> Ensemble:
        """Return the guide with which the current model translates beside a second one, which is loaded once."""
        if self._ensemble is None or self._ensemble[0] is not second:
            self._ensemble = second, Ensemble.of(second, self.trainable, self.settings, direction)
        return replace(self._ensemble[1], direction=direction)


def round_lines(number: int, text: str, first: ScoredText, translations: Sequence[str]) -> list[str]:
    """Return one JSON line per sentence, counted from 1. text: The name of the site from which the sentences are."""
    lines, both = [], zip(first.pairs, translations, strict=True)
    for place, (pair, translation) in enumerate(both, start=1):
        about = {"round": number, "text": text, "direction": str(first.direction), "sentence": place}
        about |= {"source": pair.source, "reference": pair.target, "translation": translation}
        lines.append(json.dumps(about, ensure_ascii=False))
    return lines
