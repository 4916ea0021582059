"""`fedlingua suite`: run every row with every seed in one engine, resume after an interruption, and write the table."""

import csv
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated

from typer import Argument, BadParameter, Option

from fedlingua.common.devices import computed_in
from fedlingua.common.errors import ConfigError, RunError
from fedlingua.common.files import APP_DIR, check_folder_to_write
from fedlingua.common.units import duration
from fedlingua.desk.cli import options
from fedlingua.desk.cli.attempt import STOPPED, Attempt, close_run
from fedlingua.desk.cli.completion import settings, toml_files
from fedlingua.desk.cli.engine import Engine
from fedlingua.desk.cli.output import Answer, Commands, console, example, plain_table, say, warn
from fedlingua.desk.cli.place import ready_profile
from fedlingua.desk.cli.profile import Profile
from fedlingua.desk.cli.progress import view_on
from fedlingua.desk.experiment import given_settings
from fedlingua.desk.pretraining.demo import make_built_in
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.kinds import SUITE
from fedlingua_lab.suites.read import Suite, read_suite
from fedlingua_lab.suites.runs import Run, make_ready, plan, standing

commands = Commands()
POLL_S = 0.5
RESULTS = APP_DIR / "experiments" / "results"


@commands.command(epilog=example("fedlingua suite experiments/fed_mnmt/table2_phrasebook.toml --jobs 2"))
def suite(
    file: Annotated[
        Path | None,
        Argument(help="Suite file (TOML): rows of settings and seeds; or FILE:VARIANT.", shell_complete=toml_files(SUITE)),
    ] = None,
    data: options.Data = None,
    set_: Annotated[
        list[str] | None, Option("--set", help="Override a key in every row: KEY=VALUE; repeatable.", shell_complete=settings)
    ] = None,
    jobs: Annotated[int, Option(min=1, help="Runs at the same time.")] = 1,
    runs: Annotated[Path, Option(help="Folder of the runs. Suites share runs with equal settings.")] = Path("runs/suites"),
    to: Annotated[
        Path | None, Option(help="Result folder; default: <folder>/<suite> in experiments/results, or ./runs/<suite> with --set.")
    ] = None,
    nodes: options.Nodes = None,
    profile: options.Profile = "simulation",
    ray_address: options.RayAddress = "",
    rebuild: Annotated[Path | None, Option(help="Only rewrite the tables of this result folder from its files.")] = None,
) -> Answer:
    """Run every row of a suite with every seed and write the table. An interrupted suite continues where it stopped."""
    if (file is None) == (rebuild is None):
        raise BadParameter("give a suite file, or --rebuild with a result's folder")
    if rebuild is not None:
        from fedlingua_lab.suites.result import write_tables

        write_tables(rebuild)
        _show_result(rebuild)
        return _answer(rebuild)
    assert file is not None
    wanted = read_suite(file, given_settings(set_ or ()), str(data.expanduser().resolve()) if data else "")
    result = _result_folder(wanted, to)
    check_folder_to_write(runs, "--runs")
    planned = plan(wanted, runs.resolve())
    place = ready_profile(profile, ray_address, jobs)
    started, shared = time.monotonic(), RunFolder(runs.resolve())
    if shared.is_held():
        raise RunError(f"{runs}: another suite is running there; wait for its end, or give another folder with --runs")
    # What draws pages is slow to import, and is not needed for reporting a mistake or for completion.
    from fedlingua_lab.pages.suite_page import write_suite_report
    from fedlingua_lab.suites.result import write_result

    with shared.held():
        say(f"{wanted.title}: {len(planned)} runs in {runs}")
        for precision, device in {(run.settings.precision, run.settings.device) for run in planned}:
            computed_in(precision, device, console().print)
        carry_out(planned, jobs, nodes, place)
        write_result(result, wanted, planned, time.monotonic() - started)
    checked = None
    if result.is_relative_to(RESULTS):  # it will be committed, so it is verified by the rules for committed results
        command = [sys.executable, "-m", "experiments.verify", result.relative_to(RESULTS).as_posix()]
        checked = subprocess.run(command, cwd=APP_DIR, capture_output=True, text=True, check=False)
        said = checked.stdout.strip() or checked.stderr.strip()
        say(f"{'not ' if checked.returncode else ''}verified: {said}", style="bold red" if checked.returncode else "")
    page = write_suite_report(result, runs.resolve() / wanted.name)
    _show_result(result)
    say(f"report: {page}")
    if failed := [run.title for run in planned if standing(run) != "completed"]:
        raise RunError(f"{len(failed)} of {len(planned)} runs failed: {'; '.join(failed)}; the same command retries them")
    if checked and checked.returncode:
        raise RunError(f"{result}: the results break the rules or claims of experiments.verify, as told above")
    return {**_answer(result), "report": page}


def _answer(result: Path) -> Answer:
    """Return the table for programs, a row a method, with the numbers of table.csv."""

    def number(value: str) -> float | str | None:
        try:
            return float(value)
        except ValueError:
            return value or None

    with (result / "table.csv").open(encoding="utf-8", newline="") as file:
        rows = [{key: number(value) for key, value in row.items()} for row in csv.DictReader(file)]
    return {"result": result, "table": rows}


