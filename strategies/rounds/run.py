"""A run at the server: what its rounds share, the requests that they make, and what a reply is checked against."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid

from fedlingua.clustering.clusters import Clusters
from fedlingua.common.errors import RunError
from fedlingua.evaluation.totals import Totals
from fedlingua.exchange import protocol
from fedlingua.exchange.expected import Expected, Sums
from fedlingua.exchange.protocol import START, Stage, Task
from fedlingua.exchange.records import Packed, pack
from fedlingua.exchange.replies import Failure, Reply
from fedlingua.exchange.state import State
from fedlingua.exchange.tensors import NamedTensors, TensorSet
from fedlingua.exchange.updates import UpdateFiles
from fedlingua.layers.layer import Layers
from fedlingua.layers.order import layers_of
from fedlingua.runs.folder import RunFolder
from fedlingua.runs.progress import Progress
from fedlingua.settings.config import Phase, Settings
from strategies.checks.contents import MEASURES, Scores
from strategies.rounds.phases import Parser, Phases, read_reply
from strategies.rounds.registration import Registry
from strategies.rounds.replies import in_order, replies_to

T = TypeVar("T")
PHASES: dict[str, Phase] = {protocol.EVALUATE: "evaluate", protocol.FINISH: "finish"}
"""Message type -> the phase whose deadline its requests have; "train": all others."""


@dataclass
class Federated:
    """What a strategy needs to know about its run. Its layers have it before, and may give it other clusters."""

    settings: Settings
    registry: Registry
    clusters: Clusters
    tensor_set: TensorSet
    folder: RunFolder

    @cached_property
    def layers(self) -> Layers:
        return layers_of(self.settings)

    def ask_all(
        self,
        grid: Grid,
        message_type: str,
        parse: Parser[T],
        need: str,
        most_bytes: Callable[[str], int],
        records: Callable[[str], Mapping[str, ArrayRecord | ConfigRecord]] = lambda site: {},
    ) -> dict[str, T]:
        """Ask all sites before the first round and return site -> its parsed reply, in federation order.

        A site that sends a bad reply is asked once more.

        Args:
            need: What the run needs of every site, in words; the error message begins with it.
            most_bytes: Site -> the upper bound of its reply's size.
            records: Site -> what its request carries besides its task.

        Raises:
            RunError: A site is absent or sent no usable reply; the message names the sites and the reasons.
        """
        run = self.folder.read("run.json") or {}
        tasks = {site: Task(site, str(run.get("id", "")), int(run.get("attempt", 1)), 0) for site in self.registry.sites}
        deadline = self.settings.deadline_of("train")
        parsed: dict[str, T] = {}

        ask = list(tasks)
        for _ in range(2):
            messages = {site: self.registry.request(message_type, tasks[site], deadline) for site in ask}
            for site, message in messages.items():
                message.content.update(records(site))
            self.folder.event("phase", phase=message_type.rpartition(".")[2], round=0, rounds=0, sites=len(messages))
            failures: list[Failure] = []
            for site, reply in replies_to(grid, messages, deadline, most_bytes):
                result = reply if isinstance(reply, Failure) else read_reply(site, reply, tasks[site], parse)
                if isinstance(result, Failure):
                    failures.append(result)
                else:
                    parsed[site] = result.parsed
            failures = in_order([failure for failure in failures if failure.kind != "duplicate"], ask)
            ask = [failure.site for failure in failures if failure.kind in ("refused", "unreadable", "failed")]
            if len(ask) < len(failures) or not ask:
                break
        absent = [Failure(site, "is not here") for site in self.registry.expected if site not in tasks]
        if missing := [*failures, *absent]:
            reasons = "; ".join(f"{failure.site}: {failure.reason}" for failure in missing)
            raise RunError(f"{need}, and {len(missing)} gave none ({reasons})")
        return {site: parsed[site] for site in self.registry.expected}


class Method(Protocol):
    """What a run asks of its strategy (strategies/strategy.py)."""

    travels: bool
    one_best_round: bool
    update_phase: Phase

    @property
    def evaluates_with_training(self) -> bool: ...

    def init(self, tensors: NamedTensors) -> State: ...

    def model_for(self, state: State, site: str) -> NamedTensors: ...

    def round(self, state: State, number: int, grid: Grid) -> State: ...

    def evaluate(self, state: State, number: int, grid: Grid) -> Any: ...

    def record_dev_losses(self, number: int, losses: Mapping[str, Sums]) -> None: ...

    def parse_scores(self, site: str, reply: Message) -> dict[str, Scores]: ...

    def collect_scores(self, replies: Sequence[Reply[dict[str, Scores]]]) -> None: ...


class Run:
    """What the rounds of a run share. `progress` and `state` are all that a resumed run needs.

    Attributes:
        state: That of the last stored round. sent: The one from which the current round trains.
            carried: That whose tensors the newest requests carry. answers: Site -> its reply in the round.
        starts: Site -> the state of an earlier round that it still trains from.
        trains_under: Site -> the settings of its last training; some may be a strategy's for the round.
        last_stages: Site -> the stages of its own tensors that the run asks for if it goes on from the last checkpoint.
        scores: Text -> its scores. totals: The scores as sums over all sites, if the server learns no others.
    """

    def __init__(self, of: Federated, strategy: Method) -> None:
        self.settings, self.registry, self.clusters = of.settings, of.registry, of.clusters
        self.tensor_set, self.folder, self.strategy = of.tensor_set, of.folder, strategy
        about = of.folder.read("run.json") or {}
        self.id, self.attempt = str(about.get("id", "")), int(about.get("attempt", 1))
        self.layers, self.ask_all = of.layers, of.ask_all
        self.phases = Phases(of.settings, of.registry, of.folder, Progress(), self.layers)
        self.note: Callable[[str], None] = self.phases.note
        self.state = self.sent = self.carried = State({})
        self.starts: dict[str, State] = {}
        self.trains_under: dict[str, Settings] = {}
        self.last_stages: dict[str, list[Stage]] = {}
        self.scores: dict[str, Scores] = {}
        self.totals: Totals | None = None
        self.update_files = UpdateFiles(of.folder.directory, len(of.registry.expected))
        self.patience = of.settings.patience, of.settings.min_gain, of.settings.best_by
        self.initial: NamedTensors = {}
        self.answers: Mapping[str, Message] = {}
        self._best: dict[tuple[int, int], int] = {}
        """(a round, how many rounds are measured) -> the best round up to it; only the last answer."""

    @property
    def progress(self) -> Progress:
        return self.phases.progress

    @property
    def update_phase(self) -> Phase:
        return self.strategy.update_phase

    def sent_to(self, site: str) -> NamedTensors:
        """Return the tensors that a site receives in the current round."""
        return self.strategy.model_for(self.sent, site)

    def received_by(self, site: str) -> NamedTensors:
        """Return the tensors that a site's training started from."""
        return self.strategy.model_for(self.starts.get(site, self.sent), site)

    def asked_in(self, site: str) -> int:
        """Return the round in which a site began the training of its latest reply."""
        task, _ = self.phases.last_request[site]
        return task.round

    def record_dev_losses(self, number: int, losses: Mapping[str, Sums]) -> None:
        """Record the sites' dev losses after a round."""
        self.strategy.record_dev_losses(number, losses)

    def check_score_sums(self, record: MetricRecord, most: int) -> None:
        """Raise ExchangeError for score sums that cannot be true. most: Their sentences."""
        MEASURES[self.settings.task].check_sums(record, most, self.registry.most_loss)

    # --- Measuring, and the best round -----------------------------------------------------------------------------------------

    def is_measured(self, number: int) -> bool:
        """Return whether the dev loss after a round is measured."""
        if (due := self.layers.due(number, number == self.phases.num_rounds)) is not None:
            return number in self.progress.dev_losses or bool(due)
        return number == self.phases.num_rounds or number % self.settings.evaluate_every == 0

    def is_measured_now(self, number: int) -> bool:
        """Return whether separate messages measure that loss: no later request is sure to carry the same tensors."""
        all_are_asked = self.strategy.evaluates_with_training and self.layers.asks_all
        no_other = number == self.phases.num_rounds or not all_are_asked or self.progress.may_end(number, *self.patience)
        return self.is_measured(number) and no_other

    def best_of(self, site: str) -> int:
        """Return the round whose tensors a site would keep now; 0: the backbone's."""
        return self.best_up_to(site, self.progress.round)

    def best_up_to(self, site: str, last: int) -> int:
        """Return the round that the site would use if the run ended with round `last`."""
        if not self.strategy.one_best_round:
            return self.progress.own_best(site, last, self.settings.best_by)
        key = last, len(self.progress.dev_losses)
        if key not in self._best:  # costs a look at every site and round
            self._best = {key: self.progress.best_up_to(last, self.settings.best_by)[0]}
        return self._best[key]

    # --- Requests, and what a reply is checked against -------------------------------------------------------------------------

    def requests(self, message_type: str, state: State, grid: Grid, round_of: Callable[[str], int]) -> list[Message]:
        """Make a request for each available site with its tensors. round_of: site -> the tensors' round; 0: the base, no tensors."""
        packed, messages, self.carried = Packed(), list[Message](), state
        for site in self.phases.available(grid, PHASES.get(message_type, "train")):
            number = round_of(site)
            messages.append(self.request(message_type, site, number, number))
            tensors = self.strategy.model_for(state, site) if number else {}
            messages[-1].content[protocol.ARRAYS] = pack(tensors, self.tensor_set, packed)
        return messages

    def request(self, message_type: str, site: str, number: int, own_round: int) -> Message:
        """Make a request without tensors. own_round: The round whose tensors to use of those that never leave the site."""
        task = self._task(site, number, own_round, message_type not in PHASES)
        if message_type == protocol.TRAIN:
            task = replace(task, measure=self.progress.pending)
        deadline = self.settings.deadline_of(PHASES.get(message_type, "train"), task.measure is not None)
        return self.registry.request(message_type, task, deadline)

    def _task(self, site: str, number: int, own_round: int, trains: bool) -> Task:
        if not self.has_own_tensors and not (trains and self.settings.remembers):
            return Task(site, self.id, self.attempt, number)
        # Damage to the last checkpoint must not end the run, so the sites also store what the one before asks for.
        keep = dict.fromkeys([*self.last_stages.get(site, ()), *self.progress.earlier_stages.get(site, ())])
        return Task(site, self.id, self.attempt, number, self.progress.own(site, own_round), tuple(keep))

    def expected(self, site: str) -> Expected:
        """Return the expectations that a site's reply is checked against."""
        about, earlier = self.registry.about[site], self.progress.digests.get(site)
        dev = next((losses[site] for losses in self.progress.dev_losses.values() if site in losses), None)
        measures, most = self.progress.pending is not None, (self.registry.most_loss, self.phases.most_seconds(site))
        return Expected(site, self.trains_under.get(site, self.settings), about, self.tensor_set, earlier, *most, measures, dev)

    # --- What sites store between rounds ---------------------------------------------------------------------------------------

    @property
    def has_own_tensors(self) -> bool:
        """Whether a site's model has tensors that never leave it."""
        return not self.strategy.travels or self.settings.splits_model

    @property
    def sites_store(self) -> bool:
        """Whether a site stores anything of one round that the next one needs."""
        return self.has_own_tensors or self.settings.remembers

    def stages_asked_for(self) -> dict[str, list[Stage]]:
        """Return site -> the stages of its own tensors that the run asks for if it goes on from the round that is stored last: those of
        that round, to train further, and of the best round by then. What only training needs is never delivered."""
        last = self.progress.round
        stages = {site: [self.progress.own(site, last)] for site in self.registry.expected if self.sites_store}
        for site, asked_for in stages.items() if self.has_own_tensors else ():
            best = self.progress.best_round if self.strategy.one_best_round else self.best_up_to(site, last)
            asked_for.append(self.progress.own(site, best))
        return {site: [stage for stage in dict.fromkeys(asked_for) if stage != START] for site, asked_for in stages.items()}

    def is_at_sites(self, number: int) -> bool:
        """Return whether all sites are sure to have their own tensors of a round, so that it may be delivered."""
        if not self.settings.splits_model:
            return True
        own, last = self.progress.own, self.state.round
        return all(
            own(site, number) in (START, own(site, last), *self.last_stages.get(site, ())) for site in self.registry.expected
        )
