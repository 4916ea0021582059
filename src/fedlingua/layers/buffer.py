"""Rounds that do not wait for all sites (`async.buffer`), FedBuff of Nguyen et al. 2022: a round ends at a number of updates, and the
other sites go on training. An update that began in an earlier round counts less the older it is."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fedlingua.exchange.expected import Sums
from fedlingua.exchange.joined import flat_parts
from fedlingua.exchange.updates import scaled
from fedlingua.layers.layer import Layer, Training
from fedlingua.settings.config import Phase


class Buffer(Layer):
    """A round ends at `async.buffer` updates."""

    asks_all = False

    def goes_on(self, phase: Phase) -> bool:
        return phase == "train"

    def quorum(self, phase: Phase, sites: int, usual: tuple[int, str]) -> tuple[int, str]:
        """A site that is busy while rounds go on cannot measure."""
        if phase == "finish":
            return usual
        return (min(self.settings.async_buffer, sites), "async.buffer") if phase == "train" else (1, usual[1])

    def due(self, number: int, is_last: bool) -> list[str]:
        """Return the sites that do not train now, and have not measured one of the last `evaluate-every` rounds, or would not have when
        they are back from a training as long as their last one."""
        run, every = self.run, 0 if is_last else self.settings.evaluate_every
        ages = {site: number - run.asked_in(site) for site in run.starts}
        idle = [site for site in run.registry.expected if site not in run.phases.busy]
        return [s for s in idle if (last := run.progress.measured_in(s)) < 0 or number - last + ages.get(s, 0) >= every]

    def dev_losses(self, losses: dict[str, Sums]) -> dict[str, Sums]:
        """A site that is still training counts with its last measurement."""
        known: Mapping[int, Mapping[str, Sums]] = self.run.progress.dev_losses
        return {**known.get(max(known, default=0), {}), **losses}

    def replies(self, number: int, trained: dict[str, Training]) -> dict[str, Training]:
        """Return updates as of this round: w + s(t) (w_i - w'), with w' the tensors that site i got t rounds ago, w this round's and
        s(t) = (1 + t)^a; a is `async.age-exponent`, -1/2 in Nguyen et al. 2022 (algorithm 1 and section 5)."""
        return trained | {site: self._current(number, site, trained[site]) for site in self.run.starts if site in trained}

    def _current(self, number: int, site: str, training: Training) -> Training:
        run, staleness = self.run, number - self.run.asked_in(site)
        run.phases.record.of(site)["staleness"] = staleness
        now, start = (flat_parts(each, run.tensor_set) for each in (run.sent_to(site), run.received_by(site)))
        factors = np.full(len(run.tensor_set.specs), (1 + staleness) ** self.settings.async_age_exponent)
        return replace(training, update=scaled(training.update, start, factors, now))
