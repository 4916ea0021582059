"""All rounds of a run: begin or resume, run and store each round, choose the best, deliver it, and collect the scores.

One single round is in strategies/strategy.py.
"""

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from statistics import median
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedlingua.backbones.knowledge import near_chance
from fedlingua.clustering.clusters import Clusters
from fedlingua.common.errors import RunError
from fedlingua.corpora.split import SPLITS
from fedlingua.evaluation.totals import Totals
from fedlingua.exchange import protocol
from fedlingua.exchange.held import digests_of
from fedlingua.exchange.joined import Joined, join
from fedlingua.exchange.protocol import START, Stage, Task
from fedlingua.exchange.records import Packed, opened, pack
from fedlingua.exchange.tensors import NamedTensors, TensorSet
from fedlingua.runs.checkpoints import Checkpoint
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.config import Phase, Settings
from strategies.aggregation.mean import State
from strategies.aggregation.updates import UpdateFiles
from strategies.checks.contents import Expected, Scores, parse_scores
from strategies.progress import Progress, last_phase_rounds
from strategies.rounds.draw import draws
from strategies.rounds.flower_records import RESIDUAL, arrays_of, checked_state
from strategies.rounds.holdings import Holdings
from strategies.rounds.phases import Phases, RoundSkippedError
from strategies.rounds.registration import Registry
from strategies.rounds.replies import Reply
from strategies.rounds.start import start_from

PHASES: dict[str, Phase] = {
    protocol.TRAIN: "train",
    protocol.PROBE: "train",
    protocol.SEND: "send",
    protocol.UNMASK: "send",
    protocol.EVALUATE: "evaluate",
    protocol.FINISH: "finish",
}


@dataclass(frozen=True)
class Federated:
    """What a strategy needs to know about its run."""

    settings: Settings
    registry: Registry
    clusters: Clusters
    tensor_set: TensorSet
    folder: RunFolder


