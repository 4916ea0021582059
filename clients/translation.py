"""A site's local trainer: fine-tune what travels on the site's own text, and answer in sums.

One round, told from the site: take the tensors that came, put them into the frozen backbone, train them on the site's sentences with
an Adam made anew, give them back. Text, hypotheses and references stay here.
"""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import torch
from flwr.client import NumPyClient
from flwr.common import NDArrays, Scalar
from safetensors.numpy import load_file, save_file

from fedlingua.backbones.bottleneck import save_adapter
from fedlingua.config import Settings
from fedlingua.corpora.read import Pair
from fedlingua.corpora.sites import SiteText
from fedlingua.evaluation.decode import translate
from fedlingua.evaluation.scores import ScoreSums, score_sums
from fedlingua.exchange.tensor_sets import Tensors, read_tensors, write_tensors
from fedlingua.exchange.trainable import Trainable
from fedlingua.training.batches import Example, by_tokens, encode_pairs, pad
from fedlingua.training.loop import LocalTraining, autocast, train_locally
from fedlingua.training.objective import corpus_nll

EVALUATION_TOKENS = 3000
"""Padded tokens of one batch when a loss is measured: no gradients, so batches can be large."""


class TranslationClient(NumPyClient):
    """Trains, evaluates and scores for one site. `parameters` are the tensor set's arrays in its order; none means: the site's own.

    `folder` is the site's private directory; a method whose tensors do not travel keeps each round's there.
    """

    def __init__(self, site: str, text: SiteText, trainable: Trainable, settings: Settings, folder: Path) -> None:
        self.site, self.text, self.trainable, self.settings, self.folder = site, text, trainable, settings, folder
        torch.set_num_threads(settings.threads)

    def fit(self, parameters: NDArrays, config: dict[str, Scalar]) -> tuple[NDArrays, int, dict[str, Scalar]]:
        """Train one round from `parameters`; give back what travels, the number of sentences, and the training loss as sums."""
        number = int(config["round"])
        self._take(parameters, number - 1)
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
            self.trainable.tensor_set.names,
            self._examples("train"),
            self.trainable.backbone.codec,
            how,
            seed,
        )
        trained = read_tensors(self.trainable.model, self.trainable.tensor_set)
        if self.settings.how.travels:
            return list(trained.values()), result.num_examples, dataclasses.asdict(result)
        self._keep(trained, number)
        return [], result.num_examples, dataclasses.asdict(result)

    def evaluate(self, parameters: NDArrays, config: dict[str, Scalar]) -> tuple[float, int, dict[str, Scalar]]:
        """(nll a token, sentences, sums) on the dev text; round 0 is the backbone as it was published."""
        started = time.monotonic()
        number = int(config["round"])
        if number == 0:
            with self.trainable.as_base():
                nll_sum, num_tokens = self._dev_nll()
        else:
            self._take(parameters, number)
            nll_sum, num_tokens = self._dev_nll()
        sentences = len(self.text.splits["dev"])
        sums: dict[str, Scalar] = {
            "nll_sum": nll_sum,
            "num_tokens": num_tokens,
            "num_examples": sentences,
            "seconds": time.monotonic() - started,
        }
        return nll_sum / num_tokens, sentences, sums

    def finish(self, parameters: NDArrays, number: int) -> tuple[ScoreSums, ScoreSums]:
        """Translate the scored split with the best round's tensors and with the base: (its sums, the base's sums).

        The site keeps both translations and, when adapters were trained, the adapter: it can translate on its own from now on.
        """
        pairs = self.text.splits["test" if self.settings.score_split == "test" else "dev"]
        with self.trainable.as_base():
            base = self._translate(pairs)
        hypotheses = base
        trained = self.settings.how.trains and number > 0
        if trained:
            self._take(parameters, number)
            hypotheses = self._translate(pairs)
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = ["source\treference\tbase\thypothesis"]
        lines += ["\t".join((*pair, *both)) for pair, *both in zip(pairs, base, hypotheses, strict=True)]
        (self.folder / "translations.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        if trained and self.trainable.adapter:
            about = {
                "site": self.site,
                "direction": str(self.text.direction),
                "round": number,
                "backbone": self.settings.backbone,
                "backbone_fingerprint": self.trainable.backbone.fingerprint,
            }
            tensors = read_tensors(self.trainable.model, self.trainable.tensor_set)
            save_adapter(self.folder / "adapter", tensors, self.trainable.adapter, about)
        references = [pair.target for pair in pairs]
        target = self.text.direction.target
        return score_sums(hypotheses, references, target), score_sums(base, references, target)

    def _take(self, parameters: NDArrays, number: int) -> None:
        """Put the tensors to start from into the model: those that came, or the site's own of round `number`."""
        names = self.trainable.tensor_set.names
        tensors: Tensors = dict(zip(names, parameters, strict=True)) if parameters else self._kept(number)
        write_tensors(self.trainable.model, tensors)

    def _keep(self, tensors: Tensors, number: int) -> None:
        (self.folder / "rounds").mkdir(parents=True, exist_ok=True)
        aside = self.folder / "rounds" / f".{number:04d}"
        save_file(dict(tensors), aside)
        aside.rename(self.folder / "rounds" / f"{number:04d}.safetensors")

    def _kept(self, number: int) -> Tensors:
        """The site's own tensors after round `number`; where it failed in a round, those of the last one before."""
        for past in range(number, 0, -1):
            file = self.folder / "rounds" / f"{past:04d}.safetensors"
            if file.is_file():
                return load_file(file)
        return self.trainable.initial

    def _examples(self, split: str) -> list[Example]:
        pairs = self.text.splits[split]  # type: ignore[index]
        return encode_pairs(pairs, self.text.direction, self.trainable.backbone.codec, self.settings.max_tokens)

    def _dev_nll(self) -> tuple[float, int]:
        model, codec = self.trainable.model, self.trainable.backbone.codec
        groups = by_tokens(self._examples("dev"), EVALUATION_TOKENS, Random(0))
        with autocast(model, self.settings.precision):
            return corpus_nll(model, [pad(group, codec).to(model.device) for group in groups])

    def _translate(self, pairs: Sequence[Pair]) -> list[str]:
        return translate(
            self.trainable.model,
            self.trainable.backbone.codec,
            [pair.source for pair in pairs],
            self.text.direction,
            self.settings.beam,
            self.settings.max_tokens,
            self.settings.max_decode_tokens,
        )
