"""One round, the same for all strategies: ask, wait, parse, check, aggregate. The sites measure the result, mostly in the next round.

A strategy of your own subclasses SiteStrategy or FedMean and defines `aggregate(state, updates)`, which computes the next state from
the updates. If needed, it also defines `init(tensors)`, the first state, and `model_for(state, site)`, the tensors that a site receives.
Or it overrides one of Flower's hooks, which take and return real records and messages. What it stores besides tensors belongs in the state,
so that a killed run can be resumed. Flower's own strategies run inside every cluster: strategies/methods/stock.py.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial
from statistics import median
from typing import cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from flwr.serverapp.strategy.strategy_utils import aggregate_metricrecords

from fedlingua.backbones.parts import PARTS, Part
from fedlingua.clustering.clusters import cluster_of
from fedlingua.common.errors import ConfigError, FedlinguaError
from fedlingua.common.timing import timed
from fedlingua.exchange import protocol
from fedlingua.exchange.joined import Joined, Numbers, flat_parts
from fedlingua.exchange.protocol import Task
from fedlingua.exchange.records import Packed, pack
from fedlingua.exchange.tensors import NamedTensors
from fedlingua.selection.masks import Selection
from fedlingua.settings.checks import for_round
from fedlingua.settings.config import Settings
from strategies.aggregation.coded import encode_downlink, stretch
from strategies.aggregation.mean import State, start_everywhere
from strategies.aggregation.updates import Update, scaled
from strategies.checks.agreement import LEAST, MOST_OPPOSED, against, agreements
from strategies.checks.contents import Evaluation, Training, parse_evaluation, parse_training
from strategies.checks.norms import Change, norm_clip
from strategies.checks.outliers import Distance, Verdict, highest_rate_before, judge, learning_rates, out_of_reach
from strategies.checks.reply import size_limit
from strategies.progress import Sums
from strategies.rounds.flower_records import WEIGHT, arrays_of, checked_state, content_of, site_of, state_of, update_of
from strategies.rounds.loop import Federated, Rounds
from strategies.rounds.replies import Failure, Reply
from strategies.rounds.traffic import FP32, kind_of

SERVER_ROUND = "server-round"
"""Key that Flower adds to a config; a request already says its round."""
__all__ = ["Federated", "SiteStrategy"]


class SiteStrategy(Rounds):
    """Base class of all strategies. train_message: The message type of a round's first request."""

    train_message = protocol.TRAIN

    # --- Defined by a method ---------------------------------------------------------------------------------------------------

    def init(self, tensors: NamedTensors) -> State:
        """Return the state before the first round: the same tensors in every cluster."""
        return State(start_everywhere(tensors, self.tensor_set, self.clusters))

    def model_for(self, state: State, site: str) -> NamedTensors:
        """Return the tensors that a site receives: those of its clusters; none if the site's tensors never leave it."""
        parts = [part for part in PARTS if self.tensor_set.of_part(part)]
        own = {part: state.tensors[part][cluster_of(self.clusters, part, site)] for part in parts}
        joined = [each for each in own.values() if isinstance(each, Joined)]
        if len(joined) == len(own):
            return Joined({part: numbers for each in joined for part, numbers in each.parts.items()}, self.tensor_set)
        return {spec.name: own[spec.part][spec.name] for spec in self.tensor_set.specs}

    def training_start(self, site: str) -> NamedTensors:
        """Return the tensors that a site's training started from."""
        return self.model_for(self.starts.get(site, self.sent), site)

    def averaged_clusters(self) -> Iterator[tuple[Part, str, tuple[str, ...]]]:
        """Yield (part, cluster, its sites) of the parts that have tensors."""
        for part in PARTS:
            if self.tensor_set.of_part(part):
                yield from ((part, cluster, sites) for cluster, sites in self.clusters[part].items())

    @property
    def train_config(self) -> ConfigRecord:
        """Settings of local training that a request carries."""
        return ConfigRecord({protocol.PROXIMAL_MU: self.settings.pull} if self.settings.pull else {})

    def aggregate(self, state: State, updates: Mapping[str, Update]) -> State:
        """Return the next state. updates: site -> its checked update, in federation order; valid in this round only."""
        raise NotImplementedError(f"{type(self).__name__} defines neither aggregate nor aggregate_train")

    # --- One round -------------------------------------------------------------------------------------------------------------

    def round(self, state: State, number: int, grid: Grid) -> State:
        """Run a round and return the state after it; meanwhile `self.state` is unchanged.

        Raises:
            RunError: Too few good replies. RoundSkippedError: the same, if the run continues without the round.
        """
        if number > 0:
            ask = partial(self.training_requests, number, state, grid)
            most_bytes = size_limit(self.tensor_set if self.travels else None, self.settings.selects_numbers)
            replies = self.phases.exchange(grid, ask, self.update_phase, self.parse_update, most_bytes)
            if self.progress.pending is not None and not self.settings.sums_scores:  # else `check_updates` opens their sum
                self.record_dev_losses(
                    self.progress.pending, [(reply.message, reply.site, reply.parsed.dev or {}) for reply in replies]
                )
            state = self.aggregate_updates(number, replies, self.check_updates(number, replies))
            state = self.code_downlink(number, state) if self.travels else state
        if self.is_measured_now(number):
            self.evaluate(state, number, grid)
        elif self.is_measured(number):
            self.progress.pending = number
        return state

    def training_requests(self, number: int, state: State, grid: Grid) -> list[Message]:
        """Return the requests that `configure_train` makes, once the settings that they have for this round are checked."""
        requests = list(self.configure_train(number, arrays_of(state), self.train_config, grid))
        for request in requests:
            config = request.content.config_records.get(protocol.CONFIG, ConfigRecord())
            settings = self.trains_under[site_of(request)] = round_settings(self.settings, config)
            if settings is not self.settings:
                self.progress.highest_rate = max(self.progress.highest_rate, settings.step_learning_rate)
        return requests

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """Make a request for each available site: its clusters' part of `arrays`, and `config` if any."""
        self.sent, packed, messages = state_of(arrays, self.state), Packed(), []
        for site in self.phases.available(grid, "train"):
            if site not in self.phases.good:  # else it was asked in an earlier round, and its update is here already
                self.starts.pop(site, None)
            messages.append(self._request(self.train_message, site, server_round, server_round - 1))
            messages[-1].content[protocol.ARRAYS] = pack(self.model_for(self.sent, site), self.tensor_set, packed)
            if config:
                messages[-1].content[protocol.CONFIG] = config
        return messages

    def parse_update(self, site: str, reply: Message) -> Training:
        """Parse and check a reply, enter its figures into the round's record, and move large tensors to a file."""
        received = self.training_start(site) if self.travels and self.sent.tensors else None
        training = parse_training(reply, self._expected(site), received, self._probed(site))
        if received is not None:
            self.registry.traffic.counts[site, kind_of(reply), FP32] += 4 * self.tensor_set.num_parameters
        self._record(site, training.sums, training.change, training.update.selection, training.deviations)
        stored = self.update_files.store(site, training.update.tensors)
        return replace(training, update=replace(training.update, tensors=stored))

    def check_updates(self, number: int, replies: Sequence[Reply[Training]]) -> dict[str, Update]:
        """Return the updates to aggregate, in federation order. Updates that no honest site can have sent are left out, too long ones
        are scaled down, and both are recorded. A site whose update is left out still counts for the quorum and is not set aside.

        Raises:
            RunError, RoundSkippedError: The updates of most sites are left out, and the others are too few for the quorum.
        """
        parsed = {reply.site: reply.parsed for reply in replies}
        updates = {site: training.update for site, training in parsed.items()}
        judged = self._judged(parsed)
        for site, verdict in judged.items():
            if verdict.factors is None:
                failure = Failure(updates.pop(site).site, f"left out: {verdict.reason}")
            else:
                failure = Failure(site, f"scaled down: {verdict.reason}", "scaled")
                updates[site] = self._scaled(updates[site], verdict.factors)
            self.phases.record.fail(failure, self.update_phase)
        if self.settings.aggregation == "norm-clip":
            norms = {site: length(parsed[site].change, judged.get(site)) for site in updates}
            for site, factor in norm_clip(norms, self.settings.clip_update_norm).items():
                updates[site] = self._scaled(updates[site], np.full(len(self.tensor_set.specs), factor))
        if 2 * len(updates) < len(parsed):
            self.phases.need_quorum(updates, self.update_phase)
        return updates | {site: self._current(number, updates[site]) for site in self.starts if site in updates}

    def _current(self, number: int, update: Update) -> Update:
        """Return an update as one of this round: w + s(t) (w_i - w'), with w' the tensors that site i got t rounds ago, w this round's
        and s(t) = (1 + t)^a; a is `async.age-exponent`, -1/2 in Nguyen et al. 2022 (algorithm 1 and section 5)."""
        staleness = number - self.asked_in(update.site)
        self.phases.record.of(update.site)["staleness"] = staleness
        now = flat_parts(self.model_for(self.sent, update.site), self.tensor_set)
        start = flat_parts(self.training_start(update.site), self.tensor_set)
        factor = (1 + staleness) ** self.settings.async_age_exponent
        return scaled(update, start, np.full(len(self.tensor_set.specs), factor), now)

    def aggregate_updates(self, number: int, replies: Sequence[Reply[Training]], updates: Mapping[str, Update]) -> State:
        """Return the state that `aggregate_train` makes of the accepted updates, as contents of the replies; record whose they are."""
        accepted = [reply for reply in replies if reply.site in updates]
        for reply in accepted:
            task = reply.message.content[protocol.TASK]
            reply.message.content = content_of(updates[reply.site], reply.parsed.sums, self.tensor_set, task)
        with timed(self.phases.record.server_s, "aggregate"):
            arrays, _ = self.aggregate_train(number, [reply.message for reply in accepted])
        self.progress.aggregated += [number] if accepted else []
        for reply in accepted:
            self.progress.stages.setdefault(reply.site, {})[self.asked_in(reply.site)] = self.attempt
            if self.travels:
                self.progress.digests[reply.site] = reply.parsed.digest
        return self.sent if arrays is None else state_of(arrays, self.sent)

    def code_downlink(self, number: int, state: State) -> State:
        """Return the state that the sites will have, under `send.code-down` from its coded change."""
        if self.settings.code_down.method == "none":
            return state
        with timed(self.phases.record.server_s, "code"):
            state, self.phases.holdings.payloads = encode_downlink(self.sent, state, self.tensor_set, self.settings, number)
        return state

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the next state's arrays and mean metrics. replies: checked, each with one ArrayRecord and one MetricRecord."""
        messages = list(replies)
        state = self.aggregate(self.sent, {site_of(reply): update_of(reply) for reply in messages})
        if self.settings.strategy:
            by = "rule" if getattr(self, "rule", None) else "aggregate"
            state = checked_state(f"{type(self).__name__}.{by}", state, self.sent)
        return arrays_of(state), mean_metrics(messages)

    # --- Evaluation --------------------------------------------------------------------------------------------------------------

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """Make a request for each site with the tensors that it would use after this round; none in round 0."""
        requests = self._requests(protocol.EVALUATE, state_of(arrays, self.state), grid, lambda _: server_round)
        due = set(self.due(server_round)) if self.settings.async_buffer else set(self.registry.expected)
        return [request for request in requests if site_of(request) in due]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return the federation's dev loss."""
        return MetricRecord({"dev_loss": cast(float, self.progress.loss(server_round, self.settings.best_by))})

    def evaluate(self, state: State, number: int, grid: Grid) -> list[Reply[Evaluation]]:
        """Measure the sites' dev losses under a state by separate messages, for the pending round if there is one."""
        ask = partial(self.configure_evaluate, number, arrays_of(state), ConfigRecord(), grid)
        replies = self.phases.exchange(grid, ask, "evaluate", self._parse_evaluation)
        of = number if self.progress.pending is None else self.progress.pending
        self.record_dev_losses(of, [(reply.message, reply.site, reply.parsed.sums) for reply in replies])
        return replies

    def record_dev_losses(self, number: int, replies: Sequence[tuple[Message, str, Sums]]) -> None:
        """Record the sites' dev losses after a round, and pass them to `aggregate_evaluate`."""
        losses = {site: sums for _, site, sums in replies}
        if self.settings.async_buffer:  # a site that is still training counts with its last measurement
            losses = {**self.progress.dev_losses.get(max(self.progress.dev_losses, default=0), {}), **losses}
        self.progress.dev_losses[number], self.progress.pending = losses, None
        messages = []
        for message, _, sums in replies:
            task = ConfigRecord({**message.content.config_records[protocol.TASK], "round": number})
            loss = MetricRecord({WEIGHT: sums["num_examples"], "eval_loss": sums["nll_sum"] / sums["num_tokens"]})
            messages.append(copy(message))
            messages[-1].content = RecordDict({protocol.TASK: task, protocol.METRICS: loss})
        self.aggregate_evaluate(number, messages)
        self.phases.record.measure(number, self.progress.loss(number, self.settings.best_by), losses)

    def summary(self) -> None:
        """Announce method, sites and clusters in the run's progress."""
        of_parts = ((part, names) for part, names in self.clusters.items() if self.tensor_set.of_part(part))
        clusters = "; ".join(f"{part}: {', '.join(names)}" for part, names in of_parts)
        self.note(f"{self.settings.method} over {len(self.registry.sites)} sites; {clusters}")

    # --- Checks of replies ---------------------------------------------------------------------------------------------------------

    def _probed(self, site: str) -> Sums | None:
        """Return the sums of a site's probe if the run has probes, since a later reply does not repeat them; else None."""
        return None

    def _judged(self, parsed: Mapping[str, Training]) -> dict[str, Verdict]:
        """Return site -> verdict for updates to leave out or scale down; store the lengths of the others for later rounds."""
        settings, names, furthest = self.settings, self.tensor_set.names, 1.0
        verdicts, distances = dict[str, Verdict](), dict[str, Distance]()
        for site, training in parsed.items() if self.travels and settings.max_update_ratio else ():
            sums, change = training.sums, training.change
            steps = int(min(sums["steps"], sums.get("num_examples", math.inf)))  # a step has at least one example
            began = self.asked_in(site)
            rates = learning_rates(self.trains_under.get(site, settings), began, max(1, steps))
            before = (began - 1) * len(rates) if settings.optimizer_state == "kept" else 0
            highest = max(highest_rate_before(settings, began, len(rates)), self.progress.highest_rate)
            fall = highest / float(rates.mean())
            furthest = max(furthest, further := stretch(settings.code_up, began, fall))
            if reason := out_of_reach(change, further * rates, settings, names, before):
                verdicts[site] = Verdict(reason)
            elif change.sent.any():
                distances[site] = Distance(len(rates), float(rates.mean()), change.rms)
        agreed = self._agreements({site: parsed[site].update for site in distances})
        lengths = self.progress.lengths.values()
        earlier = [Distance(past["steps"], past["rate"], np.array(past["change"], float)) for past in lengths]
        adam, opposing = settings.optimizer != "sgd", {site for site, agreement in agreed.items() if agreement < 0}
        verdicts |= judge(distances, earlier, adam, settings.max_update_ratio, names, furthest, opposing)
        verdicts |= {site: against(agreement) for site, agreement in agreed.items() if agreement < LEAST}
        opposed = self.progress.opposed
        for site in distances:
            if site in opposing and site in verdicts and verdicts[site].factors is None:
                opposed[site] = opposed.get(site, 0) + 1
            elif opposed.get(site, 0) >= MOST_OPPOSED:
                verdicts[site] = Verdict(f"it was left out in {opposed[site]} rounds because it opposed the other sites")
        self.progress.lengths |= {site: own.values() for site, own in distances.items() if site not in verdicts}
        return verdicts

    def _agreements(self, updates: Mapping[str, Update]) -> dict[str, float]:
        """Return site -> its agreement with the others of a cluster, in the part in which it agrees least."""
        least = dict[str, float]()
        for part, _, members in self.averaged_clusters():
            sites = [site for site in members if site in updates]
            ends = [flat_parts(updates[site].tensors, self.tensor_set)[part] for site in sites]
            starts = [flat_parts(self.training_start(site), self.tensor_set)[part] for site in sites]
            already = sum(least.get(site, 0.0) < LEAST for site in sites)
            for site, agreement in zip(sites, agreements(ends, starts, already), strict=True):
                least[site] = min(least.get(site, agreement), agreement)
        return least

    def _scaled(self, update: Update, factors: Numbers) -> Update:
        """Multiply the change of each tensor by its factor; the smallest factor goes into the round's record."""
        record = self.phases.record.of(update.site)
        record["scaled_to"] = record.get("scaled_to", 1.0) * float(factors.min())
        return scaled(update, flat_parts(self.training_start(update.site), self.tensor_set), factors)

    def _record(self, site: str, sums: Sums, change: Change, selection: Selection | None, deviations: Numbers | None) -> None:
        """Enter a training's figures into the round's record."""
        record = self.phases.record.of(site)
        record["seconds"]["train"] = round(sums["seconds"], 3)
        if protocol.SELECT_S in sums:
            record["seconds"]["select"] = round(sums[protocol.SELECT_S], 6)
        if protocol.THETA in sums:
            record["theta"] = sums[protocol.THETA]
        if "nll_sum" in sums:
            record["train_loss"] = sums["nll_sum"] / sums["num_tokens"]
        record["steps"] = int(sums["steps"])
        record["tensors_sent"] = selection.num_tensors if selection else len(self.tensor_set.specs) if self.travels else 0
        if self.travels:
            record["update_norm"] = change.norm
        if selection:
            record |= {"tensors_share": selection.share_of_tensors, "numbers_share": selection.share_of_numbers}
        if deviations is not None:
            # A tensor that was zero everywhere has no finite deviation, and JSON has no infinity.
            rounded = [float(f"{value:.6g}") if math.isfinite(value) else None for value in deviations.tolist()]
            self.folder.append("deviations.jsonl", {"round": self.phases.record.number, "site": site, "deviations": rounded})
            if finite := [value for value in rounded if value is not None]:
                record.setdefault("deviation", median(finite))  # a probed update has it already

    def _parse_evaluation(self, site: str, reply: Message) -> Evaluation:
        return Evaluation(parse_evaluation(reply, self._expected(site)))


