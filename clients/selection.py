"""Select which part of its update a site sends, and store what the selection needs in the next round.

The rules are in fedlingua.selection. The site's part in learning MetaSend's threshold is in clients/threshold_slope.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from clients.site_client import SiteClient
from fedlingua.common.timing import timed
from fedlingua.exchange.coding.change import encode_change
from fedlingua.exchange.coding.coder import generator_of
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.protocol import SELECT_S, Stage, Task
from fedlingua.exchange.tensors import NamedTensors, Tensors
from fedlingua.selection import rules
from fedlingua.selection.deviation import deviations, differences, magnitudes
from fedlingua.selection.freezing import apf_start, apf_step, check_state
from fedlingua.selection.masks import Selection, pack_selected, part_sizes
from fedlingua.selection.second_filter import KEPT_FROM, keep_probability

DEVIATIONS, RECEIVED = "deviations", "received."
"""Names in the file of an update that waits for its threshold: its deviations, and the prefix of received tensors."""


@dataclass(frozen=True)
class Sent:
    """The part of an update that a site sends, as it travels; under a rule with a threshold also the deviations of all tensors (Chu et
    al. 2024, eq. 2) and the threshold on them."""

    arrays: Mapping[str, Numbers]
    deviations: Numbers | None = None
    theta: float | None = None


class SiteSelection:
    """The run's selection rule at one site. Its methods take an update of `SiteClient.train` and the tensors that training received."""

    def __init__(self, client: SiteClient) -> None:
        self.client, self.settings, self.chosen = client, client.settings, client.trainable.tensor_set
        self._files = client.selection_files

    # --- Rules that a site applies by itself ---------------------------------------------------------------------------

    def select(self, update: NamedTensors, received: NamedTensors, task: Task) -> tuple[Sent, dict[str, float]]:
        """Select the part of an update that the run's rule sends; return it and the seconds that this took."""
        seconds: dict[str, float] = {}
        with timed(seconds, SELECT_S):
            previous = self.client.own_tensors(task.own) if self.settings.compares_rounds else {}
            measured = deviations(update, previous, self.chosen) if self.settings.by_deviation else None
            if measured is None:
                theta, selection = None, self._selected(update, received, previous, task)
            else:
                how, draws = self.settings, self._random(task.round)
                theta = rules.unlearned_threshold(how.selected_by, measured, draws, how.fixed_threshold, how.random_threshold)
                selection = self.by_threshold(measured, theta)
            return Sent(self._packed(update, received, task, selection), measured, theta), seconds

    def _packed(self, update: NamedTensors, received: NamedTensors, task: Task, selection: Selection) -> Tensors:
        """Pack the selected part of an update, or its coded change if the run has a code."""
        arrays, code = pack_selected(update, selection), self.settings.code_up
        started = pack_selected(received, selection) if code.method != "none" else {}
        for part in part_sizes(self.chosen).keys() & started.keys():
            draws = generator_of(self.settings.seed, task.round, self.client.site, part)
            coded = encode_change(started[part], arrays[part], None, selection.shapes_of(part), code, draws)
            arrays[part] = np.frombuffer(coded.payload, np.uint8)
        return arrays

    def _selected(self, update: NamedTensors, received: NamedTensors, previous: Tensors, task: Task) -> Selection:
        rule, chosen = self.settings.selected_by, self.chosen
        if rule == "rand-send":
            return rules.rand_send(chosen, self._random(task.round), self.settings.send_share)
        if rule == "top-k":
            return rules.top_k(update, chosen, self.settings.send_share)
        if rule == "apf":
            if state := self._files.load(task.own):
                check_state(state, chosen)
            else:
                state = apf_start(chosen, self.settings.apf_window, self.settings.apf_threshold)
            selection, after = apf_step(state, chosen, update, received)
            self._files.save(after, stage_of(task))
            return selection
        assert rule in ("dp-g", "dp-l"), rule
        return rules.dp(differences(update, previous, chosen), chosen, self.settings.side)

    def _random(self, number: int) -> np.random.Generator:
        """Return a round's random generator; a repeated round draws the same numbers."""
        seed = f"{self.settings.seed}/{self.client.site}/{number}/send"
        return np.random.default_rng(np.frombuffer(seed.encode(), np.uint8))

    # --- The server's threshold: probe, then send ----------------------------------------------------------------------

    def probe(self, update: NamedTensors, received: NamedTensors, task: Task) -> dict[str, float]:
        """Measure and store the deviations of an update that waits for the round's threshold, and what a later request needs of the
        tensors from which training started.

        Returns:
            The seconds that this took and the median deviation, without tensors that were 0 or did not change.
        """
        seconds: dict[str, float] = {}
        with timed(seconds, SELECT_S):
            measured = deviations(update, self.client.own_tensors(task.own), self.chosen)
        started = received if self.settings.asks_own_terms or self.settings.code_up.method != "none" else {}
        self._files.save({DEVIATIONS: measured, **{f"{RECEIVED}{name}": started[name] for name in started}}, stage_of(task))
        moved = measured[np.isfinite(measured) & (measured > 0)]
        return {"deviation": float(np.median(moved)) if len(moved) else 0.0, **seconds}

    def send(self, task: Task, theta: float, network: Numbers | None) -> tuple[Sent, dict[str, float]]:
        """Select the part of the waiting update that passes threshold and second filter; return it and the seconds that this took."""
        seconds: dict[str, float] = {}
        with timed(seconds, SELECT_S):
            (measured, start), update = self.waiting(task), self.client.own_rounds.load(stage_of(task))
            selection = Selection(self.chosen, self.by_threshold(measured, theta).tensors & self.passing(update, network))
            return Sent(self._packed(update, start, task, selection), measured, theta), seconds

    def waiting(self, task: Task) -> tuple[Numbers, Tensors]:
        """Load what `probe` stored."""
        stored = self._files.load(stage_of(task))
        return stored.pop(DEVIATIONS), {name.removeprefix(RECEIVED): tensor for name, tensor in stored.items()}

    def by_threshold(self, measured: Numbers, theta: float) -> Selection:
        """Select by eq. 3 of Chu et al. 2024, without the second filter. measured: The deviations, (tensors,)."""
        return rules.by_threshold(measured, self.chosen, theta, self.settings.side)

    def passing(self, update: NamedTensors, network: Numbers | None) -> Numbers:
        """Return which tensors pass the second filter, whatever theta is: (tensors,) bool; all if there is no filter."""
        if network is None:
            return np.ones(len(self.chosen.specs), np.bool_)
        return keep_probability(network, magnitudes(update, self.chosen)) >= KEPT_FROM


def stage_of(task: Task) -> Stage:
    """Return the stage of the tensors that a task trains."""
    return task.round, task.attempt
