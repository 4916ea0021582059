"""`fedlingua suite`: what is run, what is left as it is, what a failure does, and once with everything real."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from typer.testing import CliRunner

from fedlingua.common.errors import ConfigError, RunError
from fedlingua.desk.cli.app import app
from fedlingua.desk.cli.engine import RunStatus
from fedlingua.desk.report.keep import read_kept_runs
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.config import Scalar
from fedlingua_lab.cli.suite import RESULTS, RunQueue, _result_folder, suite
from fedlingua_lab.suites.read import read_suite
from fedlingua_lab.suites.result import rebuild
from fedlingua_lab.suites.runs import Run, plan, standing
from tests.federations import TWO_SITES
from tests.recorded import SUITE, RecordingEngine


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "two.toml").write_text(TWO_SITES)
    suite = tmp_path / "pair.toml"
    suite.write_text(SUITE.format(federation=tmp_path / "two.toml"))
    return suite


def planned(file: Path) -> list[Run]:
    return plan(read_suite(file, {}), file.parent / "runs")


def work(runs: list[Run], engine: RecordingEngine, jobs: int = 1) -> list[str]:
    out = io.StringIO()
    with redirect_stdout(out):
        RunQueue(runs, None, poll_s=0.001).work(engine, jobs)
    return out.getvalue().splitlines()


def test_a_suite_says_once_that_this_cpu_has_no_bf16(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class StartedError(Exception):
        pass

    def carry_out(*_: object) -> None:
        raise StartedError

    monkeypatch.setattr("fedlingua.common.devices.cpu_flags", frozenset)
    monkeypatch.setattr("fedlingua_lab.cli.suite.carry_out", carry_out)
    with pytest.raises(StartedError):
        suite(file, set_=["precision=bf16"], runs=tmp_path / "runs", to=tmp_path / "to")
    assert " ".join(capsys.readouterr().out.split()).count("this CPU has no native bf16 and computes in fp32") == 1


def test_every_run_is_handed_over_once_in_the_suites_order(file: Path) -> None:
    engine = RecordingEngine()
    runs = planned(file)
    told = work(runs, engine)
    assert [(settings.method, settings.aggregation, settings.seed) for settings in engine.taken] == [
        ("base", "fed-mean", 1),
        ("adapter-fed", "fed-mean", 1),
        ("adapter-fed", "fed-mean", 2),
        ("adapter-fed", "fed-avg", 1),
        ("adapter-fed", "fed-avg", 2),
    ]
    assert told[0] == "run 1 of 5: base, seed 1"
    assert any(re.fullmatch(r"run 5 of 5: adapter-fed\+fedavg, seed 2, about .* left", line) for line in told)
    assert all(standing(run) == "completed" for run in runs)


def test_a_second_call_runs_nothing(file: Path) -> None:
    work(planned(file), RecordingEngine())
    engine = RecordingEngine()
    assert work(planned(file), engine) == ["5 of 5 runs are already there, or belong to another row"]
    assert not engine.taken


def test_what_was_broken_off_is_resumed_and_what_was_done_is_left(file: Path) -> None:
    runs = planned(file)
    work(runs[:2], RecordingEngine())
    folder = RunFolder(runs[2].folder)
    settings = read_suite(file, {}).rows[1].settings
    folder.open(replace(settings, seed=2, run_dir=str(folder.directory)), 9)
    folder.checkpoints.save(1, {"encoder": {"all": {"a": np.zeros(1, np.float32)}}})
    engine = RecordingEngine()
    work(runs[:4], engine)
    assert [(settings.resume, settings.aggregation, settings.seed) for settings in engine.taken] == [
        (True, "fed-mean", 2),
        (False, "fed-avg", 1),
    ]
    run = folder.read("run.json")
    assert run is not None
    assert (run["status"], run["attempt"]) == ("completed", 2)


def test_equal_rows_are_run_once(file: Path) -> None:
    file.write_text(file.read_text() + '[[row]]\nname = "again"\nmethod = "adapter-fed"\n')
    engine = RecordingEngine()
    runs = planned(file)
    assert len(runs) == 7
    work(runs, engine)
    assert len(engine.taken) == 5
    assert all(standing(run) == "completed" for run in runs)


def test_a_failure_leaves_the_others_alone_and_is_tried_again(file: Path) -> None:
    told = work(planned(file), RecordingEngine(failing=("fed-avg",)))
    assert told.count("  run failed: site court: no reply; see /somewhere/on/this/machine.log") == 2
    assert [standing(run) for run in planned(file)] == ["completed"] * 3 + ["new"] * 2
    engine = RecordingEngine()
    work(planned(file), engine)
    assert [settings.aggregation for settings in engine.taken] == ["fed-avg", "fed-avg"]


class GoingEngine(RecordingEngine):
    """Notes how many runs were going on when another came; a run is finished when it is looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.going: set[str] = set()
        self.side_by_side: list[int] = []

    def submit(self, run_config: Mapping[str, Scalar], num_nodes: int) -> str:
        run_id = super().submit(run_config, num_nodes)
        self.going.add(run_id)
        self.side_by_side.append(len(self.going))
        return run_id

    def status(self, run_id: str) -> RunStatus:
        self.going.discard(run_id)
        return super().status(run_id)


