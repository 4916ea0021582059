"""The rounds of a federation of named sites, the same for every method: ask, send, check, fold, evaluate, keep, choose, score.

A strategy of one's own subclasses this (or FedMean) and says three things: the tensors it begins with, what a site gets, and how
updates fold into the next state. What it keeps besides `state` it declares in `declared_state`, so that a killed run can go on.
"""

import math
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from random import Random
from typing import Any, TypeVar, cast

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedlingua import protocol
from fedlingua.checkpoints import Checkpoint, ClusterTensors
from fedlingua.clustering import Clusters
from fedlingua.config import Phase, Settings
from fedlingua.errors import ExchangeError, RunError
from fedlingua.evaluation.scores import ScoreSums
from fedlingua.exchange.records import from_record, message_bytes, pack
from fedlingua.exchange.tensor_sets import Tensors, TensorSet
from fedlingua.protocol import Task
from fedlingua.runs import RunFolder
from strategies import checks
from strategies.aggregation import Update
from strategies.progress import Progress, Sums
from strategies.replies import Failure, gather
from strategies.roll_call import Roll, sites_json

T = TypeVar("T")
WAIT_PAUSE_S = 5.0
"""Between two questions to sites that `below-quorum = "wait"` waits for."""


class _RoundSkippedError(Exception):
    """Too few good replies, and the run goes on without this round."""


