"""Train a small backbone from scratch; a resumed training gives the same bytes as an uninterrupted one."""

import math
import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import logging

from fedlingua.backbones.codec import Codec
from fedlingua.backbones.precision import autocast
from fedlingua.common.devices import check_cuda
from fedlingua.common.errors import BackboneError
from fedlingua.desk.pace import Pace
from fedlingua.desk.pretraining.checkpoints import Checkpoints, MadeOf, Progress, State
from fedlingua.desk.pretraining.material import Material, epoch
from fedlingua.desk.pretraining.settings import PretrainSettings, Watching
from fedlingua.training.batches import TrainingExample, by_tokens, pad
from fedlingua.training.objective import corpus_nll


@dataclass(frozen=True)
class Outcome:
    """All evaluations on the dev text, in order; the evaluation of the kept weights; the number of weights."""

    looks: tuple[Progress, ...]
    chosen: Progress
    num_parameters: int


Score = Callable[[PreTrainedModel, Codec], Mapping[str, float]]
"""(model, codec) -> BLEU of the dev text by direction."""
UNWATCHED = Watching(checkpoint_minutes=0.0)


def pretrain(
    make: Callable[[Path], Material],
    settings: PretrainSettings,
    directory: Path,
    report: Callable[[Progress], None] = lambda progress: None,
    watching: Watching = UNWATCHED,
    made_of: MadeOf = MappingProxyType({}),
    score: Score | None = None,
    describe: Callable[[Path, Outcome], None] = lambda folder, outcome: None,
    note: Callable[[str], None] = lambda text: None,
) -> Outcome:
    """Train a model and save it in `directory`, where transformers can load it.

    The saved weights are an exponential moving average over the steps, which improves a short schedule without a cool-down.
    Files are written beside the directory and renamed at the end: an interrupted training leaves nothing half-written, and is
    resumed from its last checkpoint if there is one.

    Args:
        make: trains the tokenizer, saves it in the directory that it is given, and makes the model with random weights.
        made_of: determines the bytes, and must be the same when a training is resumed.
        score: translates the dev text; None: it is not translated. describe: writes files beside the weights.
        note: takes messages and progress for the user.

    Raises:
        BackboneError: no such device, nothing to train on, or no dev text to choose the best weights by.
        ConfigError: the interrupted training had another recipe, text or library.
        RunError: another process trains this backbone.
    """
    check_cuda(settings.device)
    torch.set_num_threads(settings.threads)
    checkpoints = Checkpoints(directory, made_of, enabled=watching.checkpoint_minutes > 0)
    with checkpoints.locked(), Pace(note) as pace:
        state, passed_over = checkpoints.newest()
        for wrong in passed_over:
            note(wrong)
        material = make(checkpoints.model)
        if not any(material.train):
            raise BackboneError("there is nothing to train on: all text that was kept watches; give [base] a smaller dev")
        if watching.keep == "best" and not material.dev:
            raise BackboneError(
                "[watching] keep = 'best' chooses by the dev loss, and the dev text has no sentence of at most "
                f"max-tokens = {settings.max_tokens}; give [base] a larger dev, more text, or keep = 'last'"
            )
        training = _Training(material, settings, watching, score)
        if state is not None:
            training.restore(state)
            note(f"resumes after step {state['step']}, from {checkpoints.folder}")
        outcome = training.run(report, checkpoints.save, pace)
        logging.disable_progress_bar()
        material.model.save_pretrained(checkpoints.model)
        try:
            describe(checkpoints.model, outcome)
        finally:  # the weights are whole, whatever becomes of their card
            if directory.exists():
                shutil.rmtree(directory)
            checkpoints.model.rename(directory)
    return outcome


