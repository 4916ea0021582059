"""MetaSend (Chu et al. 2024): a network learns, from round to round, the threshold by which the sites select what they send.

One round (algorithm 2), on the server's side in `MetaSend.round`:

1. `train.probe`: every site gets its clusters' tensors, trains, and answers with losses only (line 4). Its update waits at the site.
2. The network computes the threshold from the losses (line 5); `train.send` carries it to the sites, which answer with the tensors that
   it selects (lines 6, 7).
3. They are averaged inside every cluster, as in FedMean (line 8).
4. `evaluate` carries the new tensors and the threshold; from the answers the network takes one step (line 9, eq. 5).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid

from fedlingua.backbones.parts import PARTS
from fedlingua.common.errors import ExchangeError
from fedlingua.common.timing import timed
from fedlingua.exchange import protocol
from fedlingua.exchange.checks import check_loss, check_numbers, check_records, check_seconds
from fedlingua.exchange.expected import Expected, Sums
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.protocol import Threshold
from fedlingua.exchange.records import to_record
from fedlingua.exchange.replies import Reply
from fedlingua.exchange.state import State
from fedlingua.exchange.tensors import NamedTensors
from fedlingua.layers.layer import Training
from fedlingua.selection.learned_threshold import SecondFilter, Theta, ThresholdModel
from fedlingua.selection.meta_gradient import bounded, bytes_slope, mean_over_sites
from fedlingua.selection.second_filter import SIZE
from strategies.aggregation.mean import shares_of, weights_of
from strategies.checks.contents import training_sums
from strategies.methods.fed_mean import FedMean
from strategies.rounds.flower_records import arrays_of, site_of
from strategies.strategy import Federated

META_PARTS = {"batches": protocol.BATCHES_S, "slope": protocol.SLOPE_S}
"""Name in the record of seconds -> key in a site's reply, for the site's work in the meta step."""
SLOPES = 10.0
"""How much more than updates honest slopes may differ, since few tensors have a deviation near the threshold; in `robust.max-ratio`."""


@dataclass(frozen=True)
class MetaRound:
    """The threshold of a round, its inputs and its effects.

    probes: Site -> sums of its training. deviations: Site -> those of all its tensors. shares: Site whose update was aggregated -> part
    -> its weight in its cluster. answers: Site -> its part in the meta step, as `parse_slope` returns it.
    """

    model: ThresholdModel
    filter: SecondFilter | None
    theta: Theta
    probes: Mapping[str, Sums]
    deviations: Mapping[str, Numbers] = field(default_factory=dict)
    shares: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    answers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class MetaSend(FedMean):
    """The mean inside clusters, weighted by the run's `aggregation`, of the tensors that a learned threshold selects.

    The networks are stored in the state's memory; each round restores them and stores the trained ones in the next state.
    """

    update_phase, train_message = "send", protocol.PROBE
    meta: MetaRound | None = None
    """The current round, once it has its threshold."""

    def __init__(self, of: Federated) -> None:
        super().__init__(of)
        settings = of.settings
        self.by_loss, self.learns = settings.meta_estimator == "loss", not settings.meta_frozen

    # --- The networks ----------------------------------------------------------------------------------------------------------

    def init(self, tensors: NamedTensors) -> State:
        return self._with_networks(super().init(tensors), *self._networks(None))

    def _networks(self, state: State | None) -> tuple[ThresholdModel, SecondFilter | None]:
        """Return the networks as stored in `state`, or new ones if it is None."""
        settings, model = self.settings, ThresholdModel(self.registry.expected, self.settings)
        second = SecondFilter(settings.seed, settings.meta_learning_rate) if settings.second_filter else None
        if state:
            model.restore(state.memory, state.values)
        if state and second:
            second.load(state.memory)
        return model, second

    def _with_networks(self, state: State, model: ThresholdModel, second: SecondFilter | None) -> State:
        memory, values = model.state()
        if second:
            memory |= second.tensors()
        return replace(state, memory=memory, values=values)

    # --- The round in two phases -----------------------------------------------------------------------------------------------

    evaluates_with_training = False

    def round(self, state: State, number: int, grid: Grid) -> State:
        """Run one round of algorithm 2; round 0 has no threshold."""
        self.meta = self._probe(state, number, grid) if number > 0 else None
        state = super().round(state, number, grid)
        if self.meta is None:
            return state
        if self.learns:
            with timed(self.phases.record.server_s, "step"):
                self._learn(number, self.meta)
        return self._with_networks(state, self.meta.model, self.meta.filter)

    def _probe(self, state: State, number: int, grid: Grid) -> MetaRound:
        """Probe the sites and compute the threshold: lines 4 and 5."""
        ask = partial(super().configure_train, number, arrays_of(state), self.train_config, grid)
        replies = self.phases.exchange(grid, ask, "train", self._parse_probe)
        probes = {reply.site: reply.parsed for reply in replies}
        model, second = self._networks(state)
        model.begin([sums["deviation"] for sums in probes.values()])
        with timed(self.phases.record.server_s, "theta"):
            theta = model.theta({site: sums["nll_sum"] / sums["num_tokens"] for site, sums in probes.items()})
        for site, reason in theta.replaced.items():
            self.note(f"round {number}: site {site}: for the threshold {reason}")
        return MetaRound(model, second, theta, probes)

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """Send the threshold to every site with a waiting update."""
        assert self.meta
        messages = []
        for site in self.phases.available(grid, "send"):
            if site in self.meta.probes:
                messages.append(self.run.request(protocol.SEND, site, server_round, server_round - 1))
                messages[-1].content[protocol.ARRAYS] = ArrayRecord()
                messages[-1].content[protocol.THRESHOLD] = ConfigRecord(Threshold(self.meta.theta.value).request())
                self._add_filter(messages[-1])
        return messages

    def aggregate_updates(self, number: int, replies: Sequence[Reply[Training]], trained: Mapping[str, Training]) -> State:
        """Aggregate as FedMean does, and store in `self.meta` what the meta step needs."""
        assert self.meta
        state, meta = super().aggregate_updates(number, replies, trained), self.meta
        updates = {site: training.update for site, training in trained.items()}
        shares: dict[str, dict[str, float]] = {site: {} for site in updates}
        for part, _, weights in shares_of(updates, self.clusters, weights_of(self.settings)):
            for site, weight in weights.items():
                shares[site][part] = weight
        deviations = {
            reply.site: reply.parsed.more[protocol.DEVIATIONS] for reply in replies if protocol.DEVIATIONS in reply.parsed.more
        }
        self.meta = replace(meta, deviations=deviations, shares=shares)
        theta, model = meta.theta, meta.model
        figures = {"theta": theta.value, "mu": theta.mu, "scale": model.scale, "tau": model.tau}
        record = self.phases.record
        record.about["threshold"] = figures
        if silence := model.report(
            [float(sums.get("numbers_share", 0.0)) for site, sums in record.sites.items() if site in meta.probes]
        ):
            self.note(f"round {number}: {silence}")
        return state

    # --- The meta step -----------------------------------------------------------------------------------------------------------

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """Add to each request what its site needs for the meta step."""
        messages, meta = list(super().configure_evaluate(server_round, arrays, config, grid)), self.meta
        if meta is None or not self.learns:
            return messages
        for message in messages:
            shares = meta.shares.get(site_of(message), {})
            threshold = Threshold(meta.theta.value, meta.model.tau, tuple(shares.get(part, 0.0) for part in PARTS))
            message.content[protocol.THRESHOLD] = ConfigRecord(threshold.request())
            self._add_filter(message)
        return messages

    def evaluate(self, state: State, number: int, grid: Grid) -> Sequence[Reply[Any]]:
        """Evaluate as FedMean does, and store the answers for the meta step."""
        self._answers: dict[str, Mapping[str, Any]] = {}
        replies = super().evaluate(state, number, grid)
        answers = {reply.site: self._answers[reply.site] for reply in replies if reply.site in self._answers}
        self.meta = replace(self.meta, answers=answers) if self.meta else None
        return replies

    def _learn(self, number: int, meta: MetaRound) -> None:
        """Take one step of both networks, by the sites' answers."""
        answers, weights, model = meta.answers, self._site_weights(meta.answers), meta.model
        figures, what, finite = self.phases.record.about["threshold"], "loss" if self.by_loss else "gradient", dict[str, float]()
        for site, sums in answers.items():
            value = sums["nll_sum"] / sums["num_tokens"] if self.by_loss else float(sums["slope"])
            if math.isfinite(value):
                finite[site] = value
            else:
                self.note(f"round {number}: site {site}: its {what} is {value}; left out of the meta step")
        counted = finite if self.by_loss else bounded(finite, SLOPES * self.settings.max_update_ratio)
        total, price = mean_over_sites(counted, weights), self.settings.meta_bytes_weight
        if self.by_loss:
            shares = [float(self.phases.record.sites[site].get("numbers_share", 0.0)) for site in meta.shares]
            paid = price * (math.fsum(shares) / max(1, len(shares)))
            figures["stepped"] = model.step_by_loss({site: loss + paid for site, loss in finite.items()}, weights)
            figures["loss"] = total if math.isfinite(total) else None
        else:
            if price and meta.deviations:
                sizes = np.array([spec.size for spec in self.tensor_set.specs])
                total += price * bytes_slope(meta.deviations, sizes, meta.theta.value, model.tau, self.settings.side)
            figures["stepped"] = model.step(total)
            figures["slope"] = total if math.isfinite(total) else None
        if meta.filter:
            gradients = {site: sums["filter"] for site, sums in answers.items()}
            figures["filtered"], left_out = meta.filter.step(gradients, weights, SLOPES * self.settings.max_update_ratio)
            for site in left_out:
                self.note(f"round {number}: site {site}: its gradient is not finite; left out of the second filter's step")

    def _add_filter(self, message: Message) -> None:
        if self.meta and self.meta.filter:
            message.content[protocol.FILTER] = to_record({protocol.FILTER: self.meta.filter.network})

    def _site_weights(self, answers: Mapping[str, Any]) -> dict[str, float]:
        """Return the weight of each site's dev loss in L_val: under fed-avg that of its update, otherwise 1, also under by-loss, whose
        weights change every round."""
        if self.settings.aggregation == "fed-avg":
            power = 1 / self.settings.sampling_temperature
            return {site: float(self.registry.about[site]["train"]) ** power for site in answers}
        return dict.fromkeys(answers, 1.0)

    # --- Replies -----------------------------------------------------------------------------------------------------------------

    def _parse_probe(self, site: str, reply: Message) -> Sums:
        sums = parse_probe(reply, self.run.expected(site))
        record = self.phases.record.of(site)
        record["seconds"]["train"] = round(sums["seconds"], 3)
        record["train_loss"], record["deviation"] = sums["nll_sum"] / sums["num_tokens"], sums["deviation"]
        return sums

    def parse_update(self, site: str, reply: Message) -> Training:
        """Parse a selected update. Its sums are those of its probe, to which it adds the seconds of the selection."""
        assert self.meta
        probed: dict[str, Any] = dict(self.meta.probes[site])
        sent = check_numbers(reply.content.metric_records[protocol.METRICS], (protocol.SELECT_S,))
        check_seconds(sent, self.run.expected(site).most_seconds)
        del probed["deviation"]
        probed[protocol.SELECT_S] += sent[protocol.SELECT_S]
        reply.content[protocol.METRICS] = MetricRecord(probed)
        return super().parse_update(site, reply)

    def parse_evaluation(self, site: str, reply: Message) -> Sums:
        if self.meta is None or not self.learns:
            return super().parse_evaluation(site, reply)
        answer = reply.content.pop(protocol.META, None)
        evaluation = super().parse_evaluation(site, reply)
        slope, record = parse_slope(answer, self.run.expected(site)), self.phases.record.of(site)
        record["seconds"] |= {f"meta {what}": round(slope[key], 6) for what, key in META_PARTS.items() if key in slope}
        self._answers[site] = slope
        return evaluation


