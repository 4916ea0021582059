"""One round of local training at a site, the same for every task.

`SiteClient.train` is the round: load the received tensors into the frozen backbone, train them on the site's own text, read the
update. `fit` and `evaluate`, Flower's interface with lists of arrays, are thin wrappers for use without a server. The client of each
task defines how a model is scored (clients/translation.py, clients/masked_language.py).
"""

import dataclasses
import logging
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import numpy as np
import torch
from flwr.client import NumPyClient
from flwr.common import NDArrays, Scalar

from fedlingua.common.errors import ExchangeError
from fedlingua.common.files import json_hash
from fedlingua.consent.ledger import Ledger
from fedlingua.corpora.split import Split
from fedlingua.corpora.texts import SiteText
from fedlingua.evaluation.sums import Scores
from fedlingua.evaluation.text_metrics import Counts
from fedlingua.exchange.delivery import Second, deliver
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.protocol import START, Stage, Task
from fedlingua.exchange.received import ReceivedFiles
from fedlingua.exchange.round_files import RoundFiles
from fedlingua.exchange.tensor_sets import read_joined, read_tensors, write_tensors
from fedlingua.exchange.tensors import NOTHING, NamedTensors, Tensors, check_tensors
from fedlingua.exchange.trainable import Trainable
from fedlingua.layers.order import layers_of
from fedlingua.personalization.choice import BASE, FEDERATION
from fedlingua.personalization.phase import CHOOSING, Kept, SiteModel, choose_model
from fedlingua.personalization.phase import FOLDER as CHOICE
from fedlingua.settings.checks import for_round
from fedlingua.settings.config import Settings
from fedlingua.training.batches import Example, TrainingExample
from fedlingua.training.head import HeadUse
from fedlingua.training.loop import LocalResult, steps_of_round, train_locally
from fedlingua.training.objective import examples_nll
from fedlingua.training.site_examples import EXAMPLE_MAKERS

_log = logging.getLogger("fedlingua.client")
T = TypeVar("T")


