"""A site's local trainer: fine-tune what travels on the site's own text, and answer in sums.

One round, told from the site: take the tensors that came, put them into the frozen backbone, train them on the site's sentences with
an Adam made anew, give them back. Text, hypotheses and references stay here.
"""

import dataclasses
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from flwr.client import NumPyClient
from flwr.common import NDArrays, Scalar

from clients.round_translations import RoundTranslations, round_lines
from clients.sending import Sending, Sent
from clients.signature import Consent, Signature, signature
from clients.slope import MetaStep, RoundsUpdate, random_batches
from clients.stage_files import StageFiles
from fedlingua.config import Settings
from fedlingua.corpora.read import Pair
from fedlingua.corpora.split import Split
from fedlingua.corpora.texts import SiteText
from fedlingua.evaluation.decode import translate
from fedlingua.evaluation.scores import ScoreSums, score_sums
from fedlingua.exchange.delivery import deliver
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.tensor_sets import Tensors, read_tensors, write_tensors
from fedlingua.exchange.trainable import Trainable
from fedlingua.languages import Direction
from fedlingua.protocol import BATCHES_S, SELECT_S, Stage, Task, Threshold
from fedlingua.selection.deviation import deviations
from fedlingua.timing import timed
from fedlingua.training.batches import Example, by_tokens, encode_pairs, pad
from fedlingua.training.loop import LocalTraining, autocast, train_locally
from fedlingua.training.objective import corpus_nll

EVALUATION_TOKENS = 3000
"""Padded tokens of one batch when a loss is measured: no gradients, so batches can be large."""


@dataclass(frozen=True)
class Scored:
    """Sentences to be translated and scored; they and their translations stay at the site."""

    direction: Direction
    pairs: Sequence[Pair]

    def sums(self, hypotheses: Sequence[str]) -> ScoreSums:
        """BLEU and chrF counts of the translations."""
        return score_sums(hypotheses, [pair.target for pair in self.pairs], self.direction.target)

    def table(self, base: Sequence[str], hypotheses: Sequence[str]) -> str:
        """All of it as tab-separated lines, for the site's own eyes."""
        lines = ["\t".join((*pair, *both)) for pair, *both in zip(self.pairs, base, hypotheses, strict=True)]
        return "\n".join(["source\treference\tbase\thypothesis", *lines]) + "\n"


