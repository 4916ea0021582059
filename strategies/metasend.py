"""MetaSend (Chu et al. 2024): a network learns, from round to round, by which threshold the sites choose what they send.

One round (algorithm 2), as the server goes through it in `MetaSend.round`:

1. `train.probe`: every site gets its clusters' tensors, trains, and answers with losses only (line 4). Its update waits there.
2. The network makes the threshold of the losses (line 5), and `train.send` takes it to the sites, which answer with the tensors that it
   selects (lines 6, 7).
3. They are averaged inside every cluster, as FedMean does (line 8).
4. With what the round has come to, `evaluate` brings along what the threshold's slope is found by; the answers make one step of the
   network (line 9, eq. 5).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid

from fedlingua.backbones.parts import PARTS, Part
from fedlingua.clustering.clusters import cluster_of
from fedlingua.common.timing import timed
from fedlingua.exchange import protocol
from fedlingua.exchange.protocol import Threshold
from fedlingua.exchange.records import to_record
from fedlingua.exchange.tensors import NamedTensors, Tensors
from fedlingua.selection.masks import Selection, pack_selected
from fedlingua.selection.meta_gradient import bytes_slope, direction, mean_over_sites
from strategies.aggregation import State, in_clusters, weights_of
from strategies.fed_mean import FedMean
from strategies.flower_records import arrays_of
from strategies.progress import Sums
from strategies.replies import Reply
from strategies.reply_contents import Evaluation, Expected, Training, parse_probe, parse_slope, parse_training
from strategies.strategy import Federated
from strategies.threshold import SecondFilter, Theta, ThresholdModel
from strategies.updates import Update

META_PARTS = {"batches": protocol.BATCHES_S, "slope": protocol.SLOPE_S}
"""What a site's seconds call its part in the meta step -> key of its answer."""


