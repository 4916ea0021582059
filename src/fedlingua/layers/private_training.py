"""A site's round under differential privacy: train with noise, and enter the cost in the ledger before any result leaves the site."""

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import load_file

from fedlingua.common.files import sha256
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.protocol import Task
from fedlingua.exchange.tensors import NamedTensors, Tensors, digest_of, save_tensors
from fedlingua.layers.layer import Incoming, Layer, Outgoing, Site
from fedlingua.privacy.noise_shares import SEED
from fedlingua.settings.config import Settings

if TYPE_CHECKING:
    import torch

_log = logging.getLogger("fedlingua.client")


class PrivateTraining(Layer):
    """A site's training with noise (`dp.epsilon`). Only its steps and seconds leave the site, since no noise covers its loss."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.shares: NamedTensors = {}
        """Under `dp.noise = "shares"`, what the last trained round adds to a secure sum."""
        if settings.shares_noise:
            self.needs_run = "dp.noise = 'shares' needs a secure sum, where shares add up; outside of a run give 'site'"

    def reply(self, incoming: Incoming) -> Incoming:
        incoming.has_loss = False
        return incoming

    def training(
        self, site: Site, task: Task, received: NamedTensors, optimizer: dict[str, Numbers] | None, train: Callable[..., Any]
    ) -> Callable[..., Any]:
        return partial(self._train, site, task, received, optimizer, train)

    def update(self, site: Site, task: Task, going: Outgoing) -> Outgoing:
        return replace(going, update=self.shares) if self.shares else going

    def _train(
        self, site: Site, task: Task, received: NamedTensors, optimizer: dict[str, Numbers] | None, train: Callable[..., Any]
    ) -> dict[str, Any]:
        """Train the current model with noise and enter the cost in the ledger; raise ExchangeError if it is more than is allowed.

        The result is stored first. A repeated request, as in a resumed run, gets the stored result again at no further cost.

        Args:
            train: Trains the model for a round; takes the steps' clipping and noise as `private`.
            optimizer: Adam's state, if the site keeps it; updated in place.
        """
        from fedlingua.exchange.tensor_sets import read_tensors, write_tensors
        from fedlingua.privacy.clipping import PrivateSteps

        settings, ledger, model = self.settings, site.ledger, site.trainable.model
        asked = digest_of(f"{task.run}/{site.site}/{task.round}/{task.own}/{settings.hash()}", received)
        entry = ledger.of_round(settings, task.run, task.round)
        file = site.folder / "private" / f"{task.round:04d}-{asked[:32]}.safetensors"
        if file.is_file():
            stored = load_file(file)
            write_tensors(model, _under("model/", stored))
            if optimizer is not None:
                optimizer.update(_under("optimizer/", stored))
            done = {"steps": settings.local_epochs, "seconds": 0.0}
        else:
            ledger.check_round(entry, settings)
            sums: dict[str, torch.Tensor] | None = {} if settings.shares_noise else None
            noise, by_document = entry.noise if sums is None else 0.0, settings.dp_unit == "document"
            steps = PrivateSteps(entry.share, settings.dp_clip, noise, sums, by_document)
            trained = train(private=steps, texts=documents_of(site) if by_document else None)
            done = {name: trained[name] for name in ("steps", "seconds")}
            results = {"model/": read_tensors(model, site.trainable.trained), "optimizer/": optimizer or {}}
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
        ledger.enter(entry, partial(ledger.check_round, settings=settings))
        _log.info("site %s: %s: epsilon %.3g is spent in all", site.site, entry.what, ledger.spent)
        self.shares = _under("clipped/", stored)
        return done


def documents_of(site: Site) -> list[list[Any]]:
    """Return a site's training examples by document."""
    documents = dict[tuple[str, str], list[Any]]()
    for (name, text), examples in zip(site.texts.items(), site.training_texts, strict=True):
        for pair, example in zip(text.splits["train"], examples, strict=True):
            documents.setdefault((name, text.documents[pair]), []).append(example)
    return list(documents.values())


def _under(prefix: str, tensors: NamedTensors) -> Tensors:
    """Return the tensors whose names begin with the prefix, and remove it from the names."""
    return {name.removeprefix(prefix): each for name, each in tensors.items() if name.startswith(prefix)}