class Rounds(Strategy):
    """The loop over a run's rounds. `state` is that of the last stored round; `progress` is everything else that a resumed run needs.

    travels: Whether sites send updates. update_phase: The phase in which they do; "send" if a threshold is computed before it.
    one_best_round: Whether the federation chooses one best round, or every site its own.
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
        """`sent`: the state that the current round's requests carry, like `current_arrays` of Flower's FedAdam."""
        self.starts: dict[str, State] = {}
        """Site -> the state of an earlier round that it trains from, under `async.buffer`."""
        self.trains_under: dict[str, Settings] = {}
        """Site -> the settings of its last training; some may be a strategy's for the round."""
        self._best_round: dict[tuple[int, int], int] = {}
        """(a round, how many rounds are measured) -> the best round up to it; only the last answer."""
        self._last_stages: dict[str, list[Stage]] = {}
        """Site -> the stages of its own tensors that the run asks for if it goes on from the last checkpoint."""
        self._patience = of.settings.patience, of.settings.min_gain, of.settings.best_by
        self.scores: dict[str, Scores] = {}
        self.totals: Totals | None = None
        """The scores as sums over all sites, if the server learns no others."""
        everybody, self._drawn = of.registry.expected, list[set[str]]()
        number = of.settings.sites_drawn(len(everybody))
        self._draws = draws(everybody, of.clusters, number, of.settings.seed) if number < len(everybody) else None
        holdings = Holdings(lambda site: self._best_up_to(site, self.progress.round), of.settings.rounds_at_sites)
        self.phases = Phases(of.settings, of.registry, of.folder, Progress(), holdings)
        self._seconds: list[float] = []
        """Seconds of this attempt's rounds."""
        self.update_files = UpdateFiles(of.folder.directory, len(of.registry.expected))
        self.note = self.phases.note

    @abstractmethod
    def init(self, tensors: NamedTensors) -> State: ...

    @abstractmethod
    def model_for(self, state: State, site: str) -> NamedTensors: ...

    @abstractmethod
    def round(self, state: State, number: int, grid: Grid) -> State: ...

    @abstractmethod
    def evaluate(self, state: State, number: int, grid: Grid) -> Any: ...

    @property
    def progress(self) -> Progress:
        return self.phases.progress

    @property
    def evaluates_with_training(self) -> bool:
        """Whether a round's training request also measures the round before; false if a subclass overrides such a request."""
        cls = type(self)
        measures = {cls.configure_evaluate.__module__, cls.evaluate.__module__}
        return cls.configure_train.__module__.startswith("strategies.") and measures == {"strategies.strategy"}

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
        """Run all rounds, or the remaining ones of a resumed run; choose the best, deliver it, and score it once."""
        self.summary()
        self.update_files.clear()  # left by a killed server
        initial = opened(initial_arrays)
        if self.travels:
            self.phases.holdings.initial = digests_of(initial, self.tensor_set)
        self.state = self.init(initial)
        if self.settings.strategy:
            self.state = checked_state(f"{type(self).__name__}.init", self.state, self.state)
        self.state = replace(self.state, round=-1)
        del initial, initial_arrays  # a full model takes too much memory to hold it twice
        if self.settings.resume:
            self._resume()
        if self.settings.start_from and self.progress.round < 0:
            tensors, notes = start_from(self.settings, self.folder, self.tensor_set, self.clusters)
            self.state = replace(self.state, tensors=tensors)
            for note in notes:
                self.note(note)
        # Patience ends a run at a measured round only, since nobody knows whether another one was better.
        while self.progress.round < num_rounds and not (
            self.is_measured(self.progress.round) and self.progress.is_stale(*self._patience)
        ):
            self._run_round(grid, self.progress.round + 1, num_rounds)
        if self.progress.round < num_rounds:
            self.note(f"stopped after round {self.progress.round}: no better dev loss in {self.settings.patience} rounds")
        self._finish(grid, num_rounds)
        return Result(arrays=arrays_of(self.state))

    def _run_round(self, grid: Grid, number: int, num_rounds: int) -> None:
        started = time.monotonic()
        self.phases.begin_round(number, num_rounds, self.drawn_in(number))
        state = self.state
        try:
            state = self.round(state, number, grid)
        except RoundSkippedError as skipped:
            back_to = number - 1 if skipped.back_to is None else skipped.back_to
            for undone in range(back_to + 1, number + 1):
                self.progress.forget(undone)
                self.progress.dev_losses.pop(undone, None)
            if skipped.back_to is not None:
                state = self._joined(self.folder.checkpoints.load(back_to))
            self.note(
                f"{skipped}; its tensors stay as they were {'before' if skipped.back_to is None else f'after round {back_to}'}"
            )
            if self.progress.pending is not None and self.is_measured_now(number):
                with suppress(RoundSkippedError):  # measures an earlier round, which has the same tensors
                    self.evaluate(state, number, grid)
                self.progress.pending = None
        finally:
            self.starts = {site: self.starts.get(site, self.sent) for site in self.phases.busy}
            self.sent = State({})
            self.update_files.clear()
        self._store(replace(state, round=number), num_rounds, time.monotonic() - started)

    def drawn_in(self, number: int) -> set[str] | None:
        """Return the sites that train in a round; None: all."""
        if self._draws is None or number < 1:
            return None
        self._drawn += islice(self._draws, max(0, number - len(self._drawn)))
        return self._drawn[number - 1]

    def is_measured(self, number: int) -> bool:
        """Return whether the dev loss after a round is measured."""
        if self.settings.async_buffer:
            return number in self.progress.dev_losses or bool(self.due(number))
        return number == self.phases.num_rounds or number % self.settings.evaluate_every == 0

    def due(self, number: int) -> list[str]:
        """Return the sites that measure a round under `async.buffer`: those that do not train now, and have not measured one of the last
        `evaluate-every` rounds, or would not have when they are back from a training as long as their last one."""
        every = 0 if number == self.phases.num_rounds else self.settings.evaluate_every
        ages = {site: number - self.asked_in(site) for site in self.starts}
        idle = [site for site in self.registry.expected if site not in self.phases.busy]
        return [s for s in idle if (last := self.progress.measured_in(s)) < 0 or number - last + ages.get(s, 0) >= every]

    def asked_in(self, site: str) -> int:
        """Return the round in which a site began the training of its latest reply."""
        task, _ = self.phases.last_request[site]
        return task.round

    def is_measured_now(self, number: int) -> bool:
        """Return whether separate messages measure that loss: no later request is sure to carry the same tensors."""
        all_are_asked = self.evaluates_with_training and self._draws is None and not self.settings.async_buffer
        no_other = number == self.phases.num_rounds or not all_are_asked or self.progress.may_end(number, *self._patience)
        return self.is_measured(number) and no_other

    def _store(self, state: State, num_rounds: int, seconds: float) -> None:
        """Make a state the run's, record the round, and write a checkpoint."""
        self.state, number = state, state.round
        record, earlier_best = self.phases.record, self.progress.best_round
        self.progress.round = number
        dev_loss = self.progress.loss(number, self.settings.best_by)
        line = {"round": number, "attempt": self.attempt, "seconds": round(seconds, 3), "dev_loss": dev_loss}
        self.folder.add_round({**line, **record.line()})
        if number == 0 and self.settings.backbone_weights == "published":
            measured = self.progress.dev_losses.get(0, {}).items()
            losses = {site: sums["nll_sum"] / sums["num_tokens"] for site, sums in measured}
            self.folder.warn(near_chance(losses, self.registry.vocabulary))
        if number > 0:
            self.progress.traffic += record.traffic
            self.progress.savings += record.savings
            stored = {0, number, *self.folder.checkpoints.rounds()}
            self.progress.choose_best(self.settings.best_by, {past for past in stored if self._is_at_sites(past)})
            if self.progress.outvoted:
                best = self.progress.best_round
                self.note(f"the best round is {best}: site {self.progress.outvoted} alone would have another")
        self.progress.earlier_stages = self._last_stages
        values = {"progress": self.progress.values(), "strategy": dict(state.values)}
        residuals = {f"{RESIDUAL}{key}": numbers for key, numbers in state.residuals.items()}
        self.folder.checkpoints.save(number, state.tensors, {**state.memory, **residuals}, values)
        # Keep the round before and its best, in case this checkpoint is damaged later, and the pending round, which may be the best.
        pending = self.progress.pending or 0
        self.folder.checkpoints.prune({number, number - 1, self.progress.best_round, earlier_best, pending})
        self._last_stages = self._stages_asked_for()
        self.folder.update(rounds=number, best_round=self.progress.best_round)
        up, down = map(sum, zip(*record.traffic, strict=True)) if record.traffic else (0, 0)
        about = {"dev_loss": dev_loss, "seconds": line["seconds"], "uplink_bytes": up, "downlink_bytes": down}
        about["last_phase_s"] = round(self._last_phase_s(seconds), 3)
        self.folder.event("round", round=number, rounds=num_rounds, **about)

    def _last_phase_s(self, seconds: float) -> float:
        """Return about how long the last phase takes, after a round of so many seconds; the first of an attempt has all start-up."""
        self._seconds.append(seconds)
        sizes: dict[str, float] = {split: sum(float(about[split]) for about in self.registry.about.values()) for split in SPLITS}
        minutes, rounds = self.settings.keep_minutes, last_phase_rounds(self.settings, sizes)
        estimate = rounds * median(self._seconds[1:] or self._seconds)
        return min(estimate, 60 * minutes) if minutes and self.settings.chooses else estimate

    def _resume(self) -> None:
        """Restore the last complete round; skip damaged checkpoints and name them."""
        newest, passed_over = self.folder.checkpoints.newest_good(self._check_resumable)
        for reason in passed_over:
            self.note(f"checkpoint passed over: {reason}")
        if newest is None:
            self.note("no good checkpoint is left, so the run begins again at its start")
        else:
            self.state = self._joined(newest)
            self.phases.progress = Progress.of(newest.number, newest.values["progress"])
            self.note(f"resumed after round {newest.number}, attempt {self.attempt}")
        (self.folder.directory / "scores.json").unlink(missing_ok=True)  # of a run that now has other rounds
        self._best_round, self._last_stages = {}, self._stages_asked_for()
        self.folder.cut_rounds(self.progress.round)
        self.folder.update(rounds=max(0, self.progress.round), best_round=self.progress.best_round)

    def _joined(self, checkpoint: Checkpoint) -> State:
        """Return the state that a checkpoint holds, its tensors end to end."""
        tensors: Any = checkpoint.tensors
        for part, clusters in tensors.items():
            for cluster in clusters:  # one after another, since two full models take too much memory
                of_part = self.tensor_set.in_part(part)
                clusters[cluster] = Joined(join(clusters[cluster], of_part), of_part)
        return _state_of(checkpoint)

    def _check_resumable(self, checkpoint: Checkpoint) -> None:
        """Refuse a checkpoint whose best round is missing, since a run resumed from an earlier one trains that round again; and one that
        needs what the sites no longer store (`_task`)."""
        newest = max(*self.folder.checkpoints.rounds(), int((self.folder.read("run.json") or {}).get("rounds", 0)))
        if 0 < checkpoint.number < newest - 1 and self._sites_store:
            raise RunError(
                f"checkpoint {checkpoint.number:04d} is older than the last two rounds, {newest - 1} and {newest}; only of those the sites "
                "still have what they store between rounds"
            )
        progress, number = checkpoint.values["progress"], checkpoint.number
        measured, last = str(number) in progress["dev_losses"], self.settings.rounds
        is_due = number == last or (measured and number % self.settings.evaluate_every == 0)
        if number > 0 and is_due != measured and not self.settings.async_buffer:
            raise RunError(
                f"checkpoint {number:04d} is {'' if measured else 'not '}measured as the last of the rounds; round {number} is made again"
            )
        best = int(progress["best_round"])
        if self.travels and best > 0:
            self.folder.checkpoints.load(best)

    # --- What sites store between rounds ---------------------------------------------------------------------------------------

    @property
    def _has_own_tensors(self) -> bool:
        """Whether a site's model has tensors that never leave it."""
        return not self.travels or self.settings.splits_model

    @property
    def _sites_store(self) -> bool:
        """Whether a site stores anything of one round that the next one needs."""
        return self._has_own_tensors or self.settings.remembers

    def _stages_asked_for(self) -> dict[str, list[Stage]]:
        """Return site -> the stages of its own tensors that the run asks for if it goes on from the round that is stored last: those of
        that round, to train further, and of the best round by then. What only training needs, such as a residual, is never delivered."""
        last = self.progress.round
        stages = {site: [self.progress.own(site, last)] for site in self.registry.expected if self._sites_store}
        for site, asked_for in stages.items() if self._has_own_tensors else ():
            best = self.progress.best_round if self.one_best_round else self._best_up_to(site, last)
            asked_for.append(self.progress.own(site, best))
        return {site: [stage for stage in dict.fromkeys(asked_for) if stage != START] for site, asked_for in stages.items()}

    def _is_at_sites(self, number: int) -> bool:
        """Return whether all sites are sure to have their own tensors of a round, so that it may be delivered."""
        if not self.settings.splits_model:
            return True
        own, last = self.progress.own, self.state.round
        return all(
            own(site, number) in (START, own(site, last), *self._last_stages.get(site, ())) for site in self.registry.expected
        )

    # --- The end ---------------------------------------------------------------------------------------------------------------

    def _finish(self, grid: Grid, num_rounds: int) -> None:
        """Deliver the best round's tensors and collect the scores."""
        state, last = self.state, self.progress.round
        one, sites = self.progress.best_round, self.registry.expected
        best = {site: one if self.one_best_round else self._best_up_to(site, last) for site in sites}
        self.phases.begin_round(num_rounds, num_rounds)
        if self.travels and one > 0:
            self.state = state = _state_of(self.folder.checkpoints.load(one))
        ask = partial(self._requests, protocol.FINISH, state, grid, best.__getitem__)
        self.collect_scores(self.phases.exchange(grid, ask, "finish", self._parse_scores))
        best_round = one if self.one_best_round else best
        self.folder.update(best_round=best_round, failures_at_the_end=self.phases.record.failures)

    def collect_scores(self, replies: Sequence[Reply[dict[str, Scores]]]) -> None:
        """Store what the sites sent at the end."""
        self.scores = {text: scores for reply in replies for text, scores in reply.parsed.items()}

    def _parse_scores(self, site: str, reply: Message) -> dict[str, Scores]:
        texts = [member.name for member in self.registry.members[site]]
        mixed = self.registry.federation.rules.split.mixed
        return parse_scores(reply, self._expected(site), texts, mixed)

    def _best_up_to(self, site: str, last: int) -> int:
        """Return the round that the site would use if the run ended with round `last`."""
        if not self.one_best_round:
            return self.progress.own_best(site, last, self.settings.best_by)
        key = last, len(self.progress.dev_losses)
        if key not in self._best_round:  # costs a look at every site and round
            self._best_round = {key: self.progress.best_up_to(last, self.settings.best_by)[0]}
        return self._best_round[key]

    def _expected(self, site: str) -> Expected:
        """Return the expectations that a site's reply is checked against."""
        about, earlier = self.registry.about[site], self.progress.digests.get(site)
        dev = next((losses[site] for losses in self.progress.dev_losses.values() if site in losses), None)
        measures, most = self.progress.pending is not None, (self.registry.most_loss, self.phases.most_seconds(site))
        return Expected(site, self.trains_under.get(site, self.settings), about, self.tensor_set, earlier, *most, measures, dev)

    # --- Requests --------------------------------------------------------------------------------------------------------------

    def _requests(self, message_type: str, state: State, grid: Grid, round_of: Callable[[str], int]) -> list[Message]:
        """Make a request for each available site with its tensors. round_of: site -> the tensors' round; 0: the base, no tensors."""
        packed, messages = Packed(), []
        for site in self.phases.available(grid, PHASES[message_type]):
            number = round_of(site)
            messages.append(self._request(message_type, site, number, number))
            messages[-1].content[protocol.ARRAYS] = pack(self.model_for(state, site) if number else {}, self.tensor_set, packed)
        return messages

    def _request(self, message_type: str, site: str, number: int, own_round: int) -> Message:
        """Make a request without tensors. own_round: The round whose tensors to use of those that never leave the site."""
        task = self._task(site, number, own_round, PHASES[message_type] in ("train", "send"))
        if message_type == protocol.TRAIN:
            task = replace(task, measure=self.progress.pending)
        deadline = self.settings.deadline_of(PHASES[message_type], task.measure is not None)
        return self.registry.request(message_type, task, deadline)

    def _task(self, site: str, number: int, own_round: int, trains: bool) -> Task:
        if not self._has_own_tensors and not (trains and self.settings.remembers):
            return Task(site, self.run_id, self.attempt, number)
        # Damage to the last checkpoint must not end the run, so the sites also store what the one before asks for.
        keep = dict.fromkeys([*self._last_stages.get(site, ()), *self.progress.earlier_stages.get(site, ())])
        return Task(site, self.run_id, self.attempt, number, self.progress.own(site, own_round), tuple(keep))


def _state_of(checkpoint: Checkpoint) -> State:
    """Return the state that a checkpoint holds, with all that the method stores besides tensors."""
    memory = {name: array for name, array in sorted(checkpoint.own.items()) if not name.startswith(RESIDUAL)}
    residuals = {name.removeprefix(RESIDUAL): array for name, array in checkpoint.own.items() if name.startswith(RESIDUAL)}
    return State(checkpoint.tensors, checkpoint.number, memory, checkpoint.values["strategy"], residuals)
