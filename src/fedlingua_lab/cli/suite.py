"""`fedlingua suite`: run every row with every seed in one engine, resume after an interruption, and write the table."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated

from typer import Argument, BadParameter, Option

from fedlingua.common.devices import computed_in
from fedlingua.common.errors import ConfigError, RunError
from fedlingua.common.files import APP_DIR
from fedlingua.desk.cli import options
from fedlingua.desk.cli.attempt import STOPPED, Attempt, close_run
from fedlingua.desk.cli.completion import settings, toml_files
from fedlingua.desk.cli.engine import Engine
from fedlingua.desk.cli.output import Answer, Commands, console, example, plain_table, say, warn
from fedlingua.desk.cli.profile import Profile, ready_profile
from fedlingua.desk.cli.progress import view_on
from fedlingua.desk.experiment import given_settings
from fedlingua.desk.paths import check_folder_to_write
from fedlingua.desk.pretraining.demo import make_built_in
from fedlingua.desk.units import duration
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
    if (file is None) == (rebuild is None):
        both = "got a suite file and --rebuild, which runs nothing; leave one out"
        raise BadParameter(both if file else "give a suite file, or --rebuild with a result's folder")
    if rebuild is not None:
        from fedlingua_lab.suites.result import write_tables

        write_tables(rebuild)
        return _shown(rebuild)
    assert file is not None
    wanted = read_suite(file, given_settings(set_ or ()), str(data.expanduser().resolve()) if data else "")
    result = _result_folder(wanted, to)
    check_folder_to_write(runs, "--runs")
    planned = plan(wanted, runs.resolve())
    where = f"runs and report in {runs}, table in {result}"
    place, started = ready_profile(profile, ray_address, jobs), time.monotonic()
    # What draws pages is slow to import, and is not needed for reporting a mistake or for completion.
    from fedlingua_lab.pages.suite_page import write_suite_report
    from fedlingua_lab.suites.result import write_result

    with RunFolder(runs.resolve()).held("another suite is running there; wait for its end, or give another folder with --runs"):
        say(f"{wanted.title}: {len(planned)} runs; {where}")
        for precision, device in {(run.settings.precision, run.settings.device) for run in planned}:
            computed_in(precision, device, console().print)
        carry_out(planned, jobs, nodes, place)
        write_result(result, wanted, planned, time.monotonic() - started)
    page = write_suite_report(result, runs.resolve() / wanted.name)
    answer = {**_shown(result), "report": page}
    say(f"report: {page}\n{where}")
    if failed := [run.title for run in planned if standing(run) != "completed"]:
        raise RunError(f"{len(failed)} of {len(planned)} runs failed: {'; '.join(failed)}; the same command retries them")
    if result.is_relative_to(RESULTS):  # it will be committed, so it is verified by the rules for committed results
        command = [sys.executable, "-m", "experiments.verify", result.relative_to(RESULTS).as_posix()]
        if subprocess.run(command, cwd=APP_DIR, stdout=sys.stderr, check=False).returncode:
            raise RunError(f"{result}: the results break the rules or claims of experiments.verify, as told above")
    return answer


def _shown(result: Path) -> Answer:
    """Print the table, without the sites if they do not fit, and return the numbers of table.csv for programs."""
    from pandas import read_csv  # type: ignore[import-untyped]

    from fedlingua_lab.suites.table import SuiteTable

    made = SuiteTable.of(result)
    rows = made.score_rows("{}*")
    if sum(max(map(len, column)) + 3 for column in zip(*rows, strict=True)) > console().width:
        rows = [[row[0], *row[-3:]] for row in rows]
    caption = f"{made.metric.name}; * the best of a column"
    console().print(plain_table(*rows[0], rows=rows[1:], title=made.suite["title"], caption=caption))
    for name in ("table.md", "table.csv"):
        say(f"{name}: {result / name}")
    numbers = read_csv(result / "table.csv", dtype={"method": str}, keep_default_na=False, na_values=[""])
    return {"result": result, "table": numbers.to_dict("records")}


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
    """The runs of a suite: those waiting and those active."""

    def __init__(self, runs: Sequence[Run], nodes: int | None, poll_s: float = POLL_S) -> None:
        self.runs, self.nodes, self.poll_s = runs, nodes, poll_s
        self.active: dict[Path, Attempt] = {}
        # Equal configurations share a folder; the first row's name counts.
        unique = {run.folder: run for run in reversed(runs)}
        self.waiting = [run for run in reversed(unique.values()) if standing(run) != "completed"]
        if there := len(runs) - len(self.waiting):
            say(f"{there} of {len(runs)} runs are already there, or belong to another row")

    def work(self, engine: Engine, jobs: int) -> None:
        """Carry out all runs, until none is waiting or active."""
        while self.waiting or self.active:
            while self.waiting and len(self.active) < jobs:
                self._begin(engine, self.waiting.pop(0), side_by_side=jobs > 1)
            for folder, attempt in list(self.active.items()):
                try:
                    if (status := attempt.watch.look()) is None:
                        continue
                    reason = attempt.end(status)
                    if attempt.log:  # otherwise the run itself has said it
                        say(f"{folder.name} failed: {reason}\n{attempt.log}")
                except RunError as error:  # Flower does not answer for this run; the others may still come to their end
                    _give_up(folder, error)
                del self.active[folder]
                attempt.close()
            time.sleep(self.poll_s if self.active else 0.0)

    def _begin(self, engine: Engine, run: Run, side_by_side: bool) -> None:
        say(f"run {len(self.runs) - len(self.waiting)} of {len(self.runs)}: {run.title}{self._left()}")
        try:
            settings = make_ready(run)
        except RunError as error:
            say(f"{run.title} is left out: {error}")
            return
        view = view_on(console(), f"{run.title}: " if side_by_side else "  ")
        try:
            self.active[run.folder] = Attempt(engine, settings, run.federation, RunFolder(run.folder), self.nodes, view)
        except RunError as error:
            _give_up(run.folder, error)

    def _left(self) -> str:
        """Return how long this run and those that wait will take, each as long as the mean of the completed ones; "" if there is none."""
        completed = {run.folder for run in self.runs if run.settings.how.trains and standing(run) == "completed"}
        if not completed:
            return ""
        seconds = fmean((RunFolder(folder).read("run.json") or {})["seconds"] for folder in completed)
        return f", about {duration(round(seconds * (len(self.waiting) + 1) / (len(self.active) + 1)))} left"


def _give_up(folder: Path, error: RunError) -> None:
    close_run(RunFolder(folder), "failed", str(error))
    say(f"{folder.name} failed: {error}")


def _result_folder(suite: Suite, to: Path | None) -> Path:
    """Return --to; or, for an unchanged suite of the app, its folder among the other results; or ./runs/<suite>."""
    folder = to or Path("runs") / suite.name
    above = suite.file.resolve().parent
    if to is None and not suite.overrides and above.parent == RESULTS.parent:
        folder = RESULTS / above.name / suite.name
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / "suite.json").is_file())):
        raise ConfigError(f"--to {folder}: holds something other than a suite's result; give another folder")
    return folder.resolve()
