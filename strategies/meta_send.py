"""MetaSend (Chu et al. 2024): a network learns, from round to round, by which threshold the sites choose what they send.

One round (algorithm 2), told here from the server:

1. `train.probe`: every site gets its clusters' tensors, trains, and answers with losses only (line 4). Its update waits there.
2. The network makes the threshold of the losses (line 5), and `train.send` takes it to the sites, which answer with the tensors that it
   selects (lines 6, 7).
3. They are averaged inside every cluster, as FedMean does (line 8).
4. With what the round has come to, `evaluate` brings along what the threshold's slope is found by; the answers make one step of the
   network (line 9, eq. 5).
"""

import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid

from fedlingua.backbones.parts import PARTS, Part
from fedlingua.clustering.clusters import Clusters, cluster_of
from fedlingua.common.timing import timed
from fedlingua.exchange import protocol
from fedlingua.exchange.protocol import Threshold
from fedlingua.exchange.records import message_bytes, to_record
from fedlingua.exchange.tensors import Tensors, TensorSet
from fedlingua.runs.folder import RunFolder
from fedlingua.selection.masks import Selection, pack_selected
from fedlingua.selection.meta_gradient import bytes_slope, direction, mean_over_sites
from fedlingua.settings.config import Settings
from strategies.aggregation import Update
from strategies.fed_mean import FedMean
from strategies.filtering import SecondFilter
from strategies.partial import sent_tensors
from strategies.progress import Sums
from strategies.readings import Training, read_probe, read_sent, read_slope
from strategies.roll_call import Roll
from strategies.threshold import Theta, ThresholdModel

META_PARTS = {"batches": protocol.BATCHES_S, "slope": protocol.SLOPE_S}
"""What a site's seconds call its part in the meta step -> key of its answer."""


