"""All rounds of a run: begin or resume, run and store each round, choose the best, deliver it, and collect the scores.

One single round is in strategies/strategy.py.
"""

import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

from flwr.serverapp import Grid

from fedlingua.backbones.knowledge import near_chance
from fedlingua.common.errors import RunError
from fedlingua.corpora.split import SPLITS
from fedlingua.exchange import protocol
from fedlingua.exchange.joined import Joined, join
from fedlingua.exchange.replies import RoundSkippedError
from fedlingua.exchange.state import RESERVED, State, checked_state
from fedlingua.runs.checkpoints import Checkpoint
from fedlingua.runs.progress import Progress, last_phase_rounds
from strategies.rounds.run import Run
from strategies.rounds.start import start_from


class Rounds:
    """The loop over a run's rounds."""

    def __init__(self, run: Run) -> None:
        self.run, self.strategy, self.settings = run, run.strategy, run.settings
        self.folder, self.phases, self.note = run.folder, run.phases, run.note
        self._seconds: list[float] = []
        """Seconds of this attempt's rounds."""

    @property
    def progress(self) -> Progress:
        return self.run.progress

    def run_all(self, grid: Grid, num_rounds: int) -> State:
        """Run all rounds, or the remaining ones of a resumed run; choose the best, deliver it, and score it once."""
        run, settings = self.run, self.settings
        run.update_files.clear()  # left by a killed server
        run.layers.begin(run, grid)
        state = self.strategy.init(run.initial)
        if settings.strategy:
            state = checked_state(f"{type(self.strategy).__name__}.init", state, state)
        run.state = replace(state, round=-1)
        run.initial = {}  # a full model takes too much memory to hold it twice
        if settings.resume:
            self._resume()
        if settings.start_from and run.progress.round < 0:
            tensors, notes = start_from(settings, self.folder, run.tensor_set, run.clusters)
            run.state = replace(run.state, tensors=tensors)
            for note in notes:
                self.note(note)
        # Patience ends a run at a measured round only, since nobody knows whether another one was better.
        while run.progress.round < num_rounds and not (
            run.is_measured(run.progress.round) and run.progress.is_stale(*run.patience)
        ):
            self._run_round(grid, run.progress.round + 1, num_rounds)
        if run.progress.round < num_rounds:
            self.note(f"stopped after round {run.progress.round}: no better dev loss in {settings.patience} rounds")
        self._finish(grid, num_rounds)
        return run.state

    def _run_round(self, grid: Grid, number: int, num_rounds: int) -> None:
        started = time.monotonic()
        self.phases.begin_round(number, num_rounds, trains=number > 0)
        state = self.run.state
        try:
            state = self.strategy.round(state, number, grid)
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
            if self.progress.pending is not None and self.run.is_measured_now(number):
                with suppress(RoundSkippedError):  # measures an earlier round, which has the same tensors
                    self.strategy.evaluate(state, number, grid)
                self.progress.pending = None
        finally:
            self.run.starts = {site: self.run.starts.get(site, self.run.sent) for site in self.phases.busy}
            self.run.sent = State({})
            self.run.update_files.clear()
        self._store(replace(state, round=number), num_rounds, time.monotonic() - started)

    def _store(self, state: State, num_rounds: int, seconds: float) -> None:
        """Make a state the run's, record the round, and write a checkpoint."""
        self.run.state, number = state, state.round
        record, earlier_best = self.phases.record, self.progress.best_round
        self.progress.round = number
        dev_loss = self.progress.loss(number, self.settings.best_by)
        line = {"round": number, "attempt": self.run.attempt, "seconds": round(seconds, 3), "dev_loss": dev_loss}
        self.folder.add_round({**line, **record.line()})
        if number == 0 and self.settings.backbone_weights == "published":
            measured = self.progress.dev_losses.get(0, {}).items()
            losses = {site: sums["nll_sum"] / sums["num_tokens"] for site, sums in measured}
            self.folder.warn(near_chance(losses, self.run.registry.vocabulary))
        if number > 0:
            self.progress.traffic += record.traffic
            self.progress.savings += record.savings
            stored = {0, number, *self.folder.checkpoints.rounds()}
            self.progress.choose_best(self.settings.best_by, {past for past in stored if self.run.is_at_sites(past)})
            if self.progress.outvoted:
                best = self.progress.best_round
                self.note(f"the best round is {best}: site {self.progress.outvoted} alone would have another")
        self.progress.earlier_stages = self.run.last_stages
        values = {"progress": self.progress.values(), "strategy": dict(state.values)}
        self.folder.checkpoints.save(number, state.tensors, {**state.memory, **state.of_layers}, values)
        # Keep the round before and its best, in case this checkpoint is damaged later, and the pending round, which may be the best.
        pending = self.progress.pending or 0
        self.folder.checkpoints.prune({number, number - 1, self.progress.best_round, earlier_best, pending})
        self.run.last_stages = self.run.stages_asked_for()
        self.folder.update(rounds=number, best_round=self.progress.best_round)
        up, down = map(sum, zip(*record.traffic, strict=True)) if record.traffic else (0, 0)
        about = {"dev_loss": dev_loss, "seconds": line["seconds"], "uplink_bytes": up, "downlink_bytes": down}
        about["last_phase_s"] = round(self._last_phase_s(seconds), 3)
        self.folder.event("round", round=number, rounds=num_rounds, **about)

    def _last_phase_s(self, seconds: float) -> float:
        """Return about how long the last phase takes, after a round of so many seconds; the first of an attempt has all start-up."""
        self._seconds.append(seconds)
        sizes: dict[str, float] = {
            split: sum(float(about[split]) for about in self.run.registry.about.values()) for split in SPLITS
        }
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
            self.run.state = self._joined(newest)
            self.phases.progress = Progress.of(newest.number, newest.values["progress"])
            self.note(f"resumed after round {newest.number}, attempt {self.run.attempt}")
        (self.folder.directory / "scores.json").unlink(missing_ok=True)  # of a run that now has other rounds
        self.run.last_stages = self.run.stages_asked_for()
        self.folder.cut_rounds(self.progress.round)
        self.folder.update(rounds=max(0, self.progress.round), best_round=self.progress.best_round)

    def _joined(self, checkpoint: Checkpoint) -> State:
        """Return the state that a checkpoint holds, its tensors end to end."""
        tensors: Any = checkpoint.tensors
        for part, clusters in tensors.items():
            for cluster in clusters:  # one after another, since two full models take too much memory
                of_part = self.run.tensor_set.in_part(part)
                clusters[cluster] = Joined(join(clusters[cluster], of_part), of_part)
        return self._state_of(checkpoint)

    def _check_resumable(self, checkpoint: Checkpoint) -> None:
        """Refuse a checkpoint whose best round is missing, since a run resumed from an earlier one trains that round again; and one that
        needs what the sites no longer store (`_task`)."""
        newest = max(*self.folder.checkpoints.rounds(), int((self.folder.read("run.json") or {}).get("rounds", 0)))
        if 0 < checkpoint.number < newest - 1 and self.run.sites_store:
            raise RunError(
                f"checkpoint {checkpoint.number:04d} is older than the last two rounds, {newest - 1} and {newest}; only of those the sites "
                "still have what they store between rounds"
            )
        progress, number = checkpoint.values["progress"], checkpoint.number
        measured, last = str(number) in progress["dev_losses"], self.settings.rounds
        is_due = number == last or (measured and number % self.settings.evaluate_every == 0)
        if number > 0 and is_due != measured and not self.run.layers.goes_on("train"):
            raise RunError(
                f"checkpoint {number:04d} is {'' if measured else 'not '}measured as the last of the rounds; round {number} is made again"
            )
        best = int(progress["best_round"])
        if self.strategy.travels and best > 0:
            self.folder.checkpoints.load(best)

    def _finish(self, grid: Grid, num_rounds: int) -> None:
        """Deliver the best round's tensors and collect the scores."""
        state, last = self.run.state, self.progress.round
        one, sites = self.progress.best_round, self.run.registry.expected
        best = {site: one if self.strategy.one_best_round else self.run.best_up_to(site, last) for site in sites}
        self.phases.begin_round(num_rounds, num_rounds)
        if self.strategy.travels and one > 0:
            self.run.state = state = self._state_of(self.folder.checkpoints.load(one))
        ask = partial(self.run.requests, protocol.FINISH, state, grid, best.__getitem__)
        self.strategy.collect_scores(self.phases.exchange(grid, ask, "finish", self.strategy.parse_scores))
        best_round = one if self.strategy.one_best_round else best
        self.folder.update(best_round=best_round, failures_at_the_end=self.phases.record.failures)

    def _state_of(self, checkpoint: Checkpoint) -> State:
        """Return the state that a checkpoint holds, with all that the method and the layers store besides tensors."""
        of_layers = {name: each for name, each in checkpoint.own.items() if name.startswith(RESERVED)}
        memory = {name: each for name, each in sorted(checkpoint.own.items()) if name not in of_layers}
        return State(checkpoint.tensors, checkpoint.number, memory, checkpoint.values["strategy"], of_layers)