class _Training:
    """The weights, their average, the optimizer, and the progress."""

    def __init__(self, material: Material, settings: PretrainSettings, watching: Watching, score: Score | None) -> None:
        self.settings, self.watching, self.score = settings, watching, score
        self.model, self.codec, self.train = material.model, material.codec, material.train
        self.model.to(torch.device(settings.device))  # type: ignore[arg-type]  # transformers' decorator hides the argument
        self.rng = random.Random(settings.seed)
        torch.manual_seed(settings.seed)
        self.parameters = dict(self.model.named_parameters())
        self.optimizer = torch.optim.AdamW(
            self.parameters.values(), lr=settings.learning_rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True
        )
        self.average = {name: value.detach().clone() for name, value in self.parameters.items()}
        self.best: dict[str, Tensor] = {}
        dev_batches = by_tokens(material.dev, settings.tokens_per_batch * 2, random.Random(0))
        self.dev_batches = [pad(batch, self.codec).to(self.model.device) for batch in dev_batches]
        self.every = self.watching.evaluate_every or max(1, min(500, settings.steps // 10))
        self.step, self.batches_of_epoch, self.epoch_began = 0, 0, self.rng.getstate()
        self.window_nll, self.window_tokens = 0.0, 0
        self.looks: list[Progress] = []
        self.started = self.saved_at = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def done(self) -> float:
        """Share of the training, 0 to 1."""
        settings = self.settings
        return min(1.0, max(self.step / settings.steps, self.seconds / 60 / settings.minutes if settings.minutes else 0.0))

    def run(self, report: Callable[[Progress], None], save: Callable[[State], None], pace: Pace) -> Outcome:
        """Take all remaining steps, and put the weights to save into the model."""
        self.model.train()
        pace.at(self.step, self.settings.steps, self.done)
        while self.done < 1:
            for group in self._rest_of_epoch():
                self._take_step(group)
                pace.at(self.step, self.settings.steps, self.done, **self._losses())
                if self.done >= 1:
                    break
                if self.step % self.every == 0:
                    report(self._look())
                minutes = self.watching.checkpoint_minutes
                if minutes and time.monotonic() - self.saved_at > 60 * minutes:
                    save(self.state())
                    self.saved_at = time.monotonic()
        report(self._look())
        _swap(self.parameters, self.best or self.average)
        self.model.eval()
        chosen = min(self.looks, key=lambda look: look.dev_loss) if self.best else self.looks[-1]
        return Outcome(tuple(self.looks), chosen, sum(value.numel() for value in self.parameters.values()))

    def _rest_of_epoch(self) -> Iterator[list[TrainingExample]]:
        """Yield this epoch's batches that are not yet taken, drawn again as at its beginning; in a new epoch all of them."""
        now = self.rng.getstate()
        if self.batches_of_epoch:
            self.rng.setstate(self.epoch_began)
        else:
            self.epoch_began = now
        examples = epoch(self.train, self.settings.sampling_temperature, self.rng)
        batches = list(by_tokens(examples, self.settings.tokens_per_batch, self.rng))
        if self.batches_of_epoch:
            self.rng.setstate(now)
        for batch in batches[self.batches_of_epoch :]:
            self.batches_of_epoch += 1
            yield batch
        self.batches_of_epoch = 0

    def _take_step(self, group: Sequence[TrainingExample]) -> None:
        settings = self.settings
        self.step += 1
        warmup = max(settings.warmup_steps, 1)
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = settings.learning_rate * min(self.step / warmup, math.sqrt(warmup / self.step))
        with autocast(self.model, settings.precision):
            batch = pad([example.drawn(self.rng) for example in group], self.codec).to(self.model.device)
            nll, tokens = batch.nll(self.model, settings.label_smoothing)
        (nll / tokens).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        # The average follows the weights closely at first and settles at the requested decay.
        decay = min(settings.weight_average, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            for name, value in self.parameters.items():
                self.average[name].lerp_(value, 1 - decay)
        self.window_nll, self.window_tokens = self.window_nll + float(nll.detach()), self.window_tokens + tokens

    def _look(self) -> Progress:
        """Measure the averaged weights on the dev text; BLEU if requested, and always after the last step."""
        swapped = _swap(self.parameters, self.average)
        nll, tokens = corpus_nll(self.model, self.dev_batches)
        translated = self.watching.evaluate_every > 0 or self.watching.keep == "best" or self.done >= 1
        bleu = self.score(self.model, self.codec) if translated and self.score else {}
        self.model.train()
        _swap(self.parameters, swapped)
        train_loss, dev_loss = self.window_nll / max(self.window_tokens, 1), nll / max(tokens, 1)
        self.window_nll, self.window_tokens = 0.0, 0
        if self.watching.keep == "best" and dev_loss < min((look.dev_loss for look in self.looks), default=math.inf):
            self.best = {name: value.clone() for name, value in self.average.items()}
        self.looks.append(Progress(self.step, self.done, self.seconds, train_loss, dev_loss, bleu))
        return self.looks[-1]

    def _losses(self) -> dict[str, float]:
        """Return the training loss since the last evaluation, and the dev loss at it."""
        dev = {"dev_loss": self.looks[-1].dev_loss} if self.looks else {}
        return {"train_loss": self.window_nll / max(self.window_tokens, 1), **dev}

    def state(self) -> State:
        """Return everything that the next step depends on, and the evaluations so far."""
        cuda = {"cuda": torch.cuda.get_rng_state()} if self.settings.device == "cuda" else {}
        return {
            **{name: getattr(self, name) for name in _COUNTERS},
            "seconds": self.seconds,
            "weights": {name: value.detach() for name, value in self.parameters.items()},
            "optimizer": self.optimizer.state_dict(),
            "random": {"python": self.rng.getstate(), "cpu": torch.get_rng_state(), **cuda},
            "looks": [asdict(look) for look in self.looks],
        }

    def restore(self, state: State) -> None:
        for name in _COUNTERS:
            setattr(self, name, state[name])
        device = self.model.device
        _swap(self.parameters, state["weights"])
        for part in ("average", "best"):
            setattr(self, part, {name: value.to(device) for name, value in state[part].items()})
        self.optimizer.load_state_dict(state["optimizer"])
        self.rng.setstate(state["random"]["python"])
        torch.set_rng_state(state["random"]["cpu"])
        if "cuda" in state["random"]:
            torch.cuda.set_rng_state(state["random"]["cuda"])
        self.looks = [Progress(**look) for look in state["looks"]]
        self.started = time.monotonic() - state["seconds"]


_COUNTERS = ("step", "batches_of_epoch", "epoch_began", "window_nll", "window_tokens", "average", "best")
"""Attributes of a training that a checkpoint stores unchanged."""


@torch.no_grad()
def _swap(parameters: Mapping[str, nn.Parameter], values: Mapping[str, Any]) -> dict[str, Tensor]:
    """Put `values` into the parameters and return the previous values."""
    before = {}
    for name, parameter in parameters.items():
        before[name] = parameter.detach().clone()
        parameter.copy_(values[name])
    return before