def test_jobs_is_how_many_runs_go_side_by_side(file: Path) -> None:
    one, two = GoingEngine(), GoingEngine()
    work(planned(file), one)
    assert max(one.side_by_side) == 1
    file.write_text(file.read_text().replace("rounds = 2", "rounds = 3"))
    work(planned(file), two, jobs=2)
    assert max(two.side_by_side) == 2


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> type[RecordingEngine]:
    """Everything of the command but Flower."""

    class Entered(RecordingEngine):
        fails: tuple[str, ...] = ()

        def __init__(self, *where: object) -> None:
            super().__init__(self.fails)

        def __enter__(self) -> "Entered":
            return self

        def __exit__(self, *error: object) -> None:
            pass

    monkeypatch.setattr("fedlingua_lab.cli.suite.Engine", Entered)
    return Entered


def carried_out(file: Path, *overrides: str, to: Path | None = None) -> tuple[Path, str]:
    with redirect_stdout(io.StringIO()) as out, pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "120")
        answer = suite(file, set_=list(overrides), runs=file.parent / "runs", to=to)
    return answer["result"], out.getvalue()


def test_the_command_writes_the_result_and_prints_its_table(file: Path, recording: type, tmp_path: Path) -> None:
    result, printed = carried_out(file, to=tmp_path / "result")
    assert rebuild(result) == ((result / "table.csv").read_text(), (result / "table.md").read_text())
    assert "Two sites, two methods" in printed
    assert str(result / "table.md") in printed
    assert "25.00 ± 0.00*" in printed


def test_a_suite_says_at_its_start_and_at_its_end_what_lies_in_which_folder(file: Path, recording: type, tmp_path: Path) -> None:
    lines = carried_out(file, to=tmp_path / "result")[1].splitlines()
    said = [
        number for number, line in enumerate(lines) if line.endswith(f"in {tmp_path / 'runs'}, table in {tmp_path / 'result'}")
    ]
    assert said == [0, len(lines) - 1]


def test_the_command_ends_with_an_error_that_names_failed_runs_after_writing_the_result(
    file: Path, recording: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "fails", ("fed-avg",))
    with pytest.raises(RunError, match=r"2 of 5 runs failed: adapter-fed\+fedavg, seed 1; adapter-fed\+fedavg, seed 2"):
        carried_out(file, to=tmp_path / "result")
    markdown = (tmp_path / "result" / "table.md").read_text()
    assert "Failed: adapter-fed+fedavg-1: failed, site court: no reply; see machine.log" in markdown


def test_a_run_whose_server_could_not_say_why_it_failed_is_told_of_with_the_log(file: Path) -> None:
    class Dying(RecordingEngine):
        def submit(self, run_config: Mapping[str, Scalar], num_nodes: int) -> str:
            run_id = super().submit(run_config, num_nodes)
            folder = RunFolder(Path(str(run_config["run-dir"])))
            folder.update(status="running")
            folder.event("end", status="failed")
            return run_id

        def status(self, run_id: str) -> RunStatus:
            return RunStatus("finished", "failed", "the server was killed")

    run = planned(file)[0]
    told = work([run], Dying())
    assert f"{run.folder.name} failed: the server was killed" in told
    assert "the log's last lines" in told


def test_ctrl_c_is_said_of_what_was_going_on_and_no_result_is_written(
    file: Path, recording: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: RecordingEngine, run_id: str) -> RunStatus:
        folder = RunFolder(Path(self.taken[-1].run_dir))
        folder.update(status="running")
        raise KeyboardInterrupt

    monkeypatch.setattr(recording, "status", broken)
    with pytest.raises(KeyboardInterrupt):
        carried_out(file, to=tmp_path / "result")
    run = RunFolder(planned(file)[0].folder).read("run.json")
    assert run is not None
    assert (run["status"], run["reason"]) == ("interrupted", "stopped by the user")
    assert not (tmp_path / "result").exists()


def test_a_suite_keeps_out_of_runs_that_another_is_at_work_on(file: Path, recording: type, tmp_path: Path) -> None:
    with RunFolder(tmp_path / "runs").held(), pytest.raises(RunError, match="another suite is running there"):
        carried_out(file, to=tmp_path / "result")


def test_a_refused_suite_leaves_nothing(file: Path, recording: type, tmp_path: Path) -> None:
    (tmp_path / "two.toml").unlink()
    with pytest.raises(ConfigError, match="row base"):
        carried_out(file, to=tmp_path / "result")
    assert not (tmp_path / "runs").exists()
    assert not (tmp_path / "result").exists()


