"""A site's local trainer, whatever the model is for: take what came, train it on the site's own text, answer in sums.

One round, told from the site: take the tensors that came, put them into the frozen backbone, train them on the site's examples with an
optimiser made anew, give them back. What the examples are, the task says (fedlingua/training/site_examples.py); how the result is scored,
a task's own client (clients/translation.py, clients/masked_language.py).
"""

import dataclasses
import time
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from random import Random

import torch
from flwr.client import NumPyClient
from flwr.common import NDArrays, Scalar

from clients.sending import Sending
from clients.signature import Consent, Signature, signature
from clients.stage_files import StageFiles
from fedlingua.common.errors import ExchangeError
from fedlingua.corpora.split import Split
from fedlingua.corpora.texts import SiteText
from fedlingua.evaluation.sums import TextSums
from fedlingua.exchange.delivery import deliver
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.protocol import PROXIMAL_MU, Stage
from fedlingua.exchange.tensor_sets import read_tensors, write_tensors
from fedlingua.exchange.tensors import Tensors
from fedlingua.exchange.trainable import Trainable
from fedlingua.settings.config import Settings
from fedlingua.training.batches import Example, TrainingExample
from fedlingua.training.head import HeadUse
from fedlingua.training.loop import LocalResult, LocalTraining, train_locally
from fedlingua.training.objective import examples_nll
from fedlingua.training.parallel.job import Job
from fedlingua.training.parallel.launch import train_in_processes
from fedlingua.training.site_examples import EXAMPLE_MAKERS, ExampleMaker