def _show_result(result: Path) -> None:
    """Print the table, without the sites if they do not fit, and the paths of its files."""
    from fedlingua_lab.suites.table import SuiteTable

    made = SuiteTable.of(result)
    rows = made.score_rows(lambda text: f"{text}*")
    if sum(max(len(row[column]) for row in rows) + 3 for column in range(len(rows[0]))) > console().width:
        rows = [[row[0], *row[-3:]] for row in rows]
    caption = f"{made.metric.name}; * the best of a column"
    console().print(plain_table(*rows[0], rows=rows[1:], title=made.suite["title"], caption=caption))
    for name in ("table.md", "table.csv"):
        say(f"{name}: {result / name}")


def carry_out(runs: Sequence[Run], jobs: int, nodes: int | None, place: Profile) -> None:
    """Carry out the runs that are not completed, `jobs` at a time in one engine. A run that fails does not stop the others.

    Raises:
        RunError: the engine failed, and the active runs with it; the same command continues.
    """
    queue = RunQueue(runs, nodes)
    if not queue.waiting:
        return
    for name in {run.settings.backbone for run in queue.waiting}:
        make_built_in(name)
    try:
        with Engine(APP_DIR, None, place.side_by_side(jobs, os.cpu_count() or 1)) as engine:
            queue.work(engine, jobs)
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C, or a signal that the engine turned into an exit
        for folder in queue.active:
            close_run(RunFolder(folder), "interrupted", STOPPED)
        for attempt in queue.active.values():
            attempt.close()
        warn("interrupted; everything has been stopped; the same command continues", style="")
        raise


class RunQueue:
    """The runs of a suite: those waiting, those active, and how many seconds the completed ones took."""

    def __init__(self, runs: Sequence[Run], nodes: int | None, poll_s: float = POLL_S) -> None:
        self.nodes, self.poll_s = nodes, poll_s
        self.active: dict[Path, Attempt] = {}
        # Equal configurations share a folder; the first row's name counts.
        unique = {run.folder: run for run in reversed(runs)}
        self.waiting = [run for run in reversed(unique.values()) if standing(run) != "completed"]
        self.runs = runs
        self._started = len(runs) - len(self.waiting)
        self._seconds = _seconds(run.folder for run in runs if run.row.trains and standing(run) == "completed")
        if self._started:
            say(f"{self._started} of {len(self.runs)} runs are already there, or belong to another row")

    def work(self, engine: Engine, jobs: int) -> None:
        """Carry out all runs, until none is waiting or active."""
        while self.waiting or self.active:
            while self.waiting and len(self.active) < jobs:
                self._begin(engine, self.waiting.pop(0), side_by_side=jobs > 1)
            for folder, attempt in list(self.active.items()):
                try:
                    status = attempt.watch.look()
                except RunError as error:  # Flower does not answer for this run; the others may still come to their end
                    del self.active[folder]
                    _give_up(folder, error)
                    attempt.close()
                    continue
                if status is not None:
                    del self.active[folder]
                    reason = attempt.end(status)
                    if attempt.log:  # otherwise the run itself has said it
                        say(f"{folder.name} failed: {reason}\n{attempt.log}")
                    if not reason:
                        self._seconds += _seconds([folder])
                    attempt.close()
            time.sleep(self.poll_s if self.active else 0.0)

    def _begin(self, engine: Engine, run: Run, side_by_side: bool) -> None:
        self._started += 1
        left = ""
        if self._seconds:  # mean of the completed runs, for this one and those waiting
            seconds = fmean(self._seconds) * (len(self.waiting) + 1) / (len(self.active) + 1)
            left = f", about {duration(round(seconds))} left"
        say(f"run {self._started} of {len(self.runs)}: {run.title}{left}")
        try:
            settings = make_ready(run, self.runs)
        except RunError as error:
            say(f"{run.title} is left out: {error}")
            return
        view = view_on(console(), f"{run.title}: " if side_by_side else "  ")
        try:
            folder = RunFolder(run.folder)
            self.active[run.folder] = Attempt(engine, settings, run.federation, folder, self.nodes, view)
        except RunError as error:
            _give_up(run.folder, error)


def _give_up(folder: Path, error: RunError) -> None:
    close_run(RunFolder(folder), "failed", str(error))
    say(f"{folder.name} failed: {error}")


def _seconds(folders: Iterable[Path]) -> list[float]:
    of_runs = [(RunFolder(folder).read("run.json") or {}).get("seconds") for folder in folders]
    return [float(seconds) for seconds in of_runs if seconds]


def _result_folder(suite: Suite, to: Path | None) -> Path:
    """Return --to; or, for an unchanged suite of the app, its folder among the other results; or ./runs/<suite>."""
    folder = to or Path("runs") / suite.name
    above = suite.file.resolve().parent
    if to is None and not suite.overrides and above.parent == RESULTS.parent:
        folder = RESULTS / above.name / suite.name
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / "suite.json").is_file())):
        raise ConfigError(f"--to {folder}: holds something other than a suite's result; give another folder")
    return folder.resolve()
