"""One round, the same for all strategies: ask, wait, parse, check, aggregate. The sites measure the result, mostly in the next round.

A strategy of your own subclasses SiteStrategy or FedMean and defines `aggregate(state, updates)`, which computes the next state from
the updates. If needed, it also defines `init(tensors)`, the first state, and `model_for(state, site)`, the tensors that a site receives.
Or it overrides one of Flower's hooks, which take and return real records and messages. What it stores besides tensors belongs in the state,
so that a killed run can be resumed. Flower's own strategies run inside every cluster: strategies/methods/stock.py.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, cast

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.serverapp.strategy.strategy_utils import aggregate_metricrecords

from fedlingua.backbones.parts import PARTS, Part
from fedlingua.clustering.clusters import cluster_of
from fedlingua.common.errors import ConfigError, FedlinguaError
from fedlingua.common.timing import timed
from fedlingua.exchange import protocol
from fedlingua.exchange.checks import check_records, size_limit
from fedlingua.exchange.expected import Sums
from fedlingua.exchange.joined import Joined
from fedlingua.exchange.protocol import Task
from fedlingua.exchange.records import Packed, opened, pack
from fedlingua.exchange.replies import Reply
from fedlingua.exchange.state import State, checked_state
from fedlingua.exchange.tensors import NamedTensors
from fedlingua.exchange.traffic import FP32, kind_of
from fedlingua.exchange.updates import Update
from fedlingua.layers.layer import Incoming, Training, averaged_clusters
from fedlingua.settings.checks import for_round
from fedlingua.settings.config import Phase, Settings
from strategies.aggregation.mean import start_everywhere
from strategies.checks.contents import Scores, parse_evaluation, parse_scores, parse_training
from strategies.rounds.flower_records import WEIGHT, arrays_of, content_of, site_of, state_of, update_of
from strategies.rounds.loop import Rounds
from strategies.rounds.run import Federated, Run

SERVER_ROUND = "server-round"
"""Key that Flower adds to a config; a request already says its round."""
__all__ = ["Federated", "SiteStrategy"]


class SiteStrategy(Strategy):
    """Base class of all strategies.

    Attributes:
        run: What the rounds share (strategies/rounds/run.py).
        train_message: The message type of a round's first request. update_phase: The phase in which sites send updates.
        travels: Whether they do. one_best_round: Whether the federation chooses one best round, or every site its own.
        evaluates_with_training: Whether a training request may also measure the round before: its tensors are those of `model_for`.
    """

    train_message = protocol.TRAIN
    update_phase: Phase = "train"
    travels = one_best_round = evaluates_with_training = True

    def __init_subclass__(cls) -> None:
        """A class that makes requests of its own measures by separate ones, unless it says otherwise."""
        super().__init_subclass__()
        if {"configure_train", "configure_evaluate", "evaluate"} & set(vars(cls)):
            cls.evaluates_with_training = vars(cls).get("evaluates_with_training", False)

    def __init__(self, of: Federated) -> None:
        self.settings, self.registry, self.clusters = of.settings, of.registry, of.clusters
        self.tensor_set, self.folder = of.tensor_set, of.folder
        self.run = Run(of, self)
        self.phases, self.note, self.layers = self.run.phases, self.run.note, self.run.layers

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

    def averaged_clusters(self) -> Iterator[tuple[Part, str, tuple[str, ...]]]:
        """Return (part, cluster, its sites) of the parts that have tensors."""
        return averaged_clusters(self.run)

    @property
    def train_config(self) -> ConfigRecord:
        """Settings of local training that a request carries."""
        return ConfigRecord({protocol.PROXIMAL_MU: self.settings.pull} if self.settings.pull else {})

    def aggregate(self, state: State, updates: Mapping[str, Update]) -> State:
        """Return the next state. updates: site -> its checked update, in federation order; valid in this round only."""
        raise NotImplementedError(f"{type(self).__name__} defines neither aggregate nor aggregate_train")

    # --- One round -------------------------------------------------------------------------------------------------------------

    def round(self, state: State, number: int, grid: Grid) -> State:
        """Run a round and return the state after it; meanwhile that of the run is unchanged.

        Raises:
            RunError: Too few good replies. RoundSkippedError: the same, if the run continues without the round.
        """
        run = self.run
        if number > 0:
            replies = self.phases.exchange(
                grid, partial(self._ask, number, state, grid), self.update_phase, self.parse_update, self._most_bytes
            )
            run.answers = {reply.site: reply.message for reply in replies}
            if dev := {reply.site: reply.parsed.dev for reply in replies if reply.parsed.dev is not None}:
                self.record_dev_losses(cast(int, run.progress.pending), dev)
            trained = self.layers.replies(number, {reply.site: reply.parsed for reply in replies})
            if 2 * len(trained) < len(replies):
                self.phases.need_quorum(trained, self.update_phase)
            state = self.layers.state(number, run.sent, self.aggregate_updates(number, replies, trained))
        if run.is_measured_now(number):
            self.evaluate(state, number, grid)
        elif run.is_measured(number):
            run.progress.pending = number
        return state

    def _ask(self, number: int, state: State, grid: Grid) -> list[Message]:
        """Return the requests that `configure_train` makes, once the settings that they have for this round are checked."""
        requests = list(self.configure_train(number, arrays_of(state), self.train_config, grid))
        for request in requests:
            config = request.content.config_records.get(protocol.CONFIG, ConfigRecord())
            settings = self.run.trains_under[site_of(request)] = round_settings(self.settings, config)
            if settings is not self.settings:
                self.run.progress.highest_rate = max(self.run.progress.highest_rate, settings.step_learning_rate)
        return requests

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """Make a request for each available site: its clusters' part of `arrays`, and `config` if any."""
        run, packed, messages = self.run, Packed(), []
        run.sent = run.carried = state_of(arrays, run.state)
        for site in self.phases.available(grid, "train"):
            if site not in self.phases.good:  # else it was asked in an earlier round, and its update is here already
                run.starts.pop(site, None)
            messages.append(run.request(self.train_message, site, server_round, server_round - 1))
            messages[-1].content[protocol.ARRAYS] = pack(self.model_for(run.sent, site), self.tensor_set, packed)
            if config:
                messages[-1].content[protocol.CONFIG] = config
        return messages

    def parse_update(self, site: str, reply: Message) -> Training:
        """Parse and check a reply, enter its figures into the round's record, and move large tensors to a file."""
        run, measured = self.run, {protocol.MEASURED} if self.run.progress.pending is not None else set[str]()
        start = run.received_by(site) if self.travels and run.sent.tensors else None
        check_records(list(reply.content), self.layers.records({protocol.TASK, protocol.METRICS, protocol.ARRAYS, *measured}))
        training = parse_training(self.layers.reply(Incoming(run.expected(site), RecordDict(dict(reply.content)), start)))
        if start is not None:
            self.registry.traffic.counts[site, kind_of(reply), FP32] += 4 * self.tensor_set.num_parameters
        if training.sums:
            self._record(site, training.sums, training.change.norm, training.figures)
        return replace(training, update=replace(training.update, tensors=run.update_files.store(site, training.update.tensors)))

    def aggregate_updates(self, number: int, replies: Sequence[Reply[Training]], trained: Mapping[str, Training]) -> State:
        """Return the state that `aggregate_train` makes of the accepted updates, as contents of the replies; record whose they are."""
        run, accepted = self.run, [reply for reply in replies if reply.site in trained]
        for reply in accepted:
            task, training = reply.message.content[protocol.TASK], trained[reply.site]
            if not reply.parsed.sums:  # they are known only now
                self._record(reply.site, training.sums, training.change.norm, training.figures)
            reply.message.content = content_of(training.update, training.sums, self.tensor_set, task)
        with timed(self.phases.record.server_s, "aggregate"):
            arrays, _ = self.aggregate_train(number, [reply.message for reply in accepted])
        run.progress.aggregated += [number] if accepted else []
        for reply in accepted:
            run.progress.stages.setdefault(reply.site, {})[run.asked_in(reply.site)] = run.attempt
            if self.travels:
                run.progress.digests[reply.site] = reply.parsed.digest
        return run.sent if arrays is None else state_of(arrays, run.sent)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the next state's arrays and mean metrics. replies: checked, each with one ArrayRecord and one MetricRecord."""
        messages = list(replies)
        state = self.aggregate(self.run.sent, {site_of(reply): update_of(reply) for reply in messages})
        if self.settings.strategy:
            by = "rule" if getattr(self, "rule", None) else "aggregate"
            state = checked_state(f"{type(self).__name__}.{by}", state, self.run.sent)
        return arrays_of(state), mean_metrics(messages)

    # --- Evaluation --------------------------------------------------------------------------------------------------------------

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """Make a request for each site that measures, with the tensors that it would use after this round; none in round 0."""
        run = self.run
        requests = run.requests(protocol.EVALUATE, state_of(arrays, run.state), grid, lambda _: server_round)
        due = self.layers.due(server_round, server_round == self.phases.num_rounds)
        return [request for request in requests if due is None or site_of(request) in due]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return the federation's dev loss."""
        return MetricRecord({"dev_loss": cast(float, self.run.progress.loss(server_round, self.settings.best_by))})

    def evaluate(self, state: State, number: int, grid: Grid) -> Sequence[Reply[Any]]:
        """Measure the sites' dev losses under a state by separate messages, for the pending round if there is one."""
        ask = partial(self.configure_evaluate, number, arrays_of(state), ConfigRecord(), grid)
        replies = self.phases.exchange(grid, ask, "evaluate", self.parse_evaluation)
        self.run.answers = {reply.site: reply.message for reply in replies}
        of = number if self.run.progress.pending is None else self.run.progress.pending
        if losses := self.layers.evaluations(number, of, {reply.site: reply.parsed for reply in replies}):
            self.record_dev_losses(of, losses)
        self.run.progress.pending = None
        return replies

    def parse_evaluation(self, site: str, reply: Message) -> Sums:
        """Parse and check a dev loss."""
        return {} if self.layers.hides("evaluate", site, reply.content) else parse_evaluation(reply, self.run.expected(site))

    def record_dev_losses(self, number: int, losses: Mapping[str, Sums]) -> None:
        """Record the sites' dev losses after a round, and pass them to `aggregate_evaluate`."""
        progress, messages = self.run.progress, []
        progress.dev_losses[number], progress.pending = self.layers.dev_losses(dict(losses)), None
        for site, sums in losses.items():
            message = self.run.answers[site]
            task = ConfigRecord({**message.content.config_records[protocol.TASK], "round": number})
            loss = MetricRecord({WEIGHT: sums["num_examples"], "eval_loss": sums["nll_sum"] / sums["num_tokens"]})
            messages.append(copy(message))
            messages[-1].content = RecordDict({protocol.TASK: task, protocol.METRICS: loss})
        self.aggregate_evaluate(number, messages)
        self.phases.record.measure(number, progress.loss(number, self.settings.best_by), progress.dev_losses[number])

    # --- The end -----------------------------------------------------------------------------------------------------------------

    def parse_scores(self, site: str, reply: Message) -> dict[str, Scores]:
        """Parse and check a site's scores: text -> scores."""
        if self.layers.hides("finish", site, reply.content):
            return {}
        texts, rules = [member.name for member in self.registry.members[site]], self.registry.federation.rules
        return parse_scores(reply, self.run.expected(site), texts, rules.split.mixed)

    def collect_scores(self, replies: Sequence[Reply[dict[str, Scores]]]) -> None:
        """Store what the sites sent at the end."""
        self.run.totals = self.layers.totals([reply.site for reply in replies])
        self.run.scores = {text: scores for reply in replies for text, scores in reply.parsed.items()}

    def summary(self) -> None:
        """Announce method, sites and clusters in the run's progress."""
        of_parts = ((part, names) for part, names in self.clusters.items() if self.tensor_set.of_part(part))
        clusters = "; ".join(f"{part}: {', '.join(names)}" for part, names in of_parts)
        self.note(f"{self.settings.method} over {len(self.registry.sites)} sites; {clusters}")

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
        """Run all rounds; choose the best, deliver it, and score it once (strategies/rounds/loop.py)."""
        if train_config or evaluate_config or evaluate_fn:
            raise ConfigError(
                f"{type(self).__name__}.start got train_config, evaluate_config or evaluate_fn, which no round here uses; what a round's "
                "training needs goes into the config of configure_train, and the sites measure every round"
            )
        self.summary()
        self.run.initial = opened(initial_arrays)
        del initial_arrays
        return Result(arrays=arrays_of(Rounds(self.run).run_all(grid, num_rounds)))

    # --- Records -----------------------------------------------------------------------------------------------------------------

    @property
    def _most_bytes(self) -> int:
        return size_limit(self.tensor_set if self.travels else None, self.layers.bits_a_number)

    def _record(self, site: str, sums: Sums, norm: float, more: Mapping[str, Any]) -> None:
        """Enter a training's figures into the round's record."""
        record = self.phases.record.of(site)
        figures: dict[str, Any] = {"tensors_sent": len(self.tensor_set.specs) if self.travels else 0, **more}
        record["seconds"] |= {"train": round(sums["seconds"], 3), **figures.pop("seconds", {})}
        if "nll_sum" in sums:
            record["train_loss"] = sums["nll_sum"] / sums["num_tokens"]
        record["steps"] = int(sums["steps"])
        if self.travels:
            record["update_norm"] = norm
        record |= figures


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