class MetaSend(FedMean):
    """The mean inside clusters, by the weights that `aggregation` names, of what a learned threshold lets through."""

    update_phase = "send"

    def __init__(self, settings: Settings, roll: Roll, clusters: Clusters, tensor_set: TensorSet, folder: RunFolder) -> None:
        super().__init__(settings, roll, clusters, tensor_set, folder)
        self.by_loss = settings.meta_estimator == "loss"
        self.model = ThresholdModel(
            roll.expected,
            settings.seed,
            settings.meta_neurons,
            settings.meta_learning_rate,
            settings.meta_noise if self.by_loss and not settings.meta_frozen else 0.0,
            settings.meta_frozen,
            width=settings.meta_temperature,
            follows=settings.meta_scale == "round",
        )
        self.filter = SecondFilter(settings.seed, settings.meta_learning_rate) if settings.second_filter else None
        self.theta: Theta | None = None
        self._probes: dict[str, Sums] = {}
        self._deviations: dict[str, dict[str, float]] = {}
        self._shares: dict[Part, dict[str, float]] = {}
        self._ways: dict[Part, dict[str, Tensors]] = {}
        self._answers: dict[str, Mapping[str, Any]] = {}
        self._extra_bytes: dict[str, int] = {}
        """site -> what its evaluation's message carries down for the meta step"""

    # --- The round in two phases -----------------------------------------------------------------------------------------------

    def train(self, number: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid, num_rounds: int) -> None:
        """Algorithm 2, lines 3 to 8."""
        self.theta, self._shares, self._ways, self._deviations, self._answers = None, {}, {}, {}, {}
        ask = partial(self.ask_to_train, protocol.PROBE, number, grid)
        self._probes = self.conversation.heard(self._exchange(grid, ask, "train", self._read_probe, num_rounds))
        self.model.begin({site: {"median": sums["deviation"]} for site, sums in self._probes.items()})
        with timed(self.conversation.record.server_s, "theta"):
            self.theta = self.model.theta({site: sums["nll_sum"] / sums["num_tokens"] for site, sums in self._probes.items()})
        for site, told in self.theta.stood_in.items():
            self.folder.event("note", text=f"round {number}: site {site}: for the threshold {told}")
        super().train(number, arrays, config, grid, num_rounds)

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """The threshold, to every site whose update waits for it."""
        assert self.theta is not None
        record = ConfigRecord(Threshold(self.theta.value).request())
        messages = []
        for site in self.conversation.sites_here(grid, "send", self.progress):
            if site in self._probes:
                message = self._message(protocol.SEND, site, server_round, ArrayRecord(), server_round - 1)
                message.content[protocol.THRESHOLD] = record
                self._add_filter(message)
                messages.append(message)
        return messages

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """As without a threshold; and what is needed to find its slope is kept until the round has been evaluated."""
        result = super().aggregate_train(server_round, replies)
        assert self.theta is not None
        record = self.conversation.record
        record.server_s["aggregate"] -= record.server_s.get("direction", 0.0)  # which was made in the fold
        shares = {site: float(told.get("numbers_share", 0.0)) for site, told in record.sites.items() if site in self._probes}
        record.about["threshold"] = {
            "theta": self.theta.value,
            "mu": self.theta.mu,
            "scale": self.model.scale,
            "tau": self.model.tau,
        }
        if told := self.model.report(shares):
            self.folder.event("note", text=f"round {server_round}: {told}")
        return result

    def fold(self, updates: Mapping[str, Update]) -> None:
        received = self.state
        super().fold(updates)
        for part in PARTS:
            self._ways[part], self._shares[part] = {}, {}
            names = [spec.name for spec in self.tensor_set.of_part(part)]
            for cluster, sites in self.clusters[part].items() if names else ():
                members = [updates[site] for site in sites if site in updates]
                shares = dict(zip([member.site for member in members], self.weights(members), strict=True)) if members else {}
                self._shares[part] |= shares
                if self.settings.meta_estimator == "cross" and not self.settings.meta_frozen and self.theta:
                    sent = {member.site: sent_tensors(member, names) for member in members}
                    with timed(self.conversation.record.server_s, "direction"):
                        self._ways[part][cluster] = direction(
                            {name: received[part][cluster][name] for name in names},
                            sent,
                            shares,
                            self._deviations,
                            self.theta.value,
                            self.model.tau,
                            self.settings.keep,
                        )

    # --- The meta step -----------------------------------------------------------------------------------------------------------

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """With what the slope of the round's threshold is found by, as far as it is learned."""
        messages = list(super().configure_evaluate(server_round, arrays, config, grid))
        if self.theta is None or self.settings.meta_frozen:
            return messages
        packed: dict[tuple[str, ...], ArrayRecord] = {}
        for message in messages:
            site, before = str(message.content[protocol.TASK]["site"]), message_bytes(message)
            weights = tuple(self._shares.get(part, {}).get(site, 0.0) for part in PARTS)
            crosses = self.settings.meta_estimator == "cross"
            # A direction of nothing has no slope, and theta would stay where nobody sends for good; the sites' own terms lead out of there.
            alone = crosses and not any(way for ways in self._ways.values() for way in ways.values())
            threshold = Threshold(self.theta.value, self.model.tau, weights, alone)
            message.content[protocol.THRESHOLD] = ConfigRecord(threshold.request())
            if crosses and not alone:
                of = tuple(cluster_of(self.clusters, part, site) for part in PARTS if self._ways.get(part))
                if of not in packed:  # sites of the same clusters get one record, which is in memory once
                    packed[of] = to_record(self._packed_way(site))
                message.content[protocol.DIRECTION] = packed[of]
            self._add_filter(message)
            self._extra_bytes[site] = message_bytes(message) - before
        return messages

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The dev losses; and one step of the network."""
        result = super().aggregate_evaluate(server_round, replies)
        for site, extra in self._extra_bytes.items():
            self.conversation.record.of(site)["downlink_bytes"] += extra
        self._extra_bytes = {}
        if self.theta is not None and not self.settings.meta_frozen:
            with timed(self.conversation.record.server_s, "step"):
                self._learn(server_round)
        return result

    def _learn(self, number: int) -> None:
        assert self.theta is not None
        weights = self._site_weights()
        values = {
            site: sums["nll_sum"] / sums["num_tokens"] if self.by_loss else sums["slope"] for site, sums in self._answers.items()
        }
        finite = {site: value for site, value in values.items() if math.isfinite(value)}
        for site in values.keys() - finite.keys():
            what = "loss" if self.by_loss else "gradient"
            self.folder.event(
                "note", text=f"round {number}: site {site}: its {what} is {values[site]}; left out of the meta step"
            )
        told = self.conversation.record.about["threshold"]
        total, price = mean_over_sites(finite, weights), self.settings.meta_bytes_weight
        if self.by_loss:
            paid = price * self._share_sent()
            told["stepped"] = self.model.step_by_loss({site: loss + paid for site, loss in finite.items()}, weights)
            told["loss"] = total if math.isfinite(total) else None
        else:
            sizes = {spec.name: math.prod(spec.shape) for spec in self.tensor_set.specs}
            if price and self._deviations:
                total += price * bytes_slope(self._deviations, sizes, self.theta.value, self.model.tau, self.settings.keep)
            told["stepped"] = self.model.step(total)
            told["slope"] = total if math.isfinite(total) else None
        if self.filter:
            gradients = {site: sums["filter"] for site, sums in self._answers.items()}
            told["filtered"], left_out = self.filter.step(gradients, weights)
            for site in left_out:
                text = (
                    f"round {number}: site {site}: its gradient of the second filter is no number; left out of the filter's step"
                )
                self.folder.event("note", text=text)

    def _share_sent(self) -> float:
        """Of the numbers of an update, mean over the sites whose updates were folded."""
        folded = {site for shares in self._shares.values() for site in shares}
        told = self.conversation.record.sites
        return math.fsum(float(told[site].get("numbers_share", 0.0)) for site in folded) / max(1, len(folded))

    def _add_filter(self, message: Message) -> None:
        if self.filter:
            message.content[protocol.FILTER] = to_record({protocol.FILTER: self.filter.network})

    def _site_weights(self) -> dict[str, float]:
        """What each site's dev loss counts in L_val: by its training sentences under fed-avg, as tempered as there, else the same for all;
        by-loss, too, whose weights are another's every round.
        """
        if self.settings.aggregation == "fed-avg":
            power = 1 / self.settings.sampling_temperature
            return {site: float(self.roll.about[site]["train"]) ** power for site in self._answers}
        return dict.fromkeys(self._answers, 1.0)

    def _packed_way(self, site: str) -> Tensors:
        """Where the threshold moves the tensors of the site's clusters."""
        ways: dict[str, Any] = {}
        for part in PARTS:
            if self._ways.get(part):
                ways |= self._ways[part][cluster_of(self.clusters, part, site)]
        moves = Selection.of_names(self.tensor_set, ways)
        return pack_selected(ways, moves)

    # --- What replies say ----------------------------------------------------------------------------------------------------------

    def _read_probe(self, site: str, reply: Message, size: int) -> Sums:
        sums = read_probe(reply, self._asked(site))
        record = self.conversation.record.of(site)
        record["seconds"]["train"] = round(sums["seconds"], 3)
        record["train_loss"], record["deviation"] = sums["nll_sum"] / sums["num_tokens"], sums["deviation"]
        return sums

    def _read_update(self, site: str, reply: Message, size: int) -> Training:
        training = read_sent(reply, self._asked(site), self._probes[site])
        assert training.deviations is not None
        self._deviations[site] = dict(zip(self.tensor_set.names, map(float, training.deviations), strict=True))
        return training

    def _read_evaluation(self, site: str, reply: Message, size: int) -> Sums:
        answer = reply.content.pop(protocol.META, None)
        sums = super()._read_evaluation(site, reply, size)
        if self.theta is not None and not self.settings.meta_frozen:
            self.conversation.record.of(site)["uplink_bytes"] += size - message_bytes(reply)
            self._answers[site] = told = read_slope(answer, self._asked(site))
            seconds = self.conversation.record.of(site)["seconds"]
            seconds |= {f"meta {what}": round(told[key], 6) for what, key in META_PARTS.items() if key in told}
        return sums

    # --- From round to round -------------------------------------------------------------------------------------------------------

    def declared_state(self) -> tuple[Tensors, dict[str, Any]]:
        tensors, values = self.model.state()
        if self.filter:
            own, told = self.filter.state()
            tensors, values = {**tensors, **own}, {**values, **told}
        return tensors, values

    def restore(self, tensors: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        self.model.restore(tensors, values)
        if self.filter:
            self.filter.restore(tensors, values)
