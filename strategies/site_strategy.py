"""The rounds of a federation of named sites, the same for every method: ask, send, check, fold, evaluate, keep, choose, score.

A strategy of one's own subclasses this (or FedMean) and says three things: the tensors it begins with, what a site gets, and how
updates fold into the next state. What it keeps besides `state` it declares in `declared_state`, so that a killed run can go on.
"""

import math
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from random import Random
from statistics import median
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedlingua.clustering.clusters import Clusters
from fedlingua.common.timing import timed
from fedlingua.exchange import protocol
from fedlingua.exchange.joined import EndToEnd, Numbers, runs
from fedlingua.exchange.protocol import Task
from fedlingua.exchange.records import Packing, from_record
from fedlingua.exchange.tensor_sets import TENSOR_SETS
from fedlingua.exchange.tensors import Tensors, TensorSet
from fedlingua.runs.checkpoints import Checkpoint, ClusterTensors
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.config import Phase, Settings
from strategies.aggregation import Update
from strategies.checks import MOST_LOSS, size_limit
from strategies.conversation import Conversation, Reader, RoundSkippedError
from strategies.outliers import Trained, Verdict, judge, learning_rates, out_of_reach
from strategies.progress import Progress, Sums
from strategies.readings import Asked, Scores, Training, read_evaluation, read_scores, read_training
from strategies.replies import Failure
from strategies.robust_rules import norm_clip
from strategies.roll_call import Roll
from strategies.scaling import scaled_down
from strategies.update_files import UpdateFiles

PHASES: dict[str, Phase] = {
    protocol.TRAIN: "train",
    protocol.PROBE: "train",
    protocol.SEND: "send",
    protocol.EVALUATE: "evaluate",
    protocol.FINISH: "finish",
}


