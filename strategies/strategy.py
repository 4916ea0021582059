"""A strategy, and the rounds that are the same for all of them: ask, wait, parse, check, aggregate, evaluate, store.

A strategy of one's own subclasses this (or FedMean) and says how updates become the next state: `aggregate(state, updates)`, and
where need be with what it begins, `init(tensors)`, and what a site gets, `model_for(state, site)`; or it overrides one of
Flower's hooks, which get and give real records and messages. What it stores besides tensors lies in the state, so that a killed
run goes on. A class of Flower's, or a subclass of one, runs inside every cluster: strategies/stock.py.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from statistics import median
from typing import Any, TypeVar, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.serverapp.strategy.strategy_utils import aggregate_metricrecords

from fedlingua.clustering.clusters import Clusters
from fedlingua.common.timing import timed
from fedlingua.exchange import protocol
from fedlingua.exchange.joined import EndToEnd, Numbers, runs
from fedlingua.exchange.protocol import Task
from fedlingua.exchange.records import Packing, from_record
from fedlingua.exchange.tensors import Tensors, TensorSet
from fedlingua.runs.checkpoints import Checkpoint
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.config import Phase, Settings
from strategies.aggregation import State, start_everywhere, tensors_for
from strategies.checks import MOST_LOSS, size_limit
from strategies.flower_records import WEIGHT, arrays_of, content_of, site_of, state_of, update_of
from strategies.outliers import MOST_STEPS, Distance, Verdict, judge, learning_rates, out_of_reach
from strategies.phases import Parser, Phases, RoundSkippedError
from strategies.progress import Progress
from strategies.registration import Registry
from strategies.replies import Failure, Reply
from strategies.reply_contents import Evaluation, Expected, Scores, Training, parse_evaluation, parse_scores, parse_training
from strategies.robust_rules import norm_clip
from strategies.updates import Update, UpdateFiles, scaled_down

PHASES: dict[str, Phase] = {
    protocol.TRAIN: "train",
    protocol.PROBE: "train",
    protocol.SEND: "send",
    protocol.EVALUATE: "evaluate",
    protocol.FINISH: "finish",
}
T = TypeVar("T")


@dataclass(frozen=True)
class Federated:
    """The run that a strategy is made for."""

    settings: Settings
    registry: Registry
    clusters: Clusters
    tensor_set: TensorSet
    folder: RunFolder


class SiteStrategy(Strategy):
    """Base of all strategies. `state` is that of the last stored round; `progress` all else that a resumed run needs.

    travels: whether updates come back. update_phase: in which phase, "send" where a threshold comes in between. one_best_round: whether
    the federation chooses one best round or every site its own.
    """

    travels = True
    update_phase: Phase = "train"
    one_best_round = True

    def __init__(self, of: Federated) -> None:
        self.settings, self.registry, self.clusters = of.settings, of.registry, of.clusters
        self.tensor_set, self.folder = of.tensor_set, of.folder
        run = of.folder.read("run.json") or {}
        self.run_id, self.attempt = str(run.get("id", "")), int(run.get("attempt", 1))
        self.state = self.sent = State({})
        """`sent`: what the requests of the round at work carry, as Flower's FedAdam has its `current_arrays`."""
        self.progress = Progress(Random(f"{of.settings.seed}/server"))
        self.scores: dict[str, Scores] = {}
        self.phases = Phases(of.settings, of.registry, of.folder)
        self.update_files = UpdateFiles(of.folder.directory, len(of.registry.expected))
        self.note = self.phases.note
        self.result = Result()

    # --- What a method says ----------------------------------------------------------------------------------------------------

    def init(self, tensors: Tensors) -> State:
        """The state before the first round: the same tensors in every cluster."""
        return State(start_everywhere(tensors, self.tensor_set, self.clusters))

    def model_for(self, state: State, site: str) -> Tensors:
        """The tensors that a site gets; none when its own stay with it."""
        return tensors_for(site, state.tensors, self.tensor_set, self.clusters)

    def aggregate(self, state: State, updates: Mapping[str, Update]) -> State:
        """The next state. updates: site -> its checked update, in federation order; they last no longer than the round."""
        raise NotImplementedError(f"{type(self).__name__} says neither aggregate nor aggregate_train")

    # --- Flower's hooks --------------------------------------------------------------------------------------------------------

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """A request for each site that is here: its own clusters' part of `arrays`, and `config` where there is any."""
        return self._train_requests(protocol.TRAIN, server_round, arrays, grid, config)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The arrays of the next state, and the sites' mean metrics. replies: checked ones, with one ArrayRecord and one MetricRecord."""
        messages = list(replies)
        state = self.aggregate(self.sent, {site_of(reply): update_of(reply) for reply in messages})
        return arrays_of(state), self._mean_metrics(messages)

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """A request for each site: what it would use after this round. Round 0 asks for the base and carries nothing."""
        return self._requests(protocol.EVALUATE, state_of(arrays, self.state), grid, lambda _: server_round)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The federation's dev loss."""
        return MetricRecord({"dev_loss": cast(float, self.progress.loss(server_round, self.settings.best_by))})

    def summary(self) -> None:
        """Say in the run's progress what is about to happen."""
        clusters = "; ".join(
            f"{part}: {', '.join(names)}" for part, names in self.clusters.items() if self.tensor_set.of_part(part)
        )
        self.note(f"{self.settings.method} over {len(self.registry.sites)} sites; {clusters}")

    # --- One round -------------------------------------------------------------------------------------------------------------

    def round(self, state: State, number: int, measures: bool, grid: Grid) -> State:
        """What the round makes of a state; the run's own stays as it is meanwhile.

        Raises:
            RunError: too few good replies; or RoundSkippedError, where the run goes on without the round.
        """
        if number > 0:
            config = ConfigRecord({protocol.PROXIMAL_MU: self.settings.pull}) if self.settings.pull else ConfigRecord()
            state = self.train(state, number, config, grid)
        if measures:
            self.evaluate(state, number, ConfigRecord(), grid)
        return state

    def train(self, state: State, number: int, config: ConfigRecord, grid: Grid) -> State:
        """From the first request of a round to the next state."""
        ask = partial(self.configure_train, number, arrays_of(state), config, grid)
        replies = self._exchange(grid, ask, self.update_phase, self._parse_training)
        return self.aggregated(number, replies, self.checked(number, replies))

    def aggregated(self, number: int, replies: Sequence[Reply[Training]], updates: Mapping[str, Update]) -> State:
        """The state that `aggregate_train` makes of the accepted updates."""
        accepted = [reply for reply in replies if reply.site in updates]
        for reply in accepted:
            task = reply.message.content[protocol.TASK]
            reply.message.content = content_of(updates[reply.site], reply.parsed.sums, self.tensor_set, task)
        with timed(self.phases.record.server_s, "aggregate"):
            arrays, metrics = self.aggregate_train(number, [reply.message for reply in accepted])
        state = self.sent if arrays is None else state_of(arrays, self.sent)
        if metrics is not None:
            self.result.train_metrics_clientapp[number] = metrics
        for reply in accepted:
            self.progress.stages.setdefault(reply.site, {})[number] = self.attempt
            if self.travels:
                self.progress.digests[reply.site] = reply.parsed.digest
        return state

    def checked(self, number: int, replies: Sequence[Reply[Training]]) -> dict[str, Update]:
        """The updates that count, in federation order: what no honest site can have sent is left out, what is too long scaled down, and
        either is named. A site whose update is left out has answered all the same, counts for the quorum and is not set aside.

        Raises:
            RunError: of most sites nothing is left.
        """
        parsed = {reply.site: reply.parsed for reply in replies}
        updates = {site: training.update for site, training in parsed.items()}
        for site, verdict in self._judged(parsed, number).items():
            if verdict.factors is None:
                failure = Failure(updates.pop(site).site, f"left out: {verdict.reason}")
            else:
                failure = Failure(site, f"scaled down: {verdict.reason}", "scaled")
                updates[site] = self._scaled(updates[site], verdict.factors)
            self.phases.record.fail(failure, self.update_phase)
        if self.settings.aggregation == "norm-clip":
            norms = {site: parsed[site].change.norm for site in updates}
            for site, factor in norm_clip(norms, self.settings.clip_update_norm).items():
                updates[site] = self._scaled(updates[site], np.full(len(self.tensor_set.specs), factor))
        if 2 * len(updates) < len(parsed):
            self.phases.need_quorum(updates, self.update_phase)
        return updates

    def _judged(self, parsed: Mapping[str, Training], number: int) -> dict[str, Verdict]:
        """site -> verdict on its update, of those that are not taken as they came; lengths of the others are stored for later rounds."""
        settings, names, distances = self.settings, self.tensor_set.names, dict[str, Distance]()
        verdicts: dict[str, Verdict] = {}
        for site, training in parsed.items() if self.travels and settings.max_update_ratio else ():
            steps = int(min(training.sums["steps"], training.sums["num_examples"]))  # a step has an example at least
            rates = learning_rates(settings, number, max(1, steps))
            # A mean of Adams may have more steps behind it than the site's own.
            before = {"fresh": 0, "kept": (number - 1) * len(rates), "averaged": MOST_STEPS}[settings.optimizer_state]
            if reason := out_of_reach(training.change, rates, settings, names, before):
                verdicts[site] = Verdict(reason)
            elif training.change.sent.any():
                distances[site] = Distance(len(rates), float(rates.mean()), training.change.rms)
        earlier = [
            Distance(past["steps"], past["rate"], np.array(past["change"], float)) for past in self.progress.lengths.values()
        ]
        verdicts |= judge(distances, earlier, settings.optimizer != "sgd", settings.max_update_ratio, names)
        self.progress.lengths |= {site: own.values() for site, own in distances.items() if site not in verdicts}
        return verdicts

    def _scaled(self, update: Update, factors: Numbers) -> Update:
        """The update with a share of each tensor's change; the share of the one that lost most goes into the round's record."""
        record = self.phases.record.of(update.site)
        record["scaled_to"] = record.get("scaled_to", 1.0) * float(factors.min())
        start = {part: EndToEnd(pieces) for part, pieces in self._received(update.site).items()}
        return scaled_down(update, start, factors)

    def evaluate(self, state: State, number: int, config: ConfigRecord, grid: Grid) -> list[Reply[Evaluation]]:
        """The sites' dev losses under a state."""
        ask = partial(self.configure_evaluate, number, arrays_of(state), config, grid)
        replies = self._exchange(grid, ask, "evaluate", self._parse_evaluation)
        self.progress.dev_losses[number] = {reply.site: reply.parsed.sums for reply in replies}
        for reply in replies:
            sums, task = reply.parsed.sums, reply.message.content[protocol.TASK]
            loss = MetricRecord({WEIGHT: sums["num_examples"], "eval_loss": sums["nll_sum"] / sums["num_tokens"]})
            reply.message.content = RecordDict({protocol.TASK: task, protocol.METRICS: loss})
        metrics = self.aggregate_evaluate(number, [reply.message for reply in replies])
        if metrics is not None:
            self.result.evaluate_metrics_clientapp[number] = metrics
        return replies

    def _mean_metrics(self, messages: Sequence[Message]) -> MetricRecord | None:
        contents = [message.content for message in messages]
        return aggregate_metricrecords(contents, WEIGHT) if contents else None

    # --- All rounds ------------------------------------------------------------------------------------------------------------

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Any = None,
    ) -> Result:
        """Run all rounds (those that are left, of a resumed run), choose the best, deliver it, and score it once.

        Raises:
            RunError: a phase below the quorum; the message names the sites.
        """
        self.summary()
        self.update_files.clear()  # what a killed server has left
        self.state = replace(self.init(from_record(initial_arrays)), round=-1)
        del initial_arrays  # once is enough of a full model
        if self.settings.resume:
            self._resume()
        patience, min_gain, best_by = self.settings.patience, self.settings.min_gain, self.settings.best_by
        # Patience ends where a round is measured: of one that is not nobody can say that it was no better.
        while self.progress.round < num_rounds and not (
            self._measures(self.progress.round, num_rounds) and self.progress.is_stale(patience, min_gain, best_by)
        ):
            self._run_round(grid, self.progress.round + 1, num_rounds)
        if self.progress.round < num_rounds:
            self.note(f"stopped after round {self.progress.round}: no better dev loss in {patience} rounds")
        self._finish(grid, num_rounds)
        return self.result

    def _run_round(self, grid: Grid, number: int, num_rounds: int) -> None:
        started = time.monotonic()
        self.phases.begin_round(number, num_rounds)
        state = self.state
        try:
            state = self.round(state, number, self._measures(number, num_rounds), grid)
        except RoundSkippedError as skipped:
            self.progress.forget(number)
            self.note(f"{skipped}; its tensors stay as they were before")
        finally:
            self.sent = State({})
            self.update_files.clear()
        self._store(replace(state, round=number), num_rounds, time.monotonic() - started)

    def _measures(self, number: int, num_rounds: int) -> bool:
        """Whether the dev loss is measured after a round."""
        return number % self.settings.evaluate_every == 0 or number == num_rounds

    def _store(self, state: State, num_rounds: int, seconds: float) -> None:
        """Make a round's state the run's, and a checkpoint."""
        self.state, number = state, state.round
        record, earlier_best = self.phases.record, self.progress.best_round
        self.progress.round = number
        dev_loss = self.progress.loss(number, self.settings.best_by)
        line = {"round": number, "attempt": self.attempt, "seconds": round(seconds, 3), "dev_loss": dev_loss}
        self.folder.add_round({**line, **record.line()})
        if number > 0:
            self.progress.traffic += record.traffic
            self.progress.savings += record.savings
            self.progress.choose_best(self.settings.best_by)
            if self.progress.outvoted:
                best = self.progress.best_round
                self.note(f"the best round is {best}: site {self.progress.outvoted} alone would have another")
        values = {"progress": self.progress.values(), "strategy": dict(state.values)}
        self.folder.checkpoints.save(number, state.tensors, state.memory, values)
        # The round before stays, with its best, in case this one is damaged later.
        every = self.settings.keep_every
        besides = range(every, number + 1, every) if every else ()
        self.folder.checkpoints.prune({number, number - 1, self.progress.best_round, earlier_best, *besides})
        self.folder.update(rounds=number, best_round=self.progress.best_round)
        uplink = sum(up for up, _ in record.traffic)
        self.folder.event(
            "round", round=number, rounds=num_rounds, dev_loss=dev_loss, seconds=round(seconds, 3), uplink_bytes=uplink
        )

    def _resume(self) -> None:
        """Go back to the last round that is whole; what is damaged is passed over and named."""
        newest, passed_over = self.folder.checkpoints.newest_good(self._has_its_best)
        for reason in passed_over:
            self.note(f"checkpoint passed over: {reason}")
        if newest is None:
            self.note("no good checkpoint is left, so the run begins again at its start")
        else:
            self.state = State(newest.tensors, newest.number, newest.own, newest.values["strategy"])
            self.progress = Progress.of(newest.number, newest.values["progress"])
            self.note(f"resumed after round {newest.number}, attempt {self.attempt}")
        self.folder.cut_rounds(self.progress.round)
        self.folder.update(rounds=max(0, self.progress.round), best_round=self.progress.best_round)

    def _has_its_best(self, checkpoint: Checkpoint) -> None:
        """Refuse a round whose best round is not there any more: going on from an earlier one makes that one again."""
        best = int(checkpoint.values["progress"]["best_round"])
        if self.travels and best > 0:
            self.folder.checkpoints.load(best)

    def _finish(self, grid: Grid, num_rounds: int) -> None:
        """Deliver the best round's tensors and gather the scores."""
        best, state = self._best_rounds(), self.state
        self.phases.begin_round(num_rounds, num_rounds)
        if self.travels and self.progress.best_round > 0:
            stored = self.folder.checkpoints.load(self.progress.best_round)
            self.state = state = State(stored.tensors, values=stored.values["strategy"])
        self.result.arrays = arrays_of(state)
        ask = partial(self._requests, protocol.FINISH, state, grid, best.__getitem__)
        replies = self._exchange(grid, ask, "finish", self._parse_scores)
        self.scores = {text: scores for reply in replies for text, scores in reply.parsed.items()}
        best_round = self.progress.best_round if self.one_best_round else best
        self.folder.update(best_round=best_round, failures_at_the_end=self.phases.record.failures)

    def _best_rounds(self) -> dict[str, int]:
        """Site -> the round it uses: one for all by the federation's dev loss, or each site's own best."""
        if self.one_best_round:
            return dict.fromkeys(self.registry.expected, self.progress.best_round)
        return {site: self._best_up_to(site, self.progress.round) for site in self.registry.expected}

    def _best_up_to(self, site: str, last: int) -> int:
        """The round that the site would use if round `last` were the run's end."""
        if self.one_best_round:
            return self.progress.best_up_to(last, self.settings.best_by)
        return self.progress.own_best(site, last, self.settings.best_by)

    # --- Requests --------------------------------------------------------------------------------------------------------------

    def _train_requests(
        self, message_type: str, number: int, arrays: ArrayRecord, grid: Grid, config: ConfigRecord
    ) -> list[Message]:
        """One for each site that is here, with its own clusters' tensors. config: what its training goes by besides the settings."""
        self.sent, packing, messages = state_of(arrays, self.state), Packing(self.tensor_set), []
        for site in self.phases.available(grid, "train", self.progress):
            tensors = packing.pack(self.model_for(self.sent, site))
            messages.append(self._request(message_type, site, number, tensors, number - 1))
            if config:
                messages[-1].content[protocol.CONFIG] = config
        return messages

    def _requests(self, message_type: str, state: State, grid: Grid, round_of: Callable[[str], int]) -> list[Message]:
        """One for each site that is here, with what it would use of a state. round_of: site -> the round that it is of; 0 is the base."""
        packing, messages = Packing(self.tensor_set), []
        for site in self.phases.available(grid, PHASES[message_type], self.progress):
            number = round_of(site)
            arrays = packing.pack(self.model_for(state, site) if number else {})
            messages.append(self._request(message_type, site, number, arrays, number))
        return messages

    def _request(self, message_type: str, site: str, number: int, arrays: ArrayRecord, own_round: int) -> Message:
        """A request. own_round: the round whose own tensors the site is to take, where any stay with it."""
        deadline = self.settings.deadline_of(PHASES[message_type])
        task = self._task(site, number, own_round, PHASES[message_type] in ("train", "send"))
        return self.registry.request(message_type, task, deadline, arrays)

    def _task(self, site: str, number: int, own_round: int, trains: bool) -> Task:
        all_travels = self.travels and not self.settings.private
        if all_travels and not (trains and self.settings.remembers):
            return Task(site, self.run_id, self.attempt, number)
        # As in the checkpoints: this round and the one before, each with its best; what a selection compares with is never delivered.
        last = [own_round, own_round - 1]
        wanted = [*last, *(self._best_up_to(site, up_to) for up_to in last if not all_travels)]
        keep = dict.fromkeys(self.progress.own(site, past) for past in wanted)
        own = self.progress.own(site, own_round)
        return Task(site, self.run_id, self.attempt, number, own, tuple(stage for stage in keep if stage[0]))

    # --- Replies ---------------------------------------------------------------------------------------------------------------

    def _exchange(self, grid: Grid, ask: Callable[[], Iterable[Message]], phase: Phase, parse: Parser[T]) -> list[Reply[T]]:
        carried = self.tensor_set if self.travels and phase == self.update_phase else None
        most_bytes = size_limit(carried, self.settings.selects_numbers)
        return self.phases.exchange(grid, ask, phase, parse, self.progress, most_bytes)

    def _received(self, site: str) -> dict[str, list[Numbers]]:
        """part -> the numbers that this round's training starts from at a site."""
        return runs(self.model_for(self.sent, site), self.tensor_set)

    def _expected(self, site: str) -> Expected:
        received = self._received(site) if self.travels and self.sent.tensors else None
        about, earlier = self.registry.about[site], self.progress.digests.get(site)
        most_loss = MOST_LOSS * math.log(self.registry.vocabulary)
        return Expected(site, self.settings, about, self.tensor_set, received, earlier, most_loss, self.phases.most_seconds)

    def _parse_training(self, site: str, reply: Message, size: int) -> Training:
        return self._recorded(parse_training(reply, self._expected(site)))

    def _recorded(self, training: Training) -> Training:
        """The same, once the round's record has its figures; large tensors lie in a file from now on."""
        site, selection = training.update.site, training.update.selection
        record = self.phases.record.of(site)
        record["seconds"]["train"] = round(training.sums["seconds"], 3)
        if protocol.SELECT_S in training.sums:
            record["seconds"]["select"] = round(training.sums[protocol.SELECT_S], 6)
        if protocol.THETA in training.sums:
            record["theta"] = training.sums[protocol.THETA]
        record["train_loss"] = training.sums["nll_sum"] / training.sums["num_tokens"]
        record["steps"] = int(training.sums["steps"])
        record["tensors_sent"] = selection.num_tensors if selection else len(training.update.tensors)
        if self.travels:
            record["update_norm"] = training.change.norm
        if selection and self.settings.selected_by != "all":
            record["tensors_share"] = selection.share_of_tensors
            record["numbers_share"] = selection.share_of_numbers
        if training.deviations is not None:
            # What was zero everywhere has none; JSON knows no infinity.
            rounded = [float(f"{value:.6g}") if math.isfinite(value) else None for value in training.deviations.tolist()]
            self.folder.add_deviations({"round": self.phases.record.number, "site": site, "deviations": rounded})
            if finite := [value for value in rounded if value is not None]:
                record.setdefault("deviation", median(finite))  # of an update that was probed it is known already
        stored = self.update_files.store(site, training.update.tensors)
        return replace(training, update=replace(training.update, tensors=stored))

    def _parse_evaluation(self, site: str, reply: Message, size: int) -> Evaluation:
        earlier = next((losses[site] for losses in self.progress.dev_losses.values() if site in losses), None)
        sums = parse_evaluation(reply, self._expected(site), earlier)
        record = self.phases.record.of(site)
        record["seconds"]["evaluate"] = round(sums["seconds"], 3)
        record["dev_loss"], record["dev_tokens"] = sums["nll_sum"] / sums["num_tokens"], int(sums["num_tokens"])
        return Evaluation(sums)

    def _parse_scores(self, site: str, reply: Message, size: int) -> dict[str, Scores]:
        texts = [member.name for member in self.registry.members[site]]
        mixed = self.registry.federation.rules.split.mixed
        return parse_scores(reply, self._expected(site), texts, mixed)
