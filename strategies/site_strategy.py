"""The rounds of a federation of named sites, the same for every method: ask, send, check, fold, evaluate, keep, choose, score.

A strategy of one's own subclasses this (or FedMean) and says three things: the tensors it begins with, what a site gets, and how
updates fold into the next state.
"""

import math
import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedlingua import protocol
from fedlingua.clustering import Clusters
from fedlingua.config import Settings
from fedlingua.errors import ExchangeError, RunError
from fedlingua.evaluation.scores import ScoreSums
from fedlingua.exchange.records import message_bytes, pack, unpack
from fedlingua.exchange.tensor_sets import Tensors, TensorSet, check_tensors
from fedlingua.runs import ClusterTensors, RunFolder
from strategies.aggregation import Update
from strategies.replies import Failure, gather
from strategies.roll_call import Roll

Sums = Mapping[str, float]


class SiteStrategy(Strategy):
    """Base of this project's strategies; `state` holds each cluster's tensors.

    travels: whether updates come back. one_best_round: whether the federation chooses one best round or every site its own.
    """

    travels = True
    one_best_round = True

    def __init__(self, settings: Settings, roll: Roll, clusters: Clusters, tensor_set: TensorSet, folder: RunFolder) -> None:
        self.settings, self.roll, self.clusters, self.tensor_set, self.folder = settings, roll, clusters, tensor_set, folder
        self.state: ClusterTensors = {}
        self.round_records: dict[str, dict[str, Any]] = {}
        self.failures: list[dict[str, str]] = []
        self.dev_losses: dict[int, dict[str, Sums]] = {}
        self.best_round: int = 0
        self.scores: dict[str, tuple[ScoreSums, ScoreSums]] = {}
        self.traffic: list[tuple[int, int]] = []
        self._asked: dict[str, str] = {}

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

    # --- One round, as Flower names it -----------------------------------------------------------------------------------------

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """One message for each site: its own clusters' tensors. `arrays` is not used: sites of different clusters get different ones."""
        return [self._message(protocol.TRAIN, site, server_round, self.downlink(site)) for site in self.roll.sites]

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Check every reply, fold the good ones; a bad one is left out and named.

        Raises:
            RunError: fewer good replies than the quorum.
        """
        updates: dict[str, Update] = {}
        for reply in replies:
            site = self._site_of(reply)
            try:
                most = self.roll.about[site]["train"] * self.settings.local_epochs
                sums = self._checked_sums(reply, site, server_round, most)
                steps = int(sums["steps"])
                tensors = (
                    check_tensors(unpack(reply.content.array_records[protocol.ARRAYS]), self.tensor_set) if self.travels else {}
                )
                updates[site] = Update(site, tensors, int(sums["num_examples"]))
            except (ExchangeError, KeyError) as error:
                self._fail(Failure(site, f"bad reply: {error}"), protocol.TRAIN, server_round)
                continue
            record = self.round_records[site]
            record["train_loss"] = sums["nll_sum"] / sums["num_tokens"]
            record["steps"] = steps
            record["seconds"]["train"] = round(sums["seconds"], 3)
            record["tensors_sent"] = len(tensors)
        self._need_quorum(updates, protocol.TRAIN, server_round)
        self.fold({site: updates[site] for site in self.roll.sites if site in updates})
        return None, None

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """One message for each site: what it would use after this round. Round 0 asks for the base and carries nothing."""
        return [
            self._message(protocol.EVALUATE, site, server_round, self.downlink(site) if server_round else {})
            for site in self.roll.sites
        ]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Every site's dev loss, as sums.

        Raises:
            RunError: fewer good replies than the quorum.
        """
        losses: dict[str, Sums] = {}
        for reply in replies:
            site = self._site_of(reply)
            try:
                losses[site] = self._checked_sums(reply, site, server_round, self.roll.about[site]["dev"])
            except (ExchangeError, KeyError) as error:
                self._fail(Failure(site, f"bad reply: {error}"), protocol.EVALUATE, server_round)
                continue
            record = self.round_records[site]
            record["dev_loss"] = losses[site]["nll_sum"] / losses[site]["num_tokens"]
            record["dev_tokens"] = int(losses[site]["num_tokens"])
            record["seconds"]["evaluate"] = round(losses[site]["seconds"], 3)
        self._need_quorum(losses, protocol.EVALUATE, server_round)
        self.dev_losses[server_round] = losses
        return MetricRecord({"dev_loss": mean_loss(losses, self.settings.best_by)})

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
        """Run all rounds, choose the best, deliver it, and score it once.

        Raises:
            RunError: a phase below the quorum; the message names the sites.
        """
        self.summary()
        self.begin(unpack(initial_arrays))
        nothing, config = ArrayRecord(), ConfigRecord()
        for number in range(num_rounds + 1):
            started = time.monotonic()
            self.round_records = {site: {"seconds": {}, "uplink_bytes": 0, "downlink_bytes": 0} for site in self.roll.sites}
            self.failures = []
            if number > 0:
                train = self.configure_train(number, nothing, config, grid)
                self.aggregate_train(number, self._exchange(grid, train, protocol.TRAIN, number, num_rounds, timeout))
            evaluate = self.configure_evaluate(number, nothing, config, grid)
            self.aggregate_evaluate(number, self._exchange(grid, evaluate, protocol.EVALUATE, number, num_rounds, timeout))
            self._close_round(number, num_rounds, time.monotonic() - started)
            if self._is_stale(number):
                self.folder.event(
                    "note", text=f"stopped after round {number}: no better dev loss in {self.settings.patience} rounds"
                )
                break
        self._finish(grid, num_rounds, timeout)
        return Result()

    def _close_round(self, number: int, num_rounds: int, seconds: float) -> None:
        losses = self.dev_losses[number]
        dev_loss = mean_loss(losses, self.settings.best_by)
        sites = {site: record for site, record in self.round_records.items() if record["seconds"]}
        uplink = sum(int(record["uplink_bytes"]) for record in self.round_records.values())
        self.folder.add_round(
            {"round": number, "seconds": round(seconds, 3), "dev_loss": dev_loss, "sites": sites, "failures": self.failures}
        )
        if number > 0:
            self.traffic += [(int(r["uplink_bytes"]), int(r["downlink_bytes"])) for r in self.round_records.values()]
            trained = {n: mean_loss(losses, self.settings.best_by) for n, losses in self.dev_losses.items() if n > 0}
            # A loss over fewer sites is no better loss: the round that most sites answered goes first.
            self.best_round = min(trained, key=lambda n: (-len(self.dev_losses[n]), trained[n], n))
            self.folder.save_checkpoint(number, self.state, {"dev_loss": dev_loss, "best_round": self.best_round})
            self.folder.prune_checkpoints({number, self.best_round})
        self.folder.update(rounds=number, best_round=self.best_round)
        self.folder.event(
            "round", round=number, rounds=num_rounds, dev_loss=dev_loss, seconds=round(seconds, 3), uplink_bytes=uplink
        )

    def _is_stale(self, number: int) -> bool:
        """Whether `patience` rounds have passed since the dev loss last fell by `min-gain` of what it was."""
        better, lowest = 0, math.inf
        for past, losses in self.dev_losses.items():
            loss = mean_loss(losses, self.settings.best_by)
            if past > 0 and loss < lowest * (1 - self.settings.min_gain):
                better, lowest = past, loss
        return 0 < self.settings.patience <= number - better

    def _finish(self, grid: Grid, num_rounds: int, timeout: float) -> None:
        """Deliver the best round's tensors and gather the scores."""
        best, self.failures = self._best_rounds(), []
        if self.travels and self.best_round > 0:
            self.state = self.folder.load_checkpoint(self.best_round)
        messages = [
            self._message(protocol.FINISH, site, best[site], self.downlink(site) if best[site] else {})
            for site in self.roll.sites
        ]
        for reply in self._exchange(grid, messages, protocol.FINISH, num_rounds, num_rounds, timeout):
            site = self._site_of(reply)
            try:
                self._checked_task(reply, site, best[site])
                self.scores[site] = (
                    read_score_sums(reply.content.metric_records[protocol.SCORES]),
                    read_score_sums(reply.content.metric_records[protocol.BASE_SCORES]),
                )
            except (ExchangeError, KeyError) as error:
                self._fail(Failure(site, f"bad reply: {error}"), protocol.FINISH, num_rounds)
        self._need_quorum(self.scores, protocol.FINISH, num_rounds)
        self.folder.update(best_round=self.best_round if self.one_best_round else best, failures_at_the_end=self.failures)

    def _best_rounds(self) -> dict[str, int]:
        """Site -> the round it uses: one for all by the federation's dev loss, or each site's own best."""
        if self.one_best_round:
            return dict.fromkeys(self.roll.sites, self.best_round)
        best = {}
        for site in self.roll.sites:
            own = {
                n: losses[site]["nll_sum"] / losses[site]["num_tokens"]
                for n, losses in self.dev_losses.items()
                if n and site in losses
            }
            best[site] = min(own, key=lambda n: (own[n], n), default=0)
        return best

    # --- Messages --------------------------------------------------------------------------------------------------------------

    def _message(self, message_type: str, site: str, number: int, tensors: Tensors) -> Message:
        task = ConfigRecord({"site": site, "round": number})
        content = RecordDict({protocol.TASK: task, protocol.ARRAYS: pack(tensors)})
        return Message(content, dst_node_id=self.roll.nodes[site], message_type=message_type, group_id=str(number))

    def _exchange(
        self, grid: Grid, messages: Iterable[Message], phase: str, number: int, num_rounds: int, timeout: float
    ) -> list[Message]:
        """Send one message to each site; the replies with content come back in federation order."""
        by_site = {str(message.content.config_records[protocol.TASK]["site"]): message for message in messages}
        self.folder.event("phase", phase=_short(phase), round=number, rounds=num_rounds, sites=len(by_site))
        for site, message in by_site.items():
            record = self.round_records.setdefault(site, {"seconds": {}, "uplink_bytes": 0, "downlink_bytes": 0})
            if phase == protocol.TRAIN:
                record["downlink_bytes"] = message_bytes(message)
        started = time.monotonic()

        def on_reply(site: str, reply: Message) -> None:
            sums = reply.content.metric_records.get(protocol.METRICS, MetricRecord())
            nll, tokens = sums.get("nll_sum"), sums.get("num_tokens")
            loss = nll / tokens if isinstance(nll, int | float) and isinstance(tokens, int | float) and tokens else None
            seconds = round(time.monotonic() - started, 3)
            told: dict[str, Any] = {"phase": _short(phase), "round": number, "site": site, "loss": loss, "seconds": seconds}
            if phase == protocol.TRAIN:
                told["uplink_bytes"] = self.round_records[site]["uplink_bytes"] = message_bytes(reply)
            self.folder.event("reply", **told)

        replies, failures = gather(grid, by_site, timeout, on_reply, self._quorum)
        for failure in failures:
            self._fail(failure, phase, number)
        self._asked = {str(reply.metadata.reply_to_message_id): site for site, reply in replies.items()}
        return list(replies.values())

    def _site_of(self, reply: Message) -> str:
        """The site that was asked, whoever the reply says it is."""
        return self._asked[str(reply.metadata.reply_to_message_id)]

    def _checked_sums(self, reply: Message, site: str, number: int, most: int) -> dict[str, float]:
        """A reply's sums, once they can be believed: finite, all there, and no more sentences than the site has (`most`)."""
        self._checked_task(reply, site, number)
        sums = reply.content.metric_records[protocol.METRICS]
        values: dict[str, float] = {}
        for key, value in sums.items():
            if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
                raise ExchangeError(f"{key} = {value!r}; wanted a finite number, 0 or more")
            values[key] = value
        absent = [key for key in ("nll_sum", "num_tokens", "num_examples", "seconds") if key not in values]
        if absent:
            raise ExchangeError(f"the sums lack {', '.join(absent)}")
        for key in ("num_tokens", "num_examples"):
            if values[key] < 1:
                raise ExchangeError(f"{key} = {values[key]!r}; wanted at least 1")
        if values["num_examples"] > most:
            raise ExchangeError(f"num_examples = {values['num_examples']!r}; the site has {most}")
        return values

    def _checked_task(self, reply: Message, site: str, number: int) -> None:
        task = reply.content.config_records[protocol.TASK]
        if task.get("site") != site or task.get("round") != number:
            raise ExchangeError(
                f"answers site {task.get('site')!r}, round {task.get('round')!r}; wanted {site!r}, round {number}"
            )

    def _fail(self, failure: Failure, phase: str, number: int) -> None:
        self.failures.append({"site": failure.site, "phase": _short(phase), "reason": failure.reason})
        self.folder.event("failure", phase=_short(phase), round=number, site=failure.site, reason=failure.reason)

    @property
    def _quorum(self) -> int:
        """How many sites have to answer well in a phase."""
        return max(1, math.ceil(self.settings.quorum * len(self.roll.expected) - 1e-9))

    def _need_quorum(self, good: Mapping[str, Any], phase: str, number: int) -> None:
        wanted = self._quorum
        if len(good) < wanted:
            reasons = "; ".join(f"{failure['site']}: {failure['reason']}" for failure in self.failures)
            raise RunError(
                f"round {number}, {_short(phase)}: {len(good)} of {len(self.roll.expected)} sites answered well, "
                f"quorum = {self.settings.quorum:g} needs {wanted}; missing: {reasons or 'sites that no node hosts'}"
            )