class SiteClient(NumPyClient):
    """A client that trains, evaluates and scores for one site.

    Args:
        texts: Site of origin -> text: the site's own and, if text is mixed, its share of other sites' texts; for a pooled site the
            texts of all its sites.
        trainable: The backbone with its tensor sets. Every call overwrites the tensors that an earlier one trained.
        settings: The run's settings as they take effect at this site.
        folder: The site's private folder.
        base_results: The machine's folder of the untrained backbone's results on texts, shared by all runs.
    """

    def __init__(
        self,
        site: str,
        texts: Mapping[str, SiteText],
        trainable: Trainable,
        settings: Settings,
        folder: Path,
        base_results: Path,
    ) -> None:
        self.site, self.texts, self.trainable, self.settings = site, texts, trainable, settings
        self.folder, self.base_results = folder, base_results
        self.own_rounds, self.optimizers = RoundFiles(folder / "rounds"), RoundFiles(folder / "optimizer")
        self.layers = layers_of(settings)
        self.files = {name: RoundFiles(folder / name) for name in self.layers.folders}
        chosen, first = trainable.tensor_set, trainable.sent_first
        self.received = ReceivedFiles(folder / "received", chosen, first, settings.code_down, settings.rounds_at_sites)
        self.note: Callable[[str, bool, float], None] = lambda line, step, done: _log.info("site %s: %s", site, line)
        """Called after the last round with a line of progress, whether the line begins or ends a step, and the share that is done, 0-1."""
        self.state_files = RoundFiles(folder / "state")
        """What a client of one's own needs of one round in the next: load(task.own), save(..., (task.round, task.attempt))."""
        self.node: Any = None
        """The node that got the server's request (clients/node.py), if there is one."""
        self.ledger = Ledger(folder / "ledger.json")
        """What the site's replies have cost of its budget; a deployed site has one for all runs."""
        torch.set_num_threads(settings.threads)

    # --- A round ----------------------------------------------------------------------------------------------------

    def train(self, received: NamedTensors, task: Task) -> tuple[NamedTensors, dict[str, Any]]:
        """Train one round from the received tensors; if there are none, from the site's own tensors of stage `task.own`.

        Returns:
            The update by name, and the sums of training that may leave the site.
        """
        self.forget(task.keep)
        self.start_round(task.round)
        stage = task.round, task.attempt
        optimizer = self.optimizers.load(task.own) if self.settings.optimizer_state == "kept" else None
        self.load(received, task.own)
        seed, this_round = self._seed(task.round), (task.round, self.settings.rounds)
        pulled: dict[str, Any] = {"proximal_mu": task.proximal_mu, "towards": received} if task.proximal_mu else {}

        def train(**how: Any) -> dict[str, Any]:
            return dataclasses.asdict(self._train_model(self.settings, seed, this_round, optimizer, **pulled, **how))

        sums = self.layers.training(self, task, received, optimizer, train)()
        travels = self.trainable.tensor_set if self.settings.how.travels else NOTHING
        update = read_joined(self.trainable.model, travels)
        if optimizer is not None:
            self.optimizers.save(optimizer, stage)
        own = self.trainable.trained.without(NOTHING if self.settings.compares_rounds else travels)
        if own.specs:
            self.own_rounds.save(read_tensors(self.trainable.model, own), stage)
        return update, sums

    def measure(self, received: NamedTensors, task: Task) -> dict[str, Any]:
        """Measure the dev loss, as sums, of the model that the site would use after a round; in round 0, of the published backbone."""
        started = time.monotonic()
        self.start_round(task.round)
        if task.round > 0:
            self.load(received, task.own)
        how, model, codec = self.settings, self.trainable.model, self.trainable.backbone.codec
        with nullcontext() if task.round > 0 else self.trainable.as_base():
            examples, use = self.measured_examples(), HeadUse(how.head_chunk)
            nll_sum, num_tokens = examples_nll(model, codec, examples, how.precision, use)
            self.after_measuring(task.round)
        sentences = sum(len(text.splits["dev"]) for text in self.texts.values())
        sums = {"nll_sum": nll_sum, "num_tokens": num_tokens, "num_examples": sentences}
        return {**sums, "seconds": time.monotonic() - started}

    def load(self, received: NamedTensors, own: Stage) -> None:
        """Load the model that the site would use now: the received tensors, and those of its own of stage `own`."""
        if len(received) < len(self.trainable.trained.specs):
            write_tensors(self.trainable.model, self.own_tensors(own))
        write_tensors(self.trainable.model, received)

    def own_tensors(self, stage: Stage) -> Tensors:
        """Load the site's own tensors of a stage, for START those from which all sites start."""
        return self.trainable.initial if stage == START else self.own_rounds.load(stage)

    def digest_of(self, stage: Stage) -> str:
        """Return a hash of all that the site stores of a stage to train on from."""
        files = {"rounds": self.own_rounds, "optimizer": self.optimizers, "state": self.state_files, **self.files}
        return json_hash({name: each.digest(stage) for name, each in files.items()})

    def forget(self, keep: Collection[Stage]) -> None:
        """Remove the files of all stages except `keep`, those for which the server may still ask."""
        for files in (self.own_rounds, self.optimizers, self.state_files, *self.files.values()):
            files.forget(keep)

    # --- The round by Flower's interface: lists of arrays in the order of the travelling tensor set ------------------

    _last: Stage = START
    """The stage at which `fit` stored what the site keeps to itself."""

    def get_parameters(self, config: dict[str, Scalar]) -> NDArrays:
        """Return the tensors from which every site starts."""
        return list(self.trainable.sent_first.values())

    def fit(self, parameters: NDArrays, config: dict[str, Scalar]) -> tuple[NDArrays, int, dict[str, Scalar]]:
        """Train one round; return the update, the number of examples and the sums.

        Args:
            parameters: As many arrays as `get_parameters` returns, or none for the tensors that are here.
            config: "round", by default 1, on which random draws and the learning rate depend; "proximal-mu", by default 0;
                "learning-rate" and "local-epochs", by default the client's.

        Raises:
            ExchangeError: Another key in `config`, or another number of arrays; a shape is wrong, or a number not finite.
        """
        if self.layers.needs_run:
            raise ExchangeError(self.layers.needs_run)
        task, usual = self._task(config), self.settings
        try:
            self.settings = for_round(usual, task.by_round)
            update, sums = self.train(self._named(parameters), task)
        finally:
            self.settings = usual
        self._last = task.round, task.attempt
        number = sum(len(text.splits["train"]) for text in self.texts.values())
        return [tensor.copy() for tensor in update.values()], sums.get("num_examples", number), sums

    def evaluate(self, parameters: NDArrays, config: dict[str, Scalar]) -> tuple[float, int, dict[str, Scalar]]:
        """Measure the dev loss; return it in nats per token, the number of sentences, and the sums. Arguments and errors: as `fit`."""
        sums = self.measure(self._named(parameters), self._task(config))
        if not sums["num_tokens"]:
            raise ExchangeError("there is no dev text to measure: of_pairs was given no dev")
        return sums["nll_sum"] / sums["num_tokens"], sums["num_examples"], sums

    def _named(self, parameters: NDArrays) -> Tensors:
        wanted = self.trainable.tensor_set
        if parameters and len(parameters) != len(wanted.specs):
            raise ExchangeError(f"got {len(parameters)} arrays; wanted {len(wanted.specs)}, as get_parameters returns them")
        named = {name: np.asarray(array, np.float32) for name, array in zip(wanted.names, parameters, strict=False)}
        return check_tensors(named, wanted) if named else {}

    def _task(self, config: dict[str, Scalar]) -> Task:
        task = Task(self.site, "", 1, int(config.get("round", 1)), self._last, keep=(self._last,))
        return task.with_config(config, "round")

    # --- What a task defines ----------------------------------------------------------------------------------------

    @abstractmethod
    def finish(self, received: NamedTensors, number: int, own: Stage) -> Mapping[str, Scores]:
        """Choose the model that the site keeps, and store it with everything needed to use it without the server.

        Returns:
            Text -> score sums of the kept model and of the base; if the site chose, also of the other models.
        """

    def count_chrf(self, base: bool, second: Second | None = None) -> Counts | None:
        """Count chrF of the dev text as translated by the base or the current model, in an ensemble if there is a second one; None if the
        task does not translate."""
        return None

    def start_round(self, number: int) -> None:
        """Discard what an earlier attempt at this round left behind."""

    def after_measuring(self, number: int) -> None:
        """Inspect the model that the site would use after a round; called while the model holds its tensors."""

    @property
    def own_texts(self) -> Mapping[str, SiteText]:
        """The texts to score: only the site's own, even if text is mixed, or all texts of a pooled site."""
        return {self.site: self.texts[self.site]} if self.site in self.texts else self.texts

    def deliver(self, number: int, candidate: str = FEDERATION, second: Second | None = None) -> None:
        """Store the model's current tensors, and an ensemble's second model, with everything needed to use them."""
        direction = str(next(iter(self.own_texts.values())).direction)
        choice = {"kept": candidate} if self.settings.chooses else {}
        about = {"site": self.site, "direction": direction, "round": number, **choice}
        deliver(self.folder, self.trainable, self.settings, about, second)

    @cached_property
    def chooses(self) -> bool:
        """Whether the site chooses the model that it keeps; it cannot without dev text."""
        return self.settings.chooses and any(text.splits["dev"] for text in self.texts.values())

    def score_models(self, number: int, score: Callable[[Second | None], T]) -> tuple[dict[str, T], Kept | None]:
        """Score the federation's model, which is loaded; if the site chooses, also what it keeps and what that is compared with.

        The model that the site keeps is stored; before the choice the federation's is, in case the phase is interrupted.

        Args:
            score: Scores the current model, in an ensemble if it is given a second one.

        Returns:
            Candidate -> result of `score`, without the base's; and what the site chose, None if it takes the federation's model.
        """
        self.deliver(number)
        if not self.chooses:
            return {FEDERATION: score(None)}, None
        federated = read_tensors(self.trainable.model, self.trainable.trained)
        dev, count_chrf = self.examples("dev"), self.count_chrf
        text = {name: [str(text.direction), text.splits["train"], text.splits["dev"]] for name, text in self.texts.items()}
        alone = None if self.settings.client else self.base_results.with_name("alone")  # a class of one's own may train otherwise
        of = self.site, self.trainable, self.settings, dev, self._train_model, count_chrf, self.note
        site = SiteModel(*of, json_hash([*text.items()]), alone)
        last_rounds = self.received.last_rounds(number) if self.settings.rounds_at_sites > 1 else []
        result = choose_model(site, federated, last_rounds, number, self.folder / CHOICE)
        tensors_of, second = result.models[result.name]
        write_tensors(self.trainable.model, tensors_of())
        self.deliver(number, result.name, second)
        scored = dict[str, T]()
        for place, (name, (tensors_of, second)) in enumerate(result.models.items()):
            if name != BASE:
                self.note(f"scores {name}", False, CHOOSING + (1 - CHOOSING) * place / len(result.models))
                write_tensors(self.trainable.model, tensors_of())
                scored[name] = score(second)
        return scored, result

    # --- Examples ---------------------------------------------------------------------------------------------------

    @cached_property
    def training_texts(self) -> list[Sequence[TrainingExample]]:
        make, codec = EXAMPLE_MAKERS[self.settings.task].trained, self.trainable.backbone.codec
        return [make(text, "train", codec, self.settings) for text in self.texts.values()]

    def examples(self, split: Split) -> list[Example]:
        """Return the examples of a split, in the form used to measure the model."""
        make, codec = EXAMPLE_MAKERS[self.settings.task].measured, self.trainable.backbone.codec
        return [example for text in self.texts.values() for example in make(text, split, codec, self.settings)]

    def step_sizes(self, number: int) -> Counter[int]:
        """Count the optimizer steps of a round by the number of their examples."""
        steps = steps_of_round(self.settings, self.training_texts, self._seed(number), number)
        return Counter(sum(map(len, step)) for step in steps)

    def _seed(self, number: int) -> str:
        """Return the seed of a round's training."""
        return f"{self.settings.seed}/{self.site}/{number}"

    def _train_model(
        self,
        settings: Settings,
        seed: str,
        this_round: tuple[int, int],
        optimizer: dict[str, Numbers] | None = None,
        texts: Sequence[Sequence[TrainingExample]] | None = None,
        **how: Any,
    ) -> LocalResult:
        """Train the current model as one round does. texts: Those to train on, by default the site's. how: As in `train_locally`."""
        model, names, codec = self.trainable.model, self.trainable.trained.names, self.trainable.backbone.codec
        texts = self.training_texts if texts is None else texts
        return train_locally(model, names, texts, codec, settings, seed, optimizer, this_round=this_round, **how)

    def measured_examples(self) -> Sequence[Example]:
        """Return the dev examples that `measure` uses, the same in every round and for every seed."""
        examples, share = self.examples("dev"), self.settings.evaluate_share
        return examples if share == 1 else Random(f"{self.site}/evaluate").sample(examples, max(1, round(share * len(examples))))
