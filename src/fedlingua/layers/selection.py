"""Send a selected part of an update (`send.rule`): a site selects it, the server fills in the rest with what the site received.

The rules are in fedlingua.selection. MetaSend's threshold, which the server learns, comes in a request of its own: there the update waits
at the site (`SiteSelection.probe`, `send`; fedlingua.layers.probe).
"""

import math
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, MetricRecord, RecordDict

from fedlingua.common.errors import ExchangeError
from fedlingua.common.timing import timed
from fedlingua.exchange import protocol
from fedlingua.exchange.checks import check_array, check_numbers, check_seconds
from fedlingua.exchange.held import digest_of
from fedlingua.exchange.joined import Numbers, runs
from fedlingua.exchange.protocol import SELECT_S, Stage, Task
from fedlingua.exchange.records import opened, to_record
from fedlingua.exchange.selected import Selection, pack_selected, unpack_selected
from fedlingua.exchange.tensors import NamedTensors, Tensors, TensorSet
from fedlingua.layers.layer import Incoming, Layer, Outgoing, Site, Training
from fedlingua.selection import rules
from fedlingua.selection.deviation import deviations, differences, magnitudes
from fedlingua.selection.freezing import apf_start, apf_step, check_state
from fedlingua.selection.second_filter import KEPT_FROM, keep_probability
from fedlingua.settings.config import Settings

DEVIATIONS, RECEIVED = "deviations", "received."
"""Names in the file of an update that waits for its threshold: its deviations, and the prefix of received tensors."""


class SelectedTensors(Layer):
    """Sites send the part of their updates that the run's rule selects."""

    folders = ("selection",)

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.bits_a_number = 1 if settings.selects_numbers else 0  # of a mask

    # --- At a site ---------------------------------------------------------------------------------------------------------------

    def update(self, site: Site, task: Task, going: Outgoing) -> Outgoing:
        if going.selection is None:
            going = SiteSelection(site).select(going, task)
        assert going.selection is not None
        return replace(going, arrays=pack_selected(going.update, going.selection))

    # --- At the server -------------------------------------------------------------------------------------------------------------

    def records(self, wanted: set[str]) -> set[str]:
        return wanted | ({protocol.DEVIATIONS} if self.settings.by_deviation else set())

    def reply(self, incoming: Incoming) -> Incoming:
        chosen, content, site = incoming.expected.tensor_set, incoming.content, incoming.expected.site
        metrics = dict(content.metric_records[protocol.METRICS])
        own = [SELECT_S, *([protocol.THETA] if self.settings.by_deviation and not self.settings.has_two_phases else [])]
        incoming.sums |= check_numbers(MetricRecord({name: metrics.pop(name) for name in own if name in metrics}), own)
        check_seconds(incoming.sums, incoming.expected.most_seconds)
        content[protocol.METRICS] = MetricRecord(metrics)
        arrays = incoming.arrays if incoming.arrays is not None else opened(content.array_records[protocol.ARRAYS])
        incoming.digest = incoming.digest or digest_of(*(arrays[name] for name in sorted(arrays)))
        assert incoming.start is not None, "nothing is selected of what stays"
        incoming.tensors, selection = unpack_selected(arrays, chosen, runs(incoming.start, chosen))
        incoming.selection = selection
        incoming.figures |= {"seconds": {"select": round(incoming.sums[SELECT_S], 6)}, "tensors_sent": selection.num_tensors}
        if protocol.THETA in incoming.sums:
            incoming.figures["theta"] = incoming.sums[protocol.THETA]
        incoming.figures |= {"tensors_share": selection.share_of_tensors, "numbers_share": selection.share_of_numbers}
        if self.settings.by_deviation:
            deviations = check_deviations(content.pop(protocol.DEVIATIONS), chosen)
            incoming.more[protocol.DEVIATIONS] = deviations
            finite = [value for value in rounded(deviations) if value is not None]
            if finite and "deviation" not in self.run.phases.record.of(site):  # a probed update has it already
                incoming.figures["deviation"] = median(finite)
        return incoming

    def replies(self, number: int, trained: dict[str, Training]) -> dict[str, Training]:
        """Store the sites' deviations in the run folder."""
        for site, training in trained.items() if self.settings.by_deviation else ():
            about = {"round": number, "site": site, "deviations": rounded(training.more[protocol.DEVIATIONS])}
            self.run.folder.append("deviations.jsonl", about)
        return trained


def rounded(deviations: Numbers) -> list[float | None]:
    """Return deviations as JSON values: a tensor that was zero everywhere has no finite one, and JSON has no infinity."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in deviations.tolist()]


def check_deviations(record: Any, tensor_set: TensorSet) -> Numbers:
    """Return every tensor's deviation: (tensors,) float32, 0 or above; infinity is allowed."""
    deviations = check_array(record, protocol.DEVIATIONS, (len(tensor_set.specs),))
    if not (deviations >= 0).all():
        raise ExchangeError(f"the deviations are {deviations.min()} at the least; wanted 0 or above")
    return deviations


class SiteSelection:
    """The run's selection rule at one site."""

    def __init__(self, client: Site) -> None:
        self.client, self.settings, self.chosen = client, client.settings, client.trainable.tensor_set
        self._files = client.files["selection"]

    # --- Rules that a site applies by itself ---------------------------------------------------------------------------

    def select(self, going: Outgoing, task: Task) -> Outgoing:
        """Select the part of an update that the run's rule sends, with the seconds that this took.

        Under a rule with a threshold also the deviations of all tensors go out (Chu et al. 2024, eq. 2), and the threshold on them.
        """
        sums = dict[str, Any](going.sums or {})
        with timed(sums, SELECT_S):
            previous = self.client.own_tensors(task.own) if self.settings.compares_rounds else {}
            if not self.settings.by_deviation:
                return replace(going, selection=self._selected(going.update, going.start, previous, task), sums=sums)
            measured, how, draws = deviations(going.update, previous, self.chosen), self.settings, self._random(task.round)
            theta = rules.unlearned_threshold(how.selected_by, measured, draws, how.fixed_threshold, how.random_threshold)
            sums[protocol.THETA] = theta
            return replace(going, selection=self.by_threshold(measured, theta), sums=sums, records=_beside(measured))

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

    def send(self, asked: RecordDict, task: Task, theta: float, network: Numbers | None) -> Outgoing:
        """Select the part of the waiting update that passes threshold and second filter, with the seconds that this took."""
        sums: dict[str, Any] = {}
        with timed(sums, SELECT_S):
            (measured, start), update = self.waiting(task), self.client.own_rounds.load(stage_of(task))
            selection = Selection(self.chosen, self.by_threshold(measured, theta).tensors & self.passing(update, network))
            return Outgoing(asked, update, start, sums, selection=selection, records=_beside(measured))

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


def _beside(measured: Numbers) -> dict[str, ArrayRecord]:
    return {protocol.DEVIATIONS: to_record({protocol.DEVIATIONS: measured})}


def stage_of(task: Task) -> Stage:
    """Return the stage of the tensors that a task trains."""
    return task.round, task.attempt