def mean_loss(losses: Mapping[str, Sums], best_by: str) -> float:
    """Mean of the sites' dev losses (nats a token), weighted by sentences as in the paper's code, or pooled over tokens."""
    if best_by == "tokens":
        return sum(s["nll_sum"] for s in losses.values()) / sum(s["num_tokens"] for s in losses.values())
    total = sum(s["num_examples"] for s in losses.values())
    return sum(s["nll_sum"] / s["num_tokens"] * s["num_examples"] for s in losses.values()) / total


def read_score_sums(record: MetricRecord) -> ScoreSums:
    """A site's score sums out of its reply.

    Raises:
        ExchangeError: not lists of counts.
    """
    sentences, bleu, chrf = record.get("sentences"), record.get("bleu"), record.get("chrf")
    if (
        not isinstance(sentences, int)
        or not isinstance(bleu, list)
        or not isinstance(chrf, list)
        or len(bleu) != 10
        or len(chrf) != 18
    ):
        raise ExchangeError("scores are not one number of sentences, 10 BLEU counts and 18 chrF counts")
    counts = [count for count in (*bleu, *chrf) if isinstance(count, int) and count >= 0]
    if sentences < 1 or len(counts) != 28:
        raise ExchangeError("scores hold something else than counts, or no sentence")
    return ScoreSums(sentences, tuple(counts[:10]), tuple(counts[10:]))


def _short(phase: str) -> str:
    return {protocol.TRAIN: "train", protocol.EVALUATE: "evaluate", protocol.FINISH: "test", protocol.DESCRIBE: "describe"}[phase]