class SiteStrategy(Strategy):
    """Base of this project's strategies; `state` holds each cluster's tensors, `progress` all else that a resumed run needs.

    travels: whether updates come back. one_best_round: whether the federation chooses one best round or every site its own.
    """

    travels = True
    one_best_round = True

    def __init__(self, settings: Settings, roll: Roll, clusters: Clusters, tensor_set: TensorSet, folder: RunFolder) -> None:
        self.settings, self.roll, self.clusters, self.tensor_set, self.folder = settings, roll, clusters, tensor_set, folder
        run = folder.read("run.json") or {}
        self.run_id, self.attempt = str(run.get("id", "")), int(run.get("attempt", 1))
        self.state: ClusterTensors = {}
        self.progress = Progress(Random(f"{settings.seed}/server"))
        self.round_records: dict[str, dict[str, Any]] = {}
        self.failures: list[dict[str, str]] = []
        self.scores: dict[str, tuple[ScoreSums, ScoreSums]] = {}
        self._asked: dict[str, str] = {}
        self._read: dict[str, Any] = {}
        self._last_reply: float | None = None
        self._pauses: dict[str, float] = {}
        self._phases: dict[str, float] = {}
        self._owed: dict[str, str] = {}

    # --- What a method says ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def begin(self, initial: Tensors) -> None:
        """Set `state` before the first round."""

    @abstractmethod
    def downlink(self, site: str) -> Tensors:
        """The tensors that a site gets; none when its own stay with it."""

    @abstractmethod
    def fold(self, updates: Mapping[str, Update]) -> None:
        """Make the next `state` of the updates, which come in federation order and are checked."""

    def declared_state(self) -> tuple[Tensors, dict[str, Any]]:
        """What the strategy keeps from round to round besides `state`: named tensors, and values that JSON holds."""
        return {}, {}

    def restore(self, tensors: Tensors, values: Mapping[str, Any]) -> None:
        """Take back what `declared_state` gave."""

    # --- One round, as Flower names it -----------------------------------------------------------------------------------------

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """One message for each site: its own clusters' tensors. `arrays` is not used: sites of different clusters get different ones."""
        return [
            self._message(protocol.TRAIN, site, server_round, self.downlink(site), server_round - 1)
            for site in self._sites_here(grid, "train", server_round)
        ]

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Fold the updates that came; one that is out of all proportion to the others is left out and named.

        Raises:
            RunError: fewer good ones than the quorum.
        """
        read: dict[str, tuple[Update, float]] = {self._site_of(reply): self._reading(reply) for reply in replies}
        outliers = checks.over_ratio({site: norm for site, (_, norm) in read.items()}, self.settings.max_update_ratio)
        for site, reason in outliers.items():
            self._refuse(Failure(site, f"bad reply: {reason}"), "train", server_round)
        updates = {site: read[site][0] for site in self.roll.expected if site in read and site not in outliers}
        self._need_quorum(updates, "train", server_round)
        self.fold(updates)
        for site, update in updates.items():
            self.progress.stages.setdefault(site, {})[server_round] = self.attempt
            if self.travels:
                self.progress.digests[site] = checks.digest(update.tensors)
        return None, None

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """One message for each site: what it would use after this round. Round 0 asks for the base and carries nothing."""
        return [
            self._message(protocol.EVALUATE, site, server_round, self.downlink(site) if server_round else {}, server_round)
            for site in self._sites_here(grid, "evaluate", server_round)
        ]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Every site's dev loss, as sums.

        Raises:
            RunError: fewer good replies than the quorum.
        """
        read: dict[str, Sums] = {self._site_of(reply): self._reading(reply) for reply in replies}
        self._need_quorum(read, "evaluate", server_round)
        losses = {site: read[site] for site in self.roll.expected if site in read}
        self.progress.dev_losses[server_round] = losses
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
        self.begin(from_record(initial_arrays))
        if self.settings.resume:
            self._resume()
        patience, min_gain, best_by = self.settings.patience, self.settings.min_gain, self.settings.best_by
        while self.progress.round < num_rounds and not self.progress.is_stale(patience, min_gain, best_by):
            self._round(grid, self.progress.round + 1, num_rounds)
        if self.progress.round < num_rounds:
            text = f"stopped after round {self.progress.round}: no better dev loss in {patience} rounds"
            self.folder.event("note", text=text)
        self._finish(grid, num_rounds)
        return Result()

    def _round(self, grid: Grid, number: int, num_rounds: int) -> None:
        started = time.monotonic()
        self.round_records, self.failures, self._pauses, self._phases = {}, [], {}, {}
        before, (own, values) = self.state, self.declared_state()
        arguments = (number, ArrayRecord(), ConfigRecord(), grid)
        try:
            if number > 0:
                ask = partial(self.configure_train, *arguments)
                self.aggregate_train(number, self._exchange(grid, ask, protocol.TRAIN, number, num_rounds))
            ask = partial(self.configure_evaluate, *arguments)
            self.aggregate_evaluate(number, self._exchange(grid, ask, protocol.EVALUATE, number, num_rounds))
        except _RoundSkippedError as skipped:
            self.state = before
            self.restore(own, values)
            self.folder.event("note", text=f"{skipped}; its tensors stay as they were before")
        self._close_round(number, num_rounds, time.monotonic() - started)

    def _close_round(self, number: int, num_rounds: int, seconds: float) -> None:
        self.progress.round = number
        dev_loss = self.progress.loss(number, self.settings.best_by)
        sites = {site: record for site, record in self.round_records.items() if record["seconds"]}
        record = {"round": number, "attempt": self.attempt, "seconds": round(seconds, 3), "dev_loss": dev_loss, "sites": sites}
        self.folder.add_round({**record, "failures": self.failures, "phase_s": self._phases, "pause_s": self._pauses})
        earlier_best = self.progress.best_round
        if number > 0:
            self.progress.traffic += [(int(r["uplink_bytes"]), int(r["downlink_bytes"])) for r in self.round_records.values()]
            self.progress.choose_best(self.settings.best_by)
        own, values = self.declared_state()
        self.folder.checkpoints.save(number, self.state, own, {"progress": self.progress.values(), "strategy": values})
        # The round before stays, with its best, in case this one is damaged later.
        self.folder.checkpoints.prune({number, number - 1, self.progress.best_round, earlier_best})
        self.folder.update(rounds=number, best_round=self.progress.best_round)
        uplink = sum(int(record["uplink_bytes"]) for record in self.round_records.values())
        self.folder.event(
            "round", round=number, rounds=num_rounds, dev_loss=dev_loss, seconds=round(seconds, 3), uplink_bytes=uplink
        )

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

    def _has_its_best(self, checkpoint: Checkpoint) -> None:
        """Refuse a round whose best round is not there any more: going on from an earlier one makes that one again."""
        best = int(checkpoint.values["progress"]["best_round"])
        if self.travels and best > 0:
            self.folder.checkpoints.load(best)

    def _finish(self, grid: Grid, num_rounds: int) -> None:
        """Deliver the best round's tensors and gather the scores."""
        best, self.failures = self._best_rounds(), []
        if self.travels and self.progress.best_round > 0:
            self.state = self.folder.checkpoints.load(self.progress.best_round).tensors

        def ask() -> list[Message]:
            return [
                self._message(protocol.FINISH, site, best[site], self.downlink(site) if best[site] else {}, best[site])
                for site in self._sites_here(grid, "finish", num_rounds)
            ]

        replies = self._exchange(grid, ask, protocol.FINISH, num_rounds, num_rounds)
        scores = {self._site_of(reply): self._reading(reply) for reply in replies}
        self.scores = {site: scores[site] for site in self.roll.expected if site in scores}
        if not self.scores:
            raise RunError(self._too_few(self.scores, "finish", num_rounds))
        best_round = self.progress.best_round if self.one_best_round else best
        self.folder.update(best_round=best_round, failures_at_the_end=self.failures)

    def _best_rounds(self) -> dict[str, int]:
        """Site -> the round it uses: one for all by the federation's dev loss, or each site's own best."""
        if self.one_best_round:
            return dict.fromkeys(self.roll.expected, self.progress.best_round)
        return {site: self.progress.own_best(site, self.progress.round) for site in self.roll.expected}

    # --- Messages --------------------------------------------------------------------------------------------------------------

    def _sites_here(self, grid: Grid, phase: Phase, number: int) -> list[str]:
        """The sites to ask now, in federation order; those that are away or set aside are named as failures."""
        known = set(self.roll.sites)
        connected, refused = self.roll.refresh(grid, self.settings.deadline_of("join"))
        for failure in refused:
            self._fail(failure, phase, number)
        for site in self.roll.sites:
            if site not in known:
                self.folder.event("note", text=f"site {site} has joined")
                self.folder.write("sites.json", sites_json(self.roll))
        self._hear_late_ones(grid)
        here = []
        for site in self.roll.expected:
            if self._is_aside(site):
                count = self.progress.bad_replies[site]
                self._fail(Failure(site, f"set aside after {count} refused replies", "aside"), phase, number)
            elif site not in connected:
                self._owed.pop(site, None)
                self._fail(Failure(site, "its node is not connected", "away"), phase, number)
            elif site in self._owed:  # it would take up the next message only after the one that it is at
                self._fail(Failure(site, "still owes the reply to an earlier message, so it is not asked", "late"), phase, number)
            else:
                here.append(site)
        return here

    def _hear_late_ones(self, grid: Grid) -> None:
        """Whoever has answered an earlier phase's message by now, or never will, may be asked again; the answer is dropped."""
        if not self._owed:
            return
        answered = {str(reply.metadata.reply_to_message_id) for reply in grid.pull_messages(sorted(self._owed.values()))}
        for site, number in list(self._owed.items()):
            if number in answered:
                del self._owed[site]
                self.folder.event("note", text=f"site {site} is back; its late reply does not count")

    def _is_aside(self, site: str) -> bool:
        return 0 < self.settings.max_bad_replies <= self.progress.bad_replies.get(site, 0)

    def _task(self, site: str, number: int, own_round: int) -> Task:
        if self.travels:
            return Task(site, self.run_id, self.attempt, number)
        # As in the checkpoints: this round and the one before, each with its best.
        last = [own_round, own_round - 1]
        wanted = [*last, *(self.progress.own_best(site, up_to) for up_to in last)]
        keep = dict.fromkeys(self.progress.own(site, past) for past in wanted)
        own = self.progress.own(site, own_round)
        return Task(site, self.run_id, self.attempt, number, own, tuple(stage for stage in keep if stage[0]))

    def _message(self, message_type: str, site: str, number: int, tensors: Tensors, own_round: int) -> Message:
        """A request. own_round: the round whose tensors the site is to take where they stay with it."""
        records: dict[str, Any] = {
            protocol.TASK: ConfigRecord(self._task(site, number, own_round).request()),
            protocol.RULES: ConfigRecord(self.roll.federation.rules.flat()),
            protocol.ARRAYS: pack(tensors, self.tensor_set),
        }
        # A request that nobody has taken up by the deadline is not taken up later.
        lives = max(60.0, self.settings.deadline_of(_phase(message_type)))
        to = self.roll.nodes[site]
        return Message(RecordDict(records), dst_node_id=to, message_type=message_type, group_id=str(number), ttl=lives)

    def _exchange(
        self, grid: Grid, ask: Callable[[], Iterable[Message]], message_type: str, number: int, num_rounds: int
    ) -> list[Message]:
        """Send one message to each site; the good replies come back in federation order, at least as many as the quorum.

        Raises:
            RunError, or _RoundSkippedError under `below-quorum = "go-on"`: too few are good.
        """
        phase = _phase(message_type)
        good: dict[str, Message] = {}
        gives_up = time.monotonic() + self.settings.wait_s
        while True:
            by_site = {str(_told(message)["site"]): message for message in ask()}
            asked = {site: message for site, message in by_site.items() if site not in good}
            good |= self._ask_once(grid, asked, phase, number, num_rounds, self._quorum - len(good))
            if len(good) >= self._quorum or self.settings.below_quorum != "wait" or time.monotonic() > gives_up:
                break
            self.folder.event("note", text=f"round {number}, {phase}: waiting for sites, {len(good)} of {self._quorum} are good")
            time.sleep(min(WAIT_PAUSE_S, self.settings.wait_s))
        self._need_quorum(good, phase, number)
        return [good[site] for site in self.roll.expected if site in good]

    def _ask_once(
        self, grid: Grid, messages: Mapping[str, Message], phase: Phase, number: int, num_rounds: int, needed: int
    ) -> dict[str, Message]:
        self.folder.event("phase", phase=phase, round=number, rounds=num_rounds, sites=len(messages))
        for site, message in messages.items():
            record = self.round_records.setdefault(site, {"seconds": {}, "uplink_bytes": 0, "downlink_bytes": 0})
            if phase == "train":
                record["downlink_bytes"] = message_bytes(message)
        started = time.monotonic()

        def on_sent() -> None:
            if self._last_reply is not None:
                self._pauses[phase] = round(time.monotonic() - self._last_reply, 3)

        def on_reply(site: str, reply: Message) -> Failure | None:
            self._last_reply = time.monotonic()
            try:
                self._read[str(reply.metadata.reply_to_message_id)] = self._check(reply, messages[site], phase, site, number)
            except (ExchangeError, KeyError, TypeError, ValueError, OverflowError) as error:
                failure = Failure(site, f"bad reply: {error}")
                self._refuse(failure, phase, number)
                return failure
            told = {"phase": phase, "round": number, "site": site, "seconds": round(time.monotonic() - started, 3)}
            self.folder.event("reply", **told, loss=self._loss_of(reply), uplink_bytes=self.round_records[site]["uplink_bytes"])
            # The numbers were copied out of the record; two copies of every site's tensors would be one too many.
            reply.content.pop(protocol.ARRAYS, None)
            return None

        gathered = gather(grid, messages, self.settings.deadline_of(phase), on_reply, needed, on_sent)
        self._phases[phase] = round(self._phases.get(phase, 0.0) + time.monotonic() - started, 3)
        self._asked |= {str(reply.metadata.reply_to_message_id): site for site, reply in gathered.accepted.items()}
        self._owed |= gathered.owed
        for failure in gathered.failures:
            if failure.kind != "refused":  # those are entered as they come
                self._fail(failure, phase, number)
        return gathered.accepted

    def _check(self, reply: Message, request: Message, phase: Phase, site: str, number: int) -> Any:
        """What a reply says, once it can be believed."""
        about, record = self.roll.about[site], self.round_records[site]
        carries = self.tensor_set if self.travels and phase == "train" else None
        if phase == "train":
            record["uplink_bytes"] = message_bytes(reply)
        checks.check_size(reply, checks.size_limit(carries))
        checks.check_task(reply, Task.of(_told(request)))
        if phase == "finish":
            checks.check_records(reply, {protocol.TASK, protocol.SCORES, protocol.BASE_SCORES})
            most = int(about[self.settings.score_split])
            return tuple(
                checks.check_scores(reply.content.metric_records[name], most) for name in (protocol.SCORES, protocol.BASE_SCORES)
            )
        records = {protocol.TASK, protocol.METRICS} | ({protocol.ARRAYS} if phase == "train" else set())
        checks.check_records(reply, records)
        most = int(about["train"]) * self.settings.local_epochs if phase == "train" else int(about["dev"])
        wanted = checks.TRAINING_SUMS if phase == "train" else checks.EVALUATION_SUMS
        sums = checks.check_sums(reply.content.metric_records[protocol.METRICS], wanted, most)
        loss, seconds = sums["nll_sum"] / sums["num_tokens"], round(sums["seconds"], 3)
        if phase == "evaluate":
            record["seconds"][phase] = seconds
            record |= {"dev_loss": loss, "dev_tokens": int(sums["num_tokens"])}
            return sums
        tensors: Tensors = {}
        norm = 0.0
        if self.travels:
            sent = self.downlink(site)
            tensors, norm = checks.check_update(reply, self.tensor_set, sent, self.settings.max_update_norm)
            if norm and checks.digest(tensors) == self.progress.digests.get(site):
                raise ExchangeError("sends the update of an earlier round again")
        elif reply.content.array_records[protocol.ARRAYS]:
            raise ExchangeError("carries tensors, which stay at the sites under this method")
        record["seconds"][phase] = seconds
        record |= {"train_loss": loss, "steps": int(sums["steps"]), "tensors_sent": len(tensors)}
        if self.travels:
            record["update_norm"] = norm
        return Update(site, tensors, int(sums["num_examples"])), norm

    def _loss_of(self, reply: Message) -> float | None:
        sums = cast(Mapping[str, float], reply.content.metric_records.get(protocol.METRICS, {}))
        return sums["nll_sum"] / sums["num_tokens"] if sums else None

    def _site_of(self, reply: Message) -> str:
        """The site that was asked, whoever the reply says it is."""
        return self._asked[str(reply.metadata.reply_to_message_id)]

    def _reading(self, reply: Message) -> Any:
        """What `_check` made of a reply when it came."""
        return self._read.pop(str(reply.metadata.reply_to_message_id))

    # --- What went wrong -------------------------------------------------------------------------------------------------------

    def _refuse(self, failure: Failure, phase: Phase, number: int) -> None:
        """Enter a refused reply, and set the site aside when it was one too many."""
        self._fail(failure, phase, number)
        self.progress.bad_replies[failure.site] = self.progress.bad_replies.get(failure.site, 0) + 1
        if self._is_aside(failure.site):
            text = f"site {failure.site} is set aside: {self.progress.bad_replies[failure.site]} of its replies were refused"
            self.folder.event("note", text=text)

    def _fail(self, failure: Failure, phase: Phase, number: int) -> None:
        entry = {"site": failure.site, "phase": phase, "kind": failure.kind, "reason": failure.reason}
        if entry in self.failures:  # said once, however often it is asked
            return
        self.failures.append(entry)
        self.folder.event("failure", phase=phase, round=number, site=failure.site, kind=failure.kind, reason=failure.reason)

    @property
    def _quorum(self) -> int:
        """How many sites have to answer well in a phase."""
        return max(1, math.ceil(self.settings.quorum * len(self.roll.expected) - 1e-9))

    def _need_quorum(self, good: Collection[str], phase: Phase, number: int) -> None:
        if len(good) >= self._quorum:
            return
        if self.settings.below_quorum == "go-on" and phase != "finish":
            raise _RoundSkippedError(self._too_few(good, phase, number))
        if phase != "finish" or self.settings.below_quorum != "go-on":
            raise RunError(self._too_few(good, phase, number))

    def _too_few(self, good: Collection[str], phase: Phase, number: int) -> str:
        reasons = "; ".join(f"{failure['site']}: {failure['reason']}" for failure in self.failures)
        return (
            f"round {number}, {phase}: {len(good)} of {len(self.roll.expected)} sites answered well, "
            f"quorum = {self.settings.quorum:g} needs {self._quorum}; missing: {reasons}"
        )


def _told(message: Message) -> Mapping[str, Any]:
    return message.content.config_records[protocol.TASK]


def _phase(message_type: str) -> Phase:
    phases: dict[str, Phase] = {protocol.TRAIN: "train", protocol.EVALUATE: "evaluate", protocol.FINISH: "finish"}
    return phases[message_type]