class SiteStrategy(Strategy):
    """Base of this project's strategies; `state` holds each cluster's tensors, `progress` all else that a resumed run needs.

    travels: whether updates come back. update_phase: in which phase, "send" where a threshold comes in between. one_best_round: whether
    the federation chooses one best round or every site its own.
    """

    travels = True
    update_phase: Phase = "train"
    one_best_round = True

    def __init__(self, settings: Settings, roll: Roll, clusters: Clusters, tensor_set: TensorSet, folder: RunFolder) -> None:
        self.settings, self.roll, self.clusters, self.tensor_set, self.folder = settings, roll, clusters, tensor_set, folder
        run = folder.read("run.json") or {}
        self.run_id, self.attempt = str(run.get("id", "")), int(run.get("attempt", 1))
        self.state: ClusterTensors = {}
        self.progress = Progress(Random(f"{settings.seed}/server"))
        self.scores: dict[str, Scores] = {}
        self.conversation = Conversation(settings, roll, folder)
        self.update_files = UpdateFiles(folder.directory, len(roll.expected))
        self._sent: dict[str, dict[str, list[Numbers]]] = {}
        """site -> part -> the numbers that this round's training starts from"""

    # --- What a method says ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def begin(self, initial: Tensors) -> None:
        """Set `state` before the first round."""

    @abstractmethod
    def downlink(self, site: str) -> Tensors:
        """The tensors that a site gets; none when its own stay with it."""

    @abstractmethod
    def fold(self, updates: Mapping[str, Update]) -> None:
        """Make the next `state` of the updates, which come in federation order and are checked. They last no longer than the fold."""

    def declared_state(self) -> tuple[Tensors, dict[str, Any]]:
        """What the strategy keeps from round to round besides `state`: named tensors, and values that JSON holds."""
        return {}, {}

    def restore(self, tensors: Tensors, values: Mapping[str, Any]) -> None:
        """Take back what `declared_state` gave."""

    # --- One round, as Flower names it -----------------------------------------------------------------------------------------

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """One message for each site: its own clusters' tensors. `arrays` is not used: sites of different clusters get different ones."""
        return self.ask_to_train(protocol.TRAIN, server_round, grid)

    def ask_to_train(self, message_type: str, server_round: int, grid: Grid) -> list[Message]:
        """One message for each site that is here: its own clusters' tensors."""
        packing, messages = Packing(self.tensor_set), []
        for site in self.conversation.sites_here(grid, "train", self.progress):
            tensors = self.downlink(site)
            self._sent[site] = runs(tensors, self.tensor_set)
            messages.append(self._message(message_type, site, server_round, packing.pack(tensors), server_round - 1))
        return messages

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Fold the updates that came: what no honest site can have sent is left out, what is too long scaled down, and either is named.
        Whose update is left out has answered all the same, counts for the quorum and is not set aside.

        Raises:
            RunError: of most sites nothing is left.
        """
        heard: dict[str, Training] = self.conversation.heard(replies)
        updates = {site: heard[site].update for site in self.roll.expected if site in heard}
        for site, verdict in self._judged(heard, server_round).items():
            if verdict.factors is None:
                failure = Failure(updates.pop(site).site, f"left out: {verdict.reason}")
            else:
                failure = Failure(site, f"scaled down: {verdict.reason}", "scaled")
                updates[site] = self._scaled(updates[site], verdict.factors)
            self.conversation.record.fail(failure, self.update_phase)
        if self.settings.aggregation == "norm-clip":
            norms = {site: heard[site].change.norm for site in updates}
            for site, factor in norm_clip(norms, self.settings.clip_update_norm).items():
                updates[site] = self._scaled(updates[site], np.full(len(self.tensor_set.specs), factor))
        if 2 * len(updates) < len(heard):
            self.conversation.need_quorum(updates, self.update_phase)
        with timed(self.conversation.record.server_s, "aggregate"):
            self.fold(updates)
        for site in updates:
            self.progress.stages.setdefault(site, {})[server_round] = self.attempt
            if self.travels:
                self.progress.digests[site] = heard[site].digest
        return None, None

    def _judged(self, heard: Mapping[str, Training], number: int) -> dict[str, Verdict]:
        """site -> verdict on its update, of those that are not taken as they came; lengths of the others are kept for later rounds."""
        settings, names, trained = self.settings, self.tensor_set.names, dict[str, Trained]()
        found: dict[str, Verdict] = {}
        for site, training in heard.items() if self.travels and settings.max_update_ratio else ():
            steps = int(min(training.sums["steps"], training.sums["num_examples"]))  # a step has an example at least
            rates = learning_rates(settings, number, max(1, steps))
            if reason := out_of_reach(training.change, rates, settings, names):
                found[site] = Verdict(reason)
            elif training.change.sent.any():
                trained[site] = Trained(len(rates), float(rates.mean()), training.change.rms)
        earlier = [
            Trained(told["steps"], told["rate"], np.array(told["change"], float)) for told in self.progress.lengths.values()
        ]
        found |= judge(trained, earlier, settings.optimizer != "sgd", settings.max_update_ratio, names)
        self.progress.lengths |= {site: own.values() for site, own in trained.items() if site not in found}
        return found

    def _scaled(self, update: Update, factors: Numbers) -> Update:
        """The update with so much of each tensor's change; what is left of the one that lost most goes into the round's record."""
        record = self.conversation.record.of(update.site)
        record["scaled_to"] = record.get("scaled_to", 1.0) * float(factors.min())
        return scaled_down(update, {part: EndToEnd(pieces) for part, pieces in self._sent[update.site].items()}, factors)

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """One message for each site: what it would use after this round. Round 0 asks for the base and carries nothing."""
        packing = Packing(self.tensor_set)
        return [
            self._message(
                protocol.EVALUATE, site, server_round, packing.pack(self.downlink(site) if server_round else {}), server_round
            )
            for site in self.conversation.sites_here(grid, "evaluate", self.progress)
        ]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Every site's dev loss, as sums."""
        heard: dict[str, Sums] = self.conversation.heard(replies)
        self.progress.dev_losses[server_round] = {site: heard[site] for site in self.roll.expected if site in heard}
        return MetricRecord({"dev_loss": cast(float, self.progress.loss(server_round, self.settings.best_by))})

    def summary(self) -> None:
        """Say in the run's progress what is about to happen."""
        clusters = "; ".join(
            f"{part}: {', '.join(names)}" for part, names in self.clusters.items() if self.tensor_set.of_part(part)
        )
        self.folder.event("note", text=f"{self.settings.method} over {len(self.roll.sites)} sites; {clusters}")

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
        self.begin(from_record(initial_arrays))
        del initial_arrays  # once is enough of a full model
        if self.settings.resume:
            self._resume()
        patience, min_gain, best_by = self.settings.patience, self.settings.min_gain, self.settings.best_by
        # Patience ends where a round is measured: of one that is not nobody can say that it was no better.
        while self.progress.round < num_rounds and not (
            self._measures(self.progress.round, num_rounds) and self.progress.is_stale(patience, min_gain, best_by)
        ):
            self._round(grid, self.progress.round + 1, num_rounds)
        if self.progress.round < num_rounds:
            text = f"stopped after round {self.progress.round}: no better dev loss in {patience} rounds"
            self.folder.event("note", text=text)
        self._finish(grid, num_rounds)
        return Result()

    def _round(self, grid: Grid, number: int, num_rounds: int) -> None:
        started = time.monotonic()
        self.conversation.begin_round(number)
        before, (own, values) = self.state, self.declared_state()
        arguments = (number, ArrayRecord(), ConfigRecord(), grid)
        try:
            if number > 0:
                self.train(*arguments, num_rounds)
            if self._measures(number, num_rounds):
                ask = partial(self.configure_evaluate, *arguments)
                self.aggregate_evaluate(number, self._exchange(grid, ask, "evaluate", self._read_evaluation, num_rounds))
        except RoundSkippedError as skipped:
            self.state = before
            self.restore(own, values)
            for trained in self.progress.stages.values():
                trained.pop(number, None)
            self.folder.event("note", text=f"{skipped}; its tensors stay as they were before")
        finally:
            self._sent = {}
            self.update_files.clear()
        self._close_round(number, num_rounds, time.monotonic() - started)

    def _measures(self, number: int, num_rounds: int) -> bool:
        """Whether the dev loss is measured after a round."""
        return number % self.settings.evaluate_every == 0 or number == num_rounds

    def train(self, number: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid, num_rounds: int) -> None:
        """From the first message of a round to the next `state`."""
        ask = partial(self.configure_train, number, arrays, config, grid)
        self.aggregate_train(number, self._exchange(grid, ask, self.update_phase, self._read_training, num_rounds))

    def _close_round(self, number: int, num_rounds: int, seconds: float) -> None:
        record, earlier_best = self.conversation.record, self.progress.best_round
        self.progress.round = number
        dev_loss = self.progress.loss(number, self.settings.best_by)
        told = {"round": number, "attempt": self.attempt, "seconds": round(seconds, 3), "dev_loss": dev_loss}
        self.folder.add_round({**told, **record.line()})
        if number > 0:
            self.progress.traffic += record.traffic
            self.progress.savings += record.savings
            self.progress.choose_best(self.settings.best_by)
            if self.progress.outvoted:
                text = f"the best round is {self.progress.best_round}: site {self.progress.outvoted} alone would have another"
                self.folder.event("note", text=text)
        own, values = self.declared_state()
        self.folder.checkpoints.save(number, self.state, own, {"progress": self.progress.values(), "strategy": values})
        # The round before stays, with its best, in case this one is damaged later.
        self.folder.checkpoints.prune({number, number - 1, self.progress.best_round, earlier_best, *self._kept_besides(number)})
        self.folder.update(rounds=number, best_round=self.progress.best_round)
        uplink = sum(up for up, _ in record.traffic)
        self.folder.event(
            "round", round=number, rounds=num_rounds, dev_loss=dev_loss, seconds=round(seconds, 3), uplink_bytes=uplink
        )

    def _kept_besides(self, last: int) -> Iterable[int]:
        """Rounds that stay to be gone on from, whatever becomes of the run."""
        every = self.settings.keep_every
        return range(every, last + 1, every) if every else ()

    def _resume(self) -> None:
        """Go back to the last round that is whole; what is damaged is passed over and named."""
        found, passed_over = self.folder.checkpoints.newest_good(self._has_its_best)
        for reason in passed_over:
            self.folder.event("note", text=f"checkpoint passed over: {reason}")
        if found is None:
            self.folder.event("note", text="no good checkpoint is left, so the run begins again at its start")
        else:
            self.state = found.tensors
            self.progress = Progress.of(found.number, found.values["progress"])
            self.restore(found.own, found.values["strategy"])
            self.folder.event("note", text=f"resumed after round {found.number}, attempt {self.attempt}")
        self.folder.cut_rounds(self.progress.round)
        self.folder.update(rounds=max(0, self.progress.round), best_round=self.progress.best_round)

    def _has_its_best(self, checkpoint: Checkpoint) -> None:
        """Refuse a round whose best round is not there any more: going on from an earlier one makes that one again."""
        best = int(checkpoint.values["progress"]["best_round"])
        if self.travels and best > 0:
            self.folder.checkpoints.load(best)

    def _finish(self, grid: Grid, num_rounds: int) -> None:
        """Deliver the best round's tensors and gather the scores."""
        best = self._best_rounds()
        self.conversation.begin_round(num_rounds)
        if self.travels and self.progress.best_round > 0:
            self.state = self.folder.checkpoints.load(self.progress.best_round).tensors

        def ask() -> list[Message]:
            packing = Packing(self.tensor_set)
            return [
                self._message(
                    protocol.FINISH, site, best[site], packing.pack(self.downlink(site) if best[site] else {}), best[site]
                )
                for site in self.conversation.sites_here(grid, "finish", self.progress)
            ]

        heard = self.conversation.heard(self._exchange(grid, ask, "finish", self._read_scores, num_rounds))
        self.scores = {text: scores for site in self.roll.expected if site in heard for text, scores in heard[site].items()}
        best_round = self.progress.best_round if self.one_best_round else best
        self.folder.update(best_round=best_round, failures_at_the_end=self.conversation.record.failures)

    def _best_rounds(self) -> dict[str, int]:
        """Site -> the round it uses: one for all by the federation's dev loss, or each site's own best."""
        if self.one_best_round:
            return dict.fromkeys(self.roll.expected, self.progress.best_round)
        return {site: self._best_up_to(site, self.progress.round) for site in self.roll.expected}

    def _best_up_to(self, site: str, last: int) -> int:
        """The round that the site would use if round `last` were the run's end."""
        if self.one_best_round:
            return self.progress.best_up_to(last, self.settings.best_by)
        return self.progress.own_best(site, last, self.settings.best_by)

    # --- Messages and what their replies say -----------------------------------------------------------------------------------

    def _message(self, message_type: str, site: str, number: int, arrays: ArrayRecord, own_round: int) -> Message:
        """A request. own_round: the round whose own tensors the site is to take, where any stay with it."""
        deadline = self.settings.deadline_of(PHASES[message_type])
        task = self._task(site, number, own_round, PHASES[message_type] in ("train", "send"))
        return self.roll.request(message_type, task, deadline, arrays)

    def _task(self, site: str, number: int, own_round: int, trains: bool) -> Task:
        all_travels = self.travels and TENSOR_SETS[self.settings.trained_set].travels_whole
        if all_travels and not (trains and self.settings.remembers):
            return Task(site, self.run_id, self.attempt, number)
        # As in the checkpoints: this round and the one before, each with its best; what a selection compares with is never delivered.
        last = [own_round, own_round - 1]
        wanted = [*last, *(self._best_up_to(site, up_to) for up_to in last if not all_travels)]
        keep = dict.fromkeys(self.progress.own(site, past) for past in wanted)
        own = self.progress.own(site, own_round)
        return Task(site, self.run_id, self.attempt, number, own, tuple(stage for stage in keep if stage[0]))

    def _exchange(
        self,
        grid: Grid,
        ask: Callable[[], Iterable[Message]],
        phase: Phase,
        read: Reader,
        num_rounds: int,
    ) -> list[Message]:
        carried = self.tensor_set if self.travels and phase == self.update_phase else None
        most_bytes = size_limit(carried, self.settings.selects_numbers)
        return self.conversation.exchange(grid, ask, phase, read, self.progress, num_rounds, most_bytes)

    def _read_training(self, site: str, reply: Message, size: int) -> Training:
        training = self._read_update(site, reply, size)
        update = replace(training.update, tensors=self.update_files.keep(site, training.update.tensors))
        record = self.conversation.record.of(site)
        record["seconds"]["train"] = round(training.sums["seconds"], 3)
        if protocol.SELECT_S in training.sums:
            record["seconds"]["select"] = round(training.sums[protocol.SELECT_S], 6)
        if protocol.THETA in training.sums:
            record["theta"] = training.sums[protocol.THETA]
        record["train_loss"] = training.sums["nll_sum"] / training.sums["num_tokens"]
        selection = training.update.selection
        record["steps"] = int(training.sums["steps"])
        record["tensors_sent"] = selection.num_tensors if selection else len(training.update.tensors)
        if self.travels:
            record["update_norm"] = training.change.norm
        if selection and self.settings.selected_by != "all":
            record["tensors_share"] = selection.share_of_tensors
            record["numbers_share"] = selection.share_of_numbers
        if training.deviations is not None:
            # What was zero everywhere has none; JSON knows no infinity.
            told = [float(f"{one:.6g}") if math.isfinite(one) else None for one in training.deviations.tolist()]
            self.folder.add_deviations({"round": self.conversation.record.number, "site": site, "deviations": told})
            if finite := [one for one in told if one is not None]:
                record.setdefault("deviation", median(finite))  # of an update that was probed it is known already
        return replace(training, update=update)

    def _read_update(self, site: str, reply: Message, size: int) -> Training:
        return read_training(reply, self._asked(site))

    def _asked(self, site: str) -> Asked:
        sent = self._sent.get(site) if self.travels else None
        about, earlier, most_loss = (
            self.roll.about[site],
            self.progress.digests.get(site),
            MOST_LOSS * math.log(self.roll.vocabulary),
        )
        return Asked(site, self.settings, about, self.tensor_set, sent, earlier, most_loss, self.conversation.most_seconds)

    def _read_evaluation(self, site: str, reply: Message, size: int) -> Sums:
        earlier = next((losses[site] for losses in self.progress.dev_losses.values() if site in losses), None)
        sums = read_evaluation(reply, self._asked(site), earlier)
        record = self.conversation.record.of(site)
        record["seconds"]["evaluate"] = round(sums["seconds"], 3)
        record["dev_loss"], record["dev_tokens"] = sums["nll_sum"] / sums["num_tokens"], int(sums["num_tokens"])
        return sums

    def _read_scores(self, site: str, reply: Message, size: int) -> dict[str, Scores]:
        texts = [member.name for member in self.roll.members[site]]
        mixed = self.roll.federation.rules.split.mixed
        return read_scores(reply, self._asked(site), texts, mixed)
