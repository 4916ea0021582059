"""`fedlingua suite`: every row with every seed through one engine, going on where it was broken off, and the table of it all."""

import csv
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedlingua.common.devices import computed_in
from fedlingua.common.errors import ConfigError, RunError
from fedlingua.common.files import APP_DIR, check_folder_to_write
from fedlingua.desk.cli.attempt import Attempt, TakesRuns, close_run, num_nodes
from fedlingua.desk.cli.engine import Engine
from fedlingua.desk.cli.output import AnsweringConsole
from fedlingua.desk.cli.profile import PROFILES_FILE, Profile
from fedlingua.desk.cli.progress import PlainView, duration
from fedlingua.desk.pretraining.demo import make_built_in
from fedlingua.desk.report import write_suite_report
from fedlingua.desk.suites.read import Suite, read_suite
from fedlingua.desk.suites.result import read_result, write_result, write_tables
from fedlingua.desk.suites.runs import Run, make_ready, plan, standing
from fedlingua.desk.suites.table import SuiteTable
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.experiment import given_settings

LOOK_S = 0.5
RESULTS = APP_DIR / "experiments" / "results"


def run_suite(
    file: Path,
    data: Path | None,
    overrides: list[str],
    jobs: int,
    runs_dir: Path,
    to: Path | None,
    nodes: int | None,
    profile: str,
    console: Console,
) -> Path:
    """Run what is not there yet of a suite and write its result; returns the result's folder.

    Raises:
        ConfigError, CorpusError: before anything is started. RunError: a run failed; the result names it.
    """
    given = given_settings(overrides)
    suite = read_suite(file, given, str(data.expanduser().resolve()) if data else "")
    result_dir = _result_dir(suite, to)
    Profile.read(APP_DIR / PROFILES_FILE, profile)
    check_folder_to_write(runs_dir, "--runs")
    runs = plan(suite, runs_dir.resolve())
    started, shared = time.monotonic(), RunFolder(runs_dir.resolve())
    if shared.is_held():
        raise RunError(f"{runs_dir}: another suite is at work there; wait for its end, or give another folder with --runs")
    with shared.held():
        console.print(f"{suite.title}: {len(runs)} runs in {runs_dir}", markup=False, highlight=False, soft_wrap=True)
        for precision, device in {(run.settings.precision, run.settings.device) for run in runs}:
            computed_in(precision, device, console.print)
        carry_out(runs, jobs, nodes, profile, console)
        write_result(result_dir, suite, runs, time.monotonic() - started)
    if result_dir.is_relative_to(RESULTS):
        _verify(result_dir.relative_to(RESULTS).as_posix(), console)
    page = write_suite_report(result_dir, runs_dir.resolve() / suite.name)
    show_result(result_dir, console)
    console.print(f"report: {page}", soft_wrap=True)
    failed = [run.title for run in runs if standing(run) != "completed"]
    if failed:
        raise RunError(f"{len(failed)} of {len(runs)} runs failed: {'; '.join(failed)}; the same command tries them again")
    return result_dir


def _verify(name: str, console: Console) -> None:
    """Say what `experiments/verify.py` finds wrong with a result that is committed."""
    found = subprocess.run(
        [sys.executable, "-m", "experiments.verify", name], cwd=APP_DIR, capture_output=True, text=True, check=False
    )
    console.print(f"verified: {found.stdout.strip() or found.stderr.strip()}", markup=False, highlight=False, soft_wrap=True)


def rebuild_tables(result_dir: Path, console: Console) -> None:
    """Write the tables of a result anew from its suite.json and runs.jsonl.

    Raises:
        RunError: no suite's result there.
    """
    write_tables(result_dir)
    show_result(result_dir, console)


def told_suite(result_dir: Path) -> dict[str, Any]:
    """Of a suite's result, for programs: its table, a row a method; numbers as table.csv has them."""
    with (result_dir / "table.csv").open(encoding="utf-8", newline="") as file:
        rows = [{key: _number(value) for key, value in row.items()} for row in csv.DictReader(file)]
    return {"result": result_dir, "table": rows}


def _number(value: str) -> float | str | None:
    try:
        return float(value)
    except ValueError:
        return value or None


def show_result(result_dir: Path, console: Console) -> None:
    """Print the table, without the sites where they do not fit, and where it lies."""
    suite, scores = read_result(result_dir)
    made = SuiteTable(suite, scores)
    rows = made.score_rows(lambda text: f"{text}*")
    if sum(max(len(row[column]) for row in rows) + 3 for column in range(len(rows[0]))) > console.width:
        rows = [[row[0], *row[-3:]] for row in rows]
    table = Table(title=Text(suite["title"]), caption=f"{made.metric.name}; * the best of a column", box=box.SIMPLE_HEAD)
    for number, header in enumerate(rows[0]):
        table.add_column(Text(header), justify="right" if number else "left")
    for row in rows[1:]:
        table.add_row(*map(Text, row))
    console.print(table)
    for name in ("table.md", "table.csv"):
        console.print(f"{name}: {result_dir / name}", soft_wrap=True)