def test_rebuild_writes_the_tables_anew(file: Path, recording: type, tmp_path: Path) -> None:
    result, _ = carried_out(file, to=tmp_path / "result")
    table = (result / "table.csv").read_bytes()
    (result / "table.csv").unlink()
    done = CliRunner().invoke(app, ["suite", "--rebuild", str(result)])
    assert done.exit_code == 0, done.output
    assert (result / "table.csv").read_bytes() == table


def test_the_result_lies_beside_the_other_results_only_as_the_file_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = RESULTS.parent / "fed_mnmt" / "table2.toml"
    assert _result_folder(read_suite(own, {}), None) == RESULTS / "fed_mnmt" / "table2"
    assert _result_folder(read_suite(own, {"rounds": 1}), None) == tmp_path / "runs" / "table2"
    (tmp_path / "pair.toml").write_text(SUITE)
    assert _result_folder(read_suite(tmp_path / "pair.toml", {}), None) == tmp_path / "runs" / "pair"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    with pytest.raises(ConfigError, match="holds something other than a suite's result"):
        _result_folder(read_suite(own, {}), tmp_path / "full")


@pytest.mark.parametrize("arguments", [["suite"], ["suite", "a.toml", "--rebuild", "b"], ["suite", "a.toml", "--jobs", "0"]])
def test_what_makes_no_command_is_a_usage_error(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


def test_run_names_the_command_for_a_suite(file: Path) -> None:
    result = CliRunner().invoke(app, ["run", str(file)])
    assert isinstance(result.exception, ConfigError)
    assert "`fedlingua suite" in str(result.exception)


# --- Everything real ---


@pytest.fixture
def tiny(file: Path, tiny_run_config: dict[str, Scalar]) -> Path:
    """Two methods, one seed, one round, on the tiny backbone."""
    keys = {**tiny_run_config, "rounds": 1, "federation": str(file.with_name("two.toml"))}
    for key in ("method", "seed", "run-dir", "data-dir", "resume"):
        keys.pop(key)
    settings = "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
    file.write_text(f'seeds = [3]\n[settings]\n{settings}[[row]]\nmethod = "base"\n[[row]]\nmethod = "adapter-fed"\n')
    return file


def command(*arguments: object) -> list[str]:
    return [str(Path(sys.executable).with_name("fedlingua")), "suite", *map(str, arguments)]


@pytest.mark.slow
def test_a_suite_runs_in_one_engine_side_by_side_and_again_in_none(tiny: Path, tmp_path: Path) -> None:
    words = command(tiny, "--nodes", 2, "--jobs", 2)
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "run 2 of 2: adapter-fed, seed 3" in done.stdout
    assert "adapter-fed, seed 3: round 1/1" in done.stdout
    assert "\x1b" not in done.stdout
    result = tmp_path / "runs" / "pair"
    base, fed = csv.DictReader((result / "table.csv").open())
    scored = read_kept_runs(result)["adapter-fed-3"]["scores"]
    assert (base["method"], base["seeds"], base["exchanged_parameters"]) == ("base", "1", "0")
    assert float(fed["macro_bleu"]) == pytest.approx(scored["macro_bleu"], abs=1e-5)
    assert float(fed["court"]) == pytest.approx(scored["sites"]["court"]["bleu"], abs=1e-5)
    assert int(fed["uplink_bytes"]) == scored["uplink_bytes_per_round"] > 0
    account = json.loads((result / "suite.json").read_text())
    assert account["runs"]["adapter-fed-3"]["train_seconds"] > 0

    table = (result / "table.md").read_bytes()
    again = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "2 of 2 runs are already there" in again.stdout
    assert (result / "table.md").read_bytes() == table


@pytest.mark.slow
def test_ctrl_c_leaves_no_process_and_the_same_command_goes_on(tiny: Path, tmp_path: Path) -> None:
    tiny.write_text(tiny.read_text().replace("rounds = 1\n", "rounds = 60\n").replace('[[row]]\nmethod = "base"\n', ""))
    process = subprocess.Popen(
        command(tiny),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        # A shell's background job ignores Ctrl-C, and the tests may be one.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    runs, ends = tmp_path / "runs" / "suites", time.monotonic() + 120
    while not (found := list(runs.glob("*/checkpoints/0001"))):
        assert time.monotonic() < ends, "no round ended"
        assert process.poll() is None
        time.sleep(0.3)
    family = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command goes on" in stderr
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive
    folder = RunFolder(found[0].parents[1])
    run = folder.read("run.json")
    assert run is not None
    assert run["status"] == "interrupted"
    assert not (tmp_path / "runs" / "pair").exists()

    again = subprocess.run(command(tiny), capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
    run = folder.read("run.json")
    assert run is not None
    assert (run["status"], run["attempt"], run["rounds"]) == ("completed", 2, 60)
    assert (tmp_path / "runs" / "pair" / "table.csv").is_file()
