"""Training a small backbone from nothing."""

import math
import os
import random
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.utils import logging

from fedlingua.backbones.codec import Codec
from fedlingua.pretraining.settings import PretrainSettings
from fedlingua.training.batches import Example, TrainingExample, by_tokens, pad
from fedlingua.training.objective import corpus_nll


@dataclass(frozen=True)
class Progress:
    """Where a pre-training stands: `done` in 0..1, losses in nats a token."""

    step: int
    done: float
    seconds: float
    train_loss: float
    dev_loss: float


@dataclass(frozen=True)
class Material:
    """A model with random weights, and what it is trained on and watched by."""

    model: PreTrainedModel
    codec: Codec
    train: Sequence[TrainingExample]
    dev: Sequence[Example]


def pretrain(
    make: Callable[[Path], Material],
    settings: PretrainSettings,
    directory: Path,
    report: Callable[[Progress], None],
) -> Progress:
    """Train a model and leave it in `directory` as transformers reads it.

    make: trains the tokenizer, leaves it in the directory that it is given, and draws the model. The weights kept are an exponential
    average over the steps, which a short schedule without a cool-down gains from. All is written beside the directory and renamed at the
    end: an interrupted training leaves nothing half-written.
    """
    torch.set_num_threads(settings.threads)
    scratch = directory.with_name(f".{directory.name}.{os.getpid()}")
    try:
        material = make(scratch)
        last = _train(material, settings, report)
        logging.disable_progress_bar()
        material.model.save_pretrained(scratch)
        directory.parent.mkdir(parents=True, exist_ok=True)
        if directory.exists():
            shutil.rmtree(directory)
        scratch.rename(directory)
        return last
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _train(material: Material, settings: PretrainSettings, report: Callable[[Progress], None]) -> Progress:
    model, codec = material.model, material.codec
    rng = random.Random(settings.seed)
    torch.manual_seed(settings.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    average = {name: value.detach().clone() for name, value in model.named_parameters()}
    dev_batches = [pad(batch, codec) for batch in by_tokens(material.dev, settings.tokens_per_batch * 2, random.Random(0))]
    every = max(1, min(500, settings.steps // 10))
    started, step, window_nll, window_tokens = time.monotonic(), 0, 0.0, 0
    model.train()

    def progress() -> Progress:
        swapped = _swap(model, average)
        nll, tokens = corpus_nll(model, dev_batches)
        _swap(model, swapped)
        seconds = time.monotonic() - started
        done = max(step / settings.steps, seconds / 60 / settings.minutes if settings.minutes else 0.0)
        return Progress(step, min(done, 1.0), seconds, window_nll / max(window_tokens, 1), nll / max(tokens, 1))

    def ended() -> bool:
        return step >= settings.steps or (settings.minutes > 0 and time.monotonic() - started > 60 * settings.minutes)

    while not ended():
        for group in by_tokens(material.train, settings.tokens_per_batch, rng):
            step += 1
            for parameters in optimizer.param_groups:
                parameters["lr"] = _inverse_square_root(step, settings)
            with torch.autocast("cpu", torch.bfloat16, enabled=settings.precision == "bf16"):
                nll, tokens = pad([one.drawn(rng) for one in group], codec).nll(model, settings.label_smoothing)
            (nll / tokens).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            # The average follows closely at first and settles at the decay asked for.
            decay = min(settings.weight_average, (1 + step) / (10 + step))
            with torch.no_grad():
                for name, value in model.named_parameters():
                    average[name].lerp_(value, 1 - decay)
            window_nll, window_tokens = window_nll + float(nll.detach()), window_tokens + tokens
            if step % every == 0 and not ended():
                report(progress())
                window_nll, window_tokens = 0.0, 0
            if ended():
                break
    last = progress()
    report(last)
    _swap(model, average)
    model.eval()
    return last


def _inverse_square_root(step: int, settings: PretrainSettings) -> float:
    warmup = max(settings.warmup_steps, 1)
    return settings.learning_rate * min(step / warmup, math.sqrt(warmup / step))


@torch.no_grad()
def _swap(model: nn.Module, values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Put `values` into the model and give back what stood there."""
    before = {}
    for name, parameter in model.named_parameters():
        before[name] = parameter.detach().clone()
        parameter.copy_(values[name])
    return before