def round_settings(settings: Settings, config: ConfigRecord) -> Settings:
    """Return a run's settings with those of a round's config; raise ConfigError for an unknown key, or a value that does not fit."""
    try:
        return for_round(settings, Task("", "", 1, 1).with_config(config).by_round)
    except FedlinguaError as error:
        raise ConfigError(f"strategy = {settings.strategy!r}: {error}") from error


def check_first_round(settings: Settings, make: Callable[[], Strategy]) -> None:
    """Raise ConfigError for what a class's own `configure_train` puts into the first round's config and sites do not know.

    It has neither sites nor tensors here, so what it sets after it has looked at these is checked when the round begins.
    """
    config = ConfigRecord()
    with suppress(Exception):
        list(make().configure_train(1, ArrayRecord(), config, cast(Grid, None)))
    round_settings(settings, ConfigRecord({key: value for key, value in config.items() if key != SERVER_ROUND}))


def mean_metrics(messages: Sequence[Message]) -> MetricRecord | None:
    return aggregate_metricrecords([message.content for message in messages], WEIGHT) if messages else None


def length(change: Change, verdict: Verdict | None) -> float:
    """Return the L2 norm of an update's change, as it is after a verdict has scaled it."""
    if verdict is None or verdict.factors is None:
        return change.norm
    return math.sqrt(float((np.square(verdict.factors, dtype=np.float64) * change.squares).sum()))