class TranslationClient(NumPyClient):
    """Trains, evaluates and scores for one site. `parameters` are the arrays that travel, in their set's order; none means: the site's own.

    `texts` is the site's text under its name, besides what it holds of other sites' where text is mixed; or those of all sites that are
    pooled in it. `folder` is the site's private directory; what trains and does not travel is kept there by round and attempt, and what a
    selection compares with; with `keep-translations` also what each round makes of a few sentences.
    """

    def __init__(self, site: str, texts: Mapping[str, SiteText], trainable: Trainable, settings: Settings, folder: Path) -> None:
        self.site, self.texts, self.trainable, self.settings, self.folder = site, texts, trainable, settings, folder
        self._own = StageFiles(folder / "rounds")
        self._by_round = RoundTranslations(folder / "translations-by-round")
        self._sending = Sending(site, settings, trainable.tensor_set, folder)
        torch.set_num_threads(settings.threads)

    def signature(self, folder: Path, consent: Consent) -> Signature:
        """What the site's cluster is found by, made of the training text before any round; kept in `folder`."""
        return signature(self.site, self._examples("train"), self.trainable, self.settings, folder, consent)

    def fit(self, parameters: NDArrays, config: dict[str, Scalar]) -> tuple[NDArrays, int, dict[str, Scalar]]:
        """Train one round from `parameters`; give back what travels, the number of sentences, and the training loss as sums."""
        number = int(config["round"])
        self._by_round.cut(number)
        self._take(parameters, _own(config))
        how = LocalTraining(
            self.settings.batch_size,
            self.settings.accumulation,
            self.settings.local_epochs,
            self.settings.step_learning_rate,
            self.settings.whole_steps,
            self.settings.precision,
        )
        seed = f"{self.settings.seed}/{self.site}/{number}"
        result = train_locally(
            self.trainable.model,
            self.trainable.trained.names,
            self._examples("train"),
            self.trainable.backbone.codec,
            how,
            seed,
        )
        trained = read_tensors(self.trainable.model, self.trainable.trained)
        travelling = self.trainable.tensor_set.names if self.settings.how.travels else []
        stays = trained if self.settings.compares_rounds else {n: t for n, t in trained.items() if n not in set(travelling)}
        if stays:
            self._own.save(stays, (number, int(config["attempt"])))
        return [trained[name] for name in travelling], result.num_examples, dataclasses.asdict(result)

    def selected(self, arrays: NDArrays, came: NDArrays, task: Task) -> tuple[Sent, dict[str, float]]:
        """What the run's rule takes of an update, and seconds. arrays: as `fit` gave them; came: what it began with."""
        seconds: dict[str, float] = {}
        with timed(seconds, SELECT_S):
            previous = self._kept(task.own) if self.settings.compares_rounds else {}
            sent = self._sending.select(self._named(arrays), self._named(came), previous, task)
        return sent, seconds

    def probed(self, arrays: NDArrays, came: NDArrays, task: Task) -> dict[str, float]:
        """The median deviation of an update that waits here, from which the server takes the scale of its threshold; and seconds.

        arrays, came: as in `selected`. What is asked about the update later is measured here, once.
        """
        seconds: dict[str, float] = {}
        with timed(seconds, SELECT_S):
            measured = deviations(self._named(arrays), self._kept(task.own), self.trainable.tensor_set)
        self._sending.keep(measured, self._named(came) if self.settings.asks_own_terms else {}, _stage(task))
        finite = measured[np.isfinite(measured)]
        return {"deviation": float(np.median(finite)) if len(finite) else 0.0, **seconds}

    def above_or_below(self, task: Task, theta: float, network: Numbers | None) -> tuple[Sent, dict[str, float]]:
        """What the server's threshold, and the second filter, take of the update that waits here since the round's probe; and seconds."""
        seconds: dict[str, float] = {}
        with timed(seconds, SELECT_S):
            measured, _ = self._sending.kept(_stage(task))
            sent = self._sending.above_or_below(self._own.load(_stage(task)), measured, theta, network)
        return sent, seconds

    def slope(
        self, task: Task, threshold: Threshold, direction: Mapping[str, Numbers], network: Numbers | None, parameters: NDArrays
    ) -> dict[str, Any]:
        """The site's part in what is learned from the round, with the tensors that `evaluate` has put in.

        direction: as the server packed it, for the estimator `cross`. network: the second filter's. parameters: as `evaluate` got them.
        """
        settings, model, codec = self.settings, self.trainable.model, self.trainable.backbone.codec
        seconds: dict[str, float] = {}
        with timed(seconds, BATCHES_S):
            drawn = random_batches(self._examples("dev"), settings, f"{settings.seed}/{self.site}/{task.round}/meta")
            batches = [pad(batch, codec).to(model.device) for batch in drawn]
        step = MetaStep(settings, self._sending, model, batches, seconds)
        with autocast(model, settings.precision):
            if settings.meta_estimator == "loss" and network is None:
                return step.loss()
            asks_own = threshold.own or network is not None or settings.meta_estimator == "own"
            update = self._rounds_update(task, parameters) if asks_own and any(threshold.weights) else None
            return step.answer(threshold, direction, network, update)

    def _rounds_update(self, task: Task, parameters: NDArrays) -> RoundsUpdate:
        measured, came = self._sending.kept(_stage(task))
        # Where came is not kept nobody sent anything, and what the round began with is what it ended with.
        return RoundsUpdate(came or self._named(parameters), self._own.load(_stage(task)), measured)

    def _named(self, arrays: NDArrays) -> Tensors:
        return dict(zip(self.trainable.tensor_set.names, arrays, strict=True))

    def evaluate(self, parameters: NDArrays, config: dict[str, Scalar]) -> tuple[float, int, dict[str, Scalar]]:
        """(nll a token, sentences, sums) on the dev text; round 0 is the backbone as it was published."""
        started = time.monotonic()
        number = int(config["round"])
        self._by_round.cut(number)
        if number > 0:
            self._take(parameters, _own(config))
        with nullcontext() if number > 0 else self.trainable.as_base():
            nll_sum, num_tokens = self._dev_nll()
            self._keep_translations(number)
        sentences = sum(len(text.splits["dev"]) for text in self.texts.values())
        sums: dict[str, Scalar] = {
            "nll_sum": nll_sum,
            "num_tokens": num_tokens,
            "num_examples": sentences,
            "seconds": time.monotonic() - started,
        }
        return nll_sum / num_tokens, sentences, sums

    def _keep_translations(self, number: int) -> None:
        """What the model that stands here makes of the first dev sentences, as it would translate them at the end."""
        if not self.settings.keep_translations:
            return
        lines = []
        for name, text in self._own_texts.items():
            first = Scored(text.direction, text.splits["dev"][: self.settings.keep_translations])
            lines += round_lines(number, name, first.direction, first.pairs, self._translate(first))
        self._by_round.save(number, lines)

    def finish(self, parameters: NDArrays, number: int, own: Stage) -> dict[str, tuple[ScoreSums, ScoreSums]]:
        """Translate the scored split with the best round's tensors and with the base: text -> (its sums, the base's sums).

        Of mixed text a site scores its own direction's alone, so that scores are those of the same sentences, mixed or not.
        The site keeps both translations and, when adapters were trained, the adapter: it can translate on its own from now on.
        """
        split: Split = "test" if self.settings.score_split == "test" else "dev"
        scored = {name: Scored(text.direction, text.splits[split]) for name, text in self._own_texts.items()}
        with self.trainable.as_base():
            base = {name: self._translate(one) for name, one in scored.items()}
        hypotheses = base
        trained = self.settings.how.trains and number > 0
        if trained:
            self._take(parameters, own)
            hypotheses = {name: self._translate(one) for name, one in scored.items()}
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, one in scored.items():
            file = "translations.tsv" if name == self.site else f"translations-{name}.tsv"
            (self.folder / file).write_text(one.table(base[name], hypotheses[name]), encoding="utf-8")
        if trained:
            self._deliver(number)
        return {name: (one.sums(hypotheses[name]), one.sums(base[name])) for name, one in scored.items()}

    def _deliver(self, number: int) -> None:
        """Keep the tensors that the model holds now, with all that it takes to translate with them."""
        site = {"site": self.site, "direction": str(next(iter(self._own_texts.values())).direction), "round": number}
        deliver(self.folder, self.trainable, self.settings, site)

    @property
    def _own_texts(self) -> Mapping[str, SiteText]:
        """Those that the site stands for: its own, or all that are pooled in it."""
        return {self.site: self.texts[self.site]} if self.site in self.texts else self.texts

    def forget(self, keep: Collection[Stage]) -> None:
        """Remove own tensors that will not be asked for any more: a round counts once the server begins the next."""
        self._own.forget(keep)
        self._sending.forget(keep)

    def _take(self, parameters: NDArrays, own: Stage) -> None:
        """Put the tensors to start from into the model: the site's own of that round and attempt, and over them those that came."""
        came = self._named(parameters) if parameters else {}
        stays = {} if len(came) == len(self.trainable.trained.specs) else self._kept(own)
        write_tensors(self.trainable.model, {**stays, **came})

    def _kept(self, stage: Stage) -> Tensors:
        """The site's own tensors of a round and attempt; of (0, 0) those that everybody starts from.

        Raises:
            ExchangeError: they are not here.
        """
        return self.trainable.initial if stage == (0, 0) else self._own.load(stage)

    def _examples(self, split: Split) -> list[Example]:
        codec, cut = self.trainable.backbone.codec, self.settings.max_tokens
        return [one for text in self.texts.values() for one in encode_pairs(text.splits[split], text.direction, codec, cut)]

    def _dev_nll(self) -> tuple[float, int]:
        model, codec = self.trainable.model, self.trainable.backbone.codec
        groups = by_tokens(self._examples("dev"), EVALUATION_TOKENS, Random(0))
        with autocast(model, self.settings.precision):
            return corpus_nll(model, [pad(group, codec).to(model.device) for group in groups])

    def _translate(self, scored: Scored) -> list[str]:
        return translate(
            self.trainable.model,
            self.trainable.backbone.codec,
            [pair.source for pair in scored.pairs],
            scored.direction,
            self.settings.beam,
            self.settings.max_tokens,
            self.settings.max_decode_tokens,
        )


def _own(config: dict[str, Scalar]) -> Stage:
    return int(config["own_round"]), int(config["own_attempt"])


def _stage(task: Task) -> Stage:
    """Of what the task's round is trained to."""
    return task.round, task.attempt
