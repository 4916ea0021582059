"""A site's round under differential privacy: train with noise, and enter the cost in the ledger before any result leaves the site."""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file

from fedlingua.common.files import sha256
from fedlingua.consent.ledger import Ledger
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.protocol import Task
from fedlingua.exchange.tensor_sets import read_tensors, write_tensors
from fedlingua.exchange.tensors import NamedTensors, Tensors, digest_of, save_tensors
from fedlingua.exchange.trainable import Trainable
from fedlingua.privacy.clipping import PrivateSteps
from fedlingua.privacy.noise_shares import SEED
from fedlingua.settings.config import Settings
from fedlingua.training.loop import LocalResult

_log = logging.getLogger("fedlingua.client")


@dataclass(frozen=True)
class PrivateTraining:
    """A site's training with noise."""

    site: str
    trainable: Trainable
    settings: Settings
    folder: Path
    ledger: Ledger

    def train(
        self, train: Callable[..., LocalResult], received: NamedTensors, task: Task, optimizer: dict[str, Numbers] | None
    ) -> tuple[LocalResult, Tensors]:
        """Train the current model with noise and enter the cost in the ledger; raise ExchangeError if it is more than is allowed.

        The result is stored first. A repeated request, as in a resumed run, gets the stored result again at no further cost.

        Args:
            train: Trains the model for a round; takes the steps' clipping and noise as `private`.
            optimizer: Adam's state, if the site keeps it; updated in place.

        Returns:
            The sums of training; under `dp.noise = "shares"` also the sums of clipped gradients and, under SEED, the seed of their noise.
        """
        settings, model = self.settings, self.trainable.model
        asked = digest_of(f"{task.run}/{self.site}/{task.round}/{task.own}/{settings.hash()}", received)
        entry = self.ledger.of_round(settings, task.run, task.round)
        file = self.folder / "private" / f"{task.round:04d}-{asked[:32]}.safetensors"
        if file.is_file():
            stored = load_file(file)
            write_tensors(model, _under("model/", stored))
            if optimizer is not None:
                optimizer.update(_under("optimizer/", stored))
            result = LocalResult(0.0, 0, 0, settings.local_epochs, 0.0)
        else:
            self.ledger.check_round(entry, settings)
            sums: dict[str, torch.Tensor] | None = {} if settings.shares_noise else None
            noise, by_document = entry.noise if sums is None else 0.0, settings.dp_unit == "document"
            result = train(private=PrivateSteps(entry.share, settings.dp_clip, noise, sums, by_document))
            results = {"model/": read_tensors(model, self.trainable.trained), "optimizer/": optimizer or {}}
            if sums is not None:
                seed = np.frombuffer(os.urandom(32), np.uint8)
                results = {"clipped/": {**{name: each.cpu().numpy() for name, each in sums.items()}, SEED: seed}}
            stored = {f"{kind}{name}": each for kind, named in results.items() for name, each in named.items()}
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            save_tensors(stored, file)
            for old in file.parent.glob("*.safetensors"):
                if int(old.name[:4]) < task.round - 1:  # the server cannot request it again
                    old.unlink()
        entry = replace(entry, key=sha256(file))  # keyed by the result that is sent: training again gives another result
        self.ledger.enter(entry, partial(self.ledger.check_round, settings=settings))
        _log.info("site %s: %s: epsilon %.3g is spent in all", self.site, entry.what, self.ledger.spent)
        return result, _under("clipped/", stored)


def _under(prefix: str, tensors: NamedTensors) -> Tensors:
    """Return the tensors whose names begin with the prefix, and remove it from the names."""
    return {name.removeprefix(prefix): each for name, each in tensors.items() if name.startswith(prefix)}