def parse_probe(reply: Message, expected: Expected) -> Sums:
    """Return the sums of a training whose update is stored at the site, with the median of its deviations."""
    check_records(reply.content, {protocol.TASK, protocol.METRICS})
    return training_sums(reply.content.metric_records[protocol.METRICS], expected, more=("deviation", protocol.SELECT_S))


def parse_slope(record: Any, expected: Expected) -> dict[str, Any]:
    """Return a site's part in the meta step: sums, and the second filter's gradient if there is one. Losses and gradients that are not
    finite are accepted here; the meta step leaves them out and names the site.
    """
    settings = expected.settings
    slope = {"slope", protocol.SLOPE_S} if settings.asks_own_terms else set()
    wanted = {"nll_sum", "num_tokens", protocol.BATCHES_S, *slope, *({"filter"} if settings.second_filter else ())}
    if record is None or set(record) != wanted:
        raise ExchangeError(f"the reply's part in the meta step has {sorted(record or ())}; wanted {sorted(wanted)}")
    sums = {key: value for key, value in record.items() if key != "filter"}
    if not all(isinstance(value, int | float) for value in sums.values()) or sums["num_tokens"] < 1:
        raise ExchangeError(f"the reply's part in the meta step is {sums}; wanted numbers, and num_tokens of 1 or more")
    if not all(math.isfinite(sums[key]) and sums[key] >= 0 for key in (protocol.BATCHES_S, protocol.SLOPE_S) if key in sums):
        raise ExchangeError(f"the reply's part in the meta step is {sums}; wanted finite seconds, 0 or more")
    check_seconds(sums, expected.most_seconds)
    if math.isfinite(sums["nll_sum"]):
        check_loss(sums["nll_sum"], sums["num_tokens"], expected.most_loss)
    if settings.second_filter and (not isinstance(record["filter"], list) or len(record["filter"]) != SIZE):
        raise ExchangeError(f"the second filter's gradient is {type(record['filter']).__name__}; wanted a list of {SIZE} numbers")
    return {key: value if key == "filter" else float(value) for key, value in record.items()}