def carry_out(runs: Sequence[Run], jobs: int, nodes: int | None, profile: str, console: Console) -> None:
    """Run what is not completed, `jobs` side by side in one engine. A run that fails leaves the others alone.

    Raises:
        RunError: the engine is gone, and with it what was going on; the same command goes on.
    """
    bench = Bench(runs, nodes, console)
    if not bench.waiting:
        return
    for name in {run.settings.backbone for run in bench.waiting}:
        make_built_in(name)
    home = Path(tempfile.mkdtemp(prefix="fedlingua-"))
    try:
        place = Profile.read(APP_DIR / PROFILES_FILE, profile).side_by_side(jobs, os.cpu_count() or 1)
        with Engine(APP_DIR, home, place) as engine:
            bench.work(engine, jobs)
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C, or a signal that the engine turned into an exit
        bench.interrupt()
        AnsweringConsole(stderr=True).print("interrupted; all that was started has ended; the same command goes on")
        raise
    finally:
        shutil.rmtree(home, ignore_errors=True)


@dataclass
class Bench:
    """The runs of a suite at work: those that wait, those that are going on, and how long the finished ones took."""

    runs: Sequence[Run]
    nodes: int | None
    console: Console
    look_s: float = LOOK_S
    waiting: list[Run] = field(init=False)
    going: dict[Path, Attempt] = field(default_factory=dict)
    number: int = 0
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        unique = {
            run.folder: run for run in reversed(self.runs)
        }  # equal configurations share a folder; the first row's name counts
        self.waiting = [run for run in reversed(unique.values()) if standing(run) != "completed"]
        self.number = len(self.runs) - len(self.waiting)
        self.seconds = _seconds(run.folder for run in self.runs if run.row.trains and standing(run) == "completed")
        if self.number:
            self._say(f"{self.number} of {len(self.runs)} runs are there already, or are another row's")

    def work(self, engine: TakesRuns, jobs: int) -> None:
        """Until nothing waits and nothing is going on."""
        while self.waiting or self.going:
            while self.waiting and len(self.going) < jobs:
                self._begin(engine, self.waiting.pop(0), side_by_side=jobs > 1)
            for folder, attempt in list(self.going.items()):
                try:
                    status = attempt.watch.look()
                except RunError as error:  # Flower does not answer for this run; the others may still come to their end
                    del self.going[folder]
                    self._give_up(folder, error)
                    attempt.close()
                    continue
                if status is not None:
                    self._end(folder, attempt.end(status), attempt.log)
                    attempt.close()
            time.sleep(self.look_s if self.going else 0.0)

    def interrupt(self) -> None:
        """Say of what was going on that the user stopped it."""
        for attempt in self.going.values():
            attempt.interrupt()
        for attempt in self.going.values():
            attempt.close()

    def _begin(self, engine: TakesRuns, run: Run, side_by_side: bool) -> None:
        self.number += 1
        left = self._left_s()
        self._say(f"run {self.number} of {len(self.runs)}: {run.title}" + (f", about {duration(left)} left" if left else ""))
        view = PlainView(self.console, f"{run.title}: " if side_by_side else "  ")
        try:
            settings = make_ready(run)
        except RunError as error:
            self._say(f"{run.title} is left out: {error}")
            return
        nodes = num_nodes(settings, run.federation, self.nodes)
        try:
            self.going[run.folder] = Attempt(engine, settings, RunFolder(run.folder), nodes, view)
        except RunError as error:
            self._give_up(run.folder, error)

    def _give_up(self, folder: Path, error: RunError) -> None:
        close_run(RunFolder(folder), "failed", str(error))
        self._say(f"{folder.name} failed: {error}")

    def _end(self, folder: Path, reason: str, log: str) -> None:
        del self.going[folder]
        if log:  # otherwise the run itself has said it
            self._say(f"{folder.name} failed: {reason}\n{log}")
        if not reason:
            self.seconds += _seconds([folder])

    def _left_s(self) -> float:
        """Time for this run and those that wait, from the finished ones; 0 where none has finished."""
        if not self.seconds:
            return 0.0
        return sum(self.seconds) / len(self.seconds) * (len(self.waiting) + 1) / (len(self.going) + 1)

    def _say(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


def _seconds(folders: Iterable[Path]) -> list[float]:
    found = [(RunFolder(folder).read("run.json") or {}).get("seconds") for folder in folders]
    return [float(seconds) for seconds in found if seconds]


def _result_dir(suite: Suite, to: Path | None) -> Path:
    """--to, or beside the other results for a file of the app's own as it stands, or ./runs/<suite>.

    Raises:
        ConfigError: a folder that holds something else.
    """
    folder = to or Path("runs") / suite.name
    above = suite.file.resolve().parent
    if to is None and not suite.overrides and above.parent == RESULTS.parent:
        folder = RESULTS / above.name / suite.name
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / "suite.json").is_file())):
        raise ConfigError(f"--to {folder}: holds something other than a suite's result; give another folder")
    return folder.resolve()