class SiteClient(NumPyClient):
    """Trains and evaluates for one site. `parameters` are the arrays that travel, in their set's order; none means: the site's own.

    `texts` is the site's text under its name, besides what it holds of other sites' where text is mixed; or those of all sites that are
    pooled in it. `folder` is the site's private directory; what trains and does not travel is kept there by round and attempt, and what a
    selection compares with; `base_results` is the machine's, for what the untrained backbone makes of the text in any run.
    """

    def __init__(
        self, site: str, texts: Mapping[str, SiteText], trainable: Trainable, settings: Settings, folder: Path, base_results: Path
    ) -> None:
        self.site, self.texts, self.trainable, self.settings = site, texts, trainable, settings
        self.folder, self.base_results = folder, base_results
        self.own_rounds = StageFiles(folder / "rounds")
        self.optimizers = StageFiles(folder / "optimizer")
        self.sending = Sending(site, settings, trainable.tensor_set, folder)
        torch.set_num_threads(settings.threads)

    # --- What a task says -----------------------------------------------------------------------------------------------------------

    @abstractmethod
    def finish(self, parameters: NDArrays, number: int, own: Stage) -> Mapping[str, tuple[TextSums, TextSums]]:
        """Score the scored split with the best round's tensors and with the base: text -> (its sums, the base's sums).

        What was trained is kept with all that it takes to use it without the server.
        """

    def begins(self, number: int) -> None:
        """A message of a round has come; what was kept of it before, by a server that died since, does not count."""

    def evaluated(self, number: int) -> None:
        """The model holds what the site would use after a round: the moment to look at it."""

    # --- Examples -------------------------------------------------------------------------------------------------------------------

    @cached_property
    def training_texts(self) -> list[Sequence[TrainingExample]]:
        """What the model learns from, text by text."""
        return [self._made.trained(text, "train", self.trainable.backbone.codec, self.settings) for text in self.texts.values()]

    def examples(self, split: Split) -> list[Example]:
        """What the model is measured on, of all the site's texts."""
        codec = self.trainable.backbone.codec
        return [one for text in self.texts.values() for one in self._made.measured(text, split, codec, self.settings)]

    def step_sizes(self) -> list[int]:
        """Examples of each optimiser step of a round, as `fit` takes them."""
        how = LocalTraining.of(self.settings)
        return how.epochs * [sum(map(len, step)) for step in how.steps(self.training_texts, Random(0))]

    @property
    def _made(self) -> ExampleMaker:
        return EXAMPLE_MAKERS[self.settings.task]

    # --- One round ------------------------------------------------------------------------------------------------------------------

    def signature(self, folder: Path, consent: Consent) -> dict[str, Signature]:
        """What the site's clusters are found by, made of the training text before any round; kept in `folder`."""
        return signature(self.site, self.examples("train"), self.trainable, self.settings, folder, consent)

    def fit(self, parameters: NDArrays, config: dict[str, Scalar]) -> tuple[NDArrays, int, dict[str, Scalar]]:
        """Train one round from `parameters`; give back what travels, the number of sentences, and the training loss as sums."""
        number = int(config["round"])
        self.begins(number)
        self.take(parameters, _own(config))
        stage, seed = (number, int(config["attempt"])), f"{self.settings.seed}/{self.site}/{number}"
        kept = self._optimizer_of(_own(config)) if self.settings.optimizer_state == "kept" else None
        result = self._train(seed, kept, (number, self.settings.rounds), float(config.get(PROXIMAL_MU, 0.0)))
        if kept is not None:
            self.optimizers.save(kept, stage)
        trained = read_tensors(self.trainable.model, self.trainable.trained)
        travelling = self.trainable.tensor_set.names if self.settings.how.travels else []
        stays = trained if self.settings.compares_rounds else {n: t for n, t in trained.items() if n not in set(travelling)}
        if stays:
            self.own_rounds.save(stays, stage)
        return [trained[name] for name in travelling], result.num_examples, dataclasses.asdict(result)

    def evaluate(self, parameters: NDArrays, config: dict[str, Scalar]) -> tuple[float, int, dict[str, Scalar]]:
        """(nll a token, sentences, sums) on the dev text; round 0 is the backbone as it came."""
        started = time.monotonic()
        number = int(config["round"])
        self.begins(number)
        if number > 0:
            self.take(parameters, _own(config))
        with nullcontext() if number > 0 else self.trainable.as_base():
            nll_sum, num_tokens = self._dev_nll()
            self.evaluated(number)
        sentences = sum(len(text.splits["dev"]) for text in self.texts.values())
        sums: dict[str, Scalar] = {
            "nll_sum": nll_sum,
            "num_tokens": num_tokens,
            "num_examples": sentences,
            "seconds": time.monotonic() - started,
        }
        return nll_sum / num_tokens, sentences, sums

    def forget(self, keep: Collection[Stage]) -> None:
        """Remove own tensors that will not be asked for any more: a round counts once the server begins the next."""
        self.own_rounds.forget(keep)
        self.optimizers.forget(keep)
        self.sending.forget(keep)

    # --- Tensors --------------------------------------------------------------------------------------------------------------------

    def take(self, parameters: NDArrays, own: Stage) -> None:
        """Put the tensors to start from into the model: the site's own of that round and attempt, and over them those that came."""
        came = self.named(parameters) if parameters else {}
        stays = {} if len(came) == len(self.trainable.trained.specs) else self.kept(own)
        write_tensors(self.trainable.model, {**stays, **came})

    def kept(self, stage: Stage) -> Tensors:
        """The site's own tensors of a round and attempt; of (0, 0) those that everybody starts from.

        Raises:
            ExchangeError: they are not here.
        """
        return self.trainable.initial if stage == (0, 0) else self.own_rounds.load(stage)

    def deliver(self, number: int) -> None:
        """Keep the tensors that the model holds now, with all that it takes to use them."""
        site = {"site": self.site, "direction": str(next(iter(self.own_texts.values())).direction), "round": number}
        deliver(self.folder, self.trainable, self.settings, site)

    @property
    def own_texts(self) -> Mapping[str, SiteText]:
        """Those that the site stands for, in scores too: its own, also where text is mixed, or all that are pooled in it."""
        return {self.site: self.texts[self.site]} if self.site in self.texts else self.texts

    def named(self, arrays: NDArrays) -> Tensors:
        """Arrays in the travelling set's order, by name."""
        return dict(zip(self.trainable.tensor_set.names, arrays, strict=True))

    def _train(
        self, seed: str, kept: dict[str, Numbers] | None, this_round: tuple[int, int], proximal_mu: float = 0.0
    ) -> LocalResult:
        """Train what the model holds: here, or in several processes of this machine."""
        texts = self.training_texts
        if self.settings.processes > 1 and proximal_mu:
            raise ExchangeError(f"{PROXIMAL_MU} = {proximal_mu:g} is trained with in one process; give processes = 1")
        if self.settings.processes > 1:
            tensors = read_tensors(self.trainable.model, self.trainable.trained)
            job = Job(self.settings, tensors, texts, seed, kept, this_round)
            return train_in_processes(self.trainable, job, self.folder / "processes.log")
        names, codec = self.trainable.trained.names, self.trainable.backbone.codec
        how = dataclasses.replace(LocalTraining.of(self.settings), proximal_mu=proximal_mu)
        return train_locally(self.trainable.model, names, texts, codec, how, seed, kept, this_round=this_round)

    def _optimizer_of(self, stage: Stage) -> dict[str, Numbers]:
        """What the optimiser remembered at the end of a round; nothing before the first."""
        return {} if stage == (0, 0) else dict(self.optimizers.load(stage))

    def _dev_nll(self) -> tuple[float, int]:
        model, codec = self.trainable.model, self.trainable.backbone.codec
        examples, share = self.examples("dev"), self.settings.evaluate_share
        if share < 1:  # the same ones in every round and under every seed, so that their losses may be compared
            examples = Random(f"{self.site}/evaluate").sample(examples, max(1, round(share * len(examples))))
        return examples_nll(model, codec, examples, self.settings.precision, HeadUse(self.settings.head_chunk))


def _own(config: dict[str, Scalar]) -> Stage:
    return int(config["own_round"]), int(config["own_attempt"])
