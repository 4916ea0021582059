"""The site's half of selecting what is sent, and of learning the threshold that it goes by."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.common import NDArrays

from clients.sending import Sent
from clients.site_client import SiteClient
from clients.slope import MetaStep, RoundsUpdate, random_batches
from fedlingua.backbones.precision import autocast
from fedlingua.common.timing import timed
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.protocol import BATCHES_S, SELECT_S, Stage, Task, Threshold
from fedlingua.selection.deviation import deviations
from fedlingua.training.batches import pad


class SelectingClient(SiteClient):
    """A site's trainer that also chooses what of an update it sends."""

    def selected(self, arrays: NDArrays, came: NDArrays, task: Task) -> tuple[Sent, dict[str, float]]:
        """What the run's rule takes of an update, and seconds. arrays: as `fit` gave them; came: what it began with."""
        seconds: dict[str, float] = {}
        with timed(seconds, SELECT_S):
            previous = self.kept(task.own) if self.settings.compares_rounds else {}
            sent = self.sending.select(self.named(arrays), self.named(came), previous, task)
        return sent, seconds

    def probed(self, arrays: NDArrays, came: NDArrays, task: Task) -> dict[str, float]:
        """The median deviation of an update that waits here, from which the server takes the scale of its threshold, without tensors that
        were 0 or did not move; and seconds.

        arrays, came: as in `selected`. What is asked about the update later is measured here, once.
        """
        seconds: dict[str, float] = {}
        with timed(seconds, SELECT_S):
            measured = deviations(self.named(arrays), self.kept(task.own), self.trainable.tensor_set)
        self.sending.keep(measured, self.named(came) if self.settings.asks_own_terms else {}, _stage(task))
        moved = measured[np.isfinite(measured) & (measured > 0)]
        return {"deviation": float(np.median(moved)) if len(moved) else 0.0, **seconds}

    def above_or_below(self, task: Task, theta: float, network: Numbers | None) -> tuple[Sent, dict[str, float]]:
        """What the server's threshold, and the second filter, take of the update that waits here since the round's probe; and seconds."""
        seconds: dict[str, float] = {}
        with timed(seconds, SELECT_S):
            measured, _ = self.sending.kept(_stage(task))
            sent = self.sending.above_or_below(self.own_rounds.load(_stage(task)), measured, theta, network)
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
            drawn = random_batches(self.examples("dev"), settings, f"{settings.seed}/{self.site}/{task.round}/meta")
            batches = [pad(batch, codec).to(model.device) for batch in drawn]
        step = MetaStep(settings, self.sending, model, batches, seconds)
        with autocast(model, settings.precision):
            if settings.meta_estimator == "loss" and network is None:
                return step.loss()
            asks_own = threshold.own or network is not None or settings.meta_estimator == "own"
            update = self._rounds_update(task, parameters) if asks_own and any(threshold.weights) else None
            return step.answer(threshold, direction, network, update)

    def _rounds_update(self, task: Task, parameters: NDArrays) -> RoundsUpdate:
        measured, came = self.sending.kept(_stage(task))
        # Where came is not kept nobody sent anything, and what the round began with is what it ended with.
        return RoundsUpdate(came or self.named(parameters), self.own_rounds.load(_stage(task)), measured)


def _stage(task: Task) -> Stage:
    """Of what the task's round is trained to."""
    return task.round, task.attempt