@dataclass(frozen=True)
class MetaRound:
    """The threshold of a round, what it was made of, and what it led to.

    Args:
        model, filter: the networks as the round's state has them.
        probes: site -> sums of its training.
        deviations: site -> tensor -> how far it moved.
        shares: part -> site -> what its update counts in its cluster.
        directions: part -> cluster -> where the threshold moves its tensors.
        answers: site -> what the threshold's slope is found by.
    """

    model: ThresholdModel
    filter: SecondFilter | None
    theta: Theta
    probes: Mapping[str, Sums]
    deviations: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    shares: Mapping[Part, Mapping[str, float]] = field(default_factory=dict)
    directions: Mapping[Part, Mapping[str, Tensors]] = field(default_factory=dict)
    answers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class MetaSend(FedMean):
    """The mean inside clusters, by the weights that `aggregation` names, of what a learned threshold lets through.

    The networks lie in the state's memory; a round makes them of it, and what they have learned goes into the next state.
    """

    update_phase, train_message = "send", protocol.PROBE
    meta: MetaRound | None = None
    """the round at work, once its threshold is made"""

    def __init__(self, of: Federated) -> None:
        super().__init__(of)
        settings = of.settings
        self.by_loss, self.learns = settings.meta_estimator == "loss", not settings.meta_frozen

    # --- The networks ----------------------------------------------------------------------------------------------------------

    def init(self, tensors: NamedTensors) -> State:
        return self._with_networks(super().init(tensors), *self._networks(None))

    def _networks(self, state: State | None) -> tuple[ThresholdModel, SecondFilter | None]:
        """As a state has them, or as a run begins."""
        settings = self.settings
        model = ThresholdModel(
            self.registry.expected,
            settings.seed,
            settings.meta_neurons,
            settings.meta_learning_rate,
            settings.meta_noise if self.by_loss and self.learns else 0.0,
            settings.meta_frozen,
            width=settings.meta_temperature,
            follows=settings.meta_scale == "round",
        )
        second = SecondFilter(settings.seed, settings.meta_learning_rate) if settings.second_filter else None
        if state:
            model.restore(state.memory, state.values)
        if state and second:
            second.restore(state.memory, state.values)
        return model, second

    def _with_networks(self, state: State, model: ThresholdModel, second: SecondFilter | None) -> State:
        memory, values = model.state()
        if second:
            memory, values = {**memory, **second.state()[0]}, {**values, **second.state()[1]}
        return replace(state, memory=memory, values=values)

    # --- The round in two phases -----------------------------------------------------------------------------------------------

    def round(self, state: State, number: int, grid: Grid) -> State:
        """Algorithm 2."""
        self.meta = self._probed(state, number, grid) if number > 0 else None
        state = super().round(state, number, grid)
        return self._learned(state, number) if self.meta else state

    def _probed(self, state: State, number: int, grid: Grid) -> MetaRound:
        """Lines 4 and 5."""
        ask = partial(super().configure_train, number, arrays_of(state), self.train_config, grid)
        replies = self.phases.exchange(grid, ask, "train", self._parse_probe, self.progress)
        probes = {reply.site: reply.parsed for reply in replies}
        model, second = self._networks(state)
        model.begin({site: {"median": sums["deviation"]} for site, sums in probes.items()})
        with timed(self.phases.record.server_s, "theta"):
            theta = model.theta({site: sums["nll_sum"] / sums["num_tokens"] for site, sums in probes.items()})
        for site, reason in theta.stood_in.items():
            self.note(f"round {number}: site {site}: for the threshold {reason}")
        return MetaRound(model, second, theta, probes)

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """The threshold to every site whose update waits for it."""
        assert self.meta
        messages = []
        for site in self.phases.available(grid, "send", self.progress):
            if site in self.meta.probes:
                messages.append(self._request(protocol.SEND, site, server_round, server_round - 1))
                messages[-1].content[protocol.ARRAYS] = ArrayRecord()
                messages[-1].content[protocol.THRESHOLD] = ConfigRecord(Threshold(self.meta.theta.value).request())
                self._add_filter(messages[-1])
        return messages

    def aggregated(self, number: int, replies: Sequence[Reply[Training]], updates: Mapping[str, Update]) -> State:
        """As without a threshold; and what its slope is found by is there until the round has been evaluated."""
        assert self.meta
        state, meta, names = super().aggregated(number, replies, updates), self.meta, self.tensor_set.names
        deviations = {
            reply.site: dict(zip(names, map(float, reply.parsed.deviations), strict=True))
            for reply in replies
            if reply.parsed.deviations is not None
        }
        self.meta = replace(meta, deviations=deviations)
        self.meta = self._directed(self.meta, updates)
        record, model = self.phases.record, meta.model
        shares = {site: float(sums.get("numbers_share", 0.0)) for site, sums in record.sites.items() if site in meta.probes}
        record.about["threshold"] = {
            "theta": meta.theta.value,
            "mu": meta.theta.mu,
            "scale": model.scale,
            "tau": model.tau,
        }
        if silence := model.report(shares):
            self.note(f"round {number}: {silence}")
        return state

    def _directed(self, meta: MetaRound, updates: Mapping[str, Update]) -> MetaRound:
        """With what every update counts in its clusters and, for the estimator `cross`, where the threshold moves them."""
        settings, weights, theta, tau = self.settings, weights_of(self.settings), meta.theta.value, meta.model.tau
        shares: dict[Part, dict[str, float]] = {part: {} for part in PARTS}
        directions: dict[Part, dict[str, Tensors]] = {part: {} for part in PARTS}
        for part, cluster, sites in in_clusters(updates, self.clusters):
            received = self.sent.tensors[part].get(cluster, {})
            if not received:
                continue
            counts = dict(zip(sites, weights([updates[site] for site in sites]) if sites else [], strict=True))
            shares[part] |= counts
            if settings.meta_estimator == "cross" and self.learns:
                sent = {site: updates[site].sent().tensors for site in sites}
                with timed(self.phases.record.server_s, "direction"):
                    directions[part][cluster] = direction(received, sent, counts, meta.deviations, theta, tau, settings.keep)
        return replace(meta, shares=shares, directions=directions)

    # --- The meta step -----------------------------------------------------------------------------------------------------------

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """With what the slope of the round's threshold is found by, as far as it is learned."""
        messages, meta = list(super().configure_evaluate(server_round, arrays, config, grid)), self.meta
        if meta is None or not self.learns:
            return messages
        packed: dict[tuple[str, ...], ArrayRecord] = {}
        crosses = self.settings.meta_estimator == "cross"
        # A direction of nothing has no slope, and theta would stay where nobody sends for good; the sites' own terms lead out of there.
        alone = crosses and not any(way for ways in meta.directions.values() for way in ways.values())
        for message in messages:
            site = str(message.content[protocol.TASK]["site"])
            weights = tuple(meta.shares.get(part, {}).get(site, 0.0) for part in PARTS)
            threshold = Threshold(meta.theta.value, meta.model.tau, weights, alone)
            message.content[protocol.THRESHOLD] = ConfigRecord(threshold.request())
            if crosses and not alone:
                of = tuple(cluster_of(self.clusters, part, site) for part in PARTS if meta.directions.get(part))
                if of not in packed:  # sites of the same clusters get one record, which is in memory once
                    packed[of] = to_record(self._packed_direction(meta, site))
                message.content[protocol.DIRECTION] = packed[of]
            self._add_filter(message)
        return messages

    def evaluate(self, state: State, number: int, grid: Grid) -> list[Reply[Evaluation]]:
        """With the answers for the meta step."""
        replies = super().evaluate(state, number, grid)
        answers = {reply.site: reply.parsed.meta for reply in replies if reply.parsed.meta}
        self.meta = replace(self.meta, answers=answers) if self.meta else None
        return replies

    def _learned(self, state: State, number: int) -> State:
        """The state with what its networks learn of the sites' answers: one step."""
        assert self.meta
        if self.learns:
            with timed(self.phases.record.server_s, "step"):
                self._learn(number, self.meta)
        return self._with_networks(state, self.meta.model, self.meta.filter)

    def _learn(self, number: int, meta: MetaRound) -> None:
        answers, weights, model = meta.answers, self._site_weights(meta.answers), meta.model
        values = {site: sums["nll_sum"] / sums["num_tokens"] if self.by_loss else sums["slope"] for site, sums in answers.items()}
        finite = {site: value for site, value in values.items() if math.isfinite(value)}
        for site in values.keys() - finite.keys():
            what = "loss" if self.by_loss else "gradient"
            self.note(f"round {number}: site {site}: its {what} is {values[site]}; left out of the meta step")
        figures = self.phases.record.about["threshold"]
        total, price = mean_over_sites(finite, weights), self.settings.meta_bytes_weight
        if self.by_loss:
            paid = price * self._share_sent(meta)
            figures["stepped"] = model.step_by_loss({site: loss + paid for site, loss in finite.items()}, weights)
            figures["loss"] = total if math.isfinite(total) else None
        else:
            sizes = {spec.name: math.prod(spec.shape) for spec in self.tensor_set.specs}
            if price and meta.deviations:
                total += price * bytes_slope(meta.deviations, sizes, meta.theta.value, model.tau, self.settings.keep)
            figures["stepped"] = model.step(total)
            figures["slope"] = total if math.isfinite(total) else None
        if meta.filter:
            figures["filtered"], left_out = meta.filter.step({site: sums["filter"] for site, sums in answers.items()}, weights)
            for site in left_out:
                why = "its gradient of the second filter is no number; left out of the filter's step"
                self.note(f"round {number}: site {site}: {why}")

    def _share_sent(self, meta: MetaRound) -> float:
        """Of the numbers of an update, mean over the sites whose updates were aggregated."""
        counted = {site for shares in meta.shares.values() for site in shares}
        sites = self.phases.record.sites
        return math.fsum(float(sites[site].get("numbers_share", 0.0)) for site in counted) / max(1, len(counted))

    def _add_filter(self, message: Message) -> None:
        if self.meta and self.meta.filter:
            message.content[protocol.FILTER] = to_record({protocol.FILTER: self.meta.filter.network})

    def _site_weights(self, answers: Mapping[str, Any]) -> dict[str, float]:
        """What each site's dev loss counts in L_val: by its training sentences under fed-avg, as tempered as there, else the same for all;
        by-loss, too, whose weights are another's every round.
        """
        if self.settings.aggregation == "fed-avg":
            power = 1 / self.settings.sampling_temperature
            return {site: float(self.registry.about[site]["train"]) ** power for site in answers}
        return dict.fromkeys(answers, 1.0)

    def _packed_direction(self, meta: MetaRound, site: str) -> Tensors:
        """Where the threshold moves the tensors of the site's clusters."""
        moved: dict[str, Any] = {}
        for part in PARTS:
            if meta.directions.get(part):
                moved |= meta.directions[part][cluster_of(self.clusters, part, site)]
        return pack_selected(moved, Selection.of_names(self.tensor_set, moved))

    # --- Replies -----------------------------------------------------------------------------------------------------------------

    def _parse_probe(self, site: str, reply: Message, size: int) -> Sums:
        sums = parse_probe(reply, self._expected(site))
        record = self.phases.record.of(site)
        record["seconds"]["train"] = round(sums["seconds"], 3)
        record["train_loss"], record["deviation"] = sums["nll_sum"] / sums["num_tokens"], sums["deviation"]
        return sums

    def _parser(self, site: str) -> Callable[[Message, Expected, NamedTensors | None], Training]:
        assert self.meta
        return partial(parse_training, probed=self.meta.probes[site])

    def _parse_evaluation(self, site: str, reply: Message, size: int) -> Evaluation:
        answer = reply.content.pop(protocol.META, None)
        evaluation = super()._parse_evaluation(site, reply, size)
        if self.meta is None or not self.learns:
            return evaluation
        record = self.phases.record.of(site)
        slope = parse_slope(answer, self._expected(site))
        record["seconds"] |= {f"meta {what}": round(slope[key], 6) for what, key in META_PARTS.items() if key in slope}
        return replace(evaluation, meta=slope)
