"""`fedlingua run` with everything real: flwr, a SuperLink, Ray, the bundle, kill -9 and what it leaves behind; and all that it refuses."""

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from fedlingua.common.errors import ConfigError, CorpusError, RunError
from fedlingua.corpora.sites import Federation
from fedlingua.desk.cli.app import app
from fedlingua.desk.cli.engine import MARK, RAY_LIMIT
from fedlingua.desk.cli.run import check_experiment, run
from fedlingua.desk.deployment.server_file import ServerFile, add_site, init_server
from fedlingua.desk.experiment import read_experiment
from fedlingua.desk.processes import end, marked
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Settings
from strategies.server_app import run_federation
from tests.federations import TWO_SITES
from tests.in_process import InProcessGrid, checkpoint_bytes, rounds


@pytest.fixture
def experiment(least_run_config, tmp_path) -> Path:
    (tmp_path / "two.toml").write_text(TWO_SITES)
    keys = {**least_run_config, "method": "adapter-families", "federation": str(tmp_path / "two.toml")}
    file = tmp_path / "two_sites.toml"
    file.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items()))
    return file


def command(*arguments: object) -> list[str]:
    return [str(Path(sys.executable).with_name("fedlingua")), *map(str, arguments)]


def finished(arguments: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, capture_output=True, text=True, timeout=600, cwd=directory)


TRACK = "tensorboard" if importlib.util.find_spec("tensorboard") else ""


def ended_as_tracked(folder: RunFolder) -> str | None:
    """What TensorBoard was told of the run's end, if it was told anything."""
    told = folder.read(f"tracking/{TRACK}.json") if TRACK else None
    return told["ended"] if told else None


def killed(arguments: list[str], run: Path) -> None:
    """Begin a run and, once its first round is on disk, or is being written, kill -9 all that the command started, as a lost power does."""
    folder, server_app = RunFolder(run), None
    first = [folder.checkpoints.directory / name for name in (".0001.writing", "0001")]
    with (run.parent / "killed.log").open("w") as log:
        # What is killed clears nothing away: that all lies where pytest does.
        environment = {**os.environ, "TMPDIR": str(run.parent)}
        process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=run.parent, env=environment)
    family = {psutil.Process(process.pid)}
    try:
        ends = time.monotonic() + 300
        while server_app is None or not any(map(Path.exists, first)):
            assert time.monotonic() < ends, (run.parent / "killed.log").read_text()
            assert process.poll() is None, (run.parent / "killed.log").read_text()
            if server_app is None and (run / "progress.jsonl").is_file():
                server_app = next(filter(is_server_app, psutil.Process(process.pid).children(recursive=True)))
            time.sleep(0.01 if server_app else 0.1)
    finally:
        # The trackers are children of the command's, the engine's processes carry its mark, whatever session they moved to.
        family |= set(psutil.Process(process.pid).children(recursive=True))
        if server_app:
            variables = server_app.environ()
            family |= set(marked(MARK, variables[MARK]))
            shutil.rmtree(variables["RAY_TMPDIR"], ignore_errors=True)
        end(family, 0.0)
        process.wait(60)
    end(marked(MARK, variables[MARK]), 0.0)  # what was being started meanwhile
    assert folder.read("run.json")["status"] not in ("completed", "failed")


def is_server_app(process: psutil.Process) -> bool:
    """Of a simulation it is `flwr-simulation`, beneath the SuperLink."""
    with contextlib.suppress(psutil.Error):
        return any(word.endswith("flwr-simulation") for word in process.cmdline())
    return False


@pytest.mark.timeout(900)
@pytest.mark.fault("resumed")
def test_a_run_that_is_killed_and_resumed_ends_whole_and_equals_the_rounds_in_one_process(experiment, tmp_path, record_property):
    """Two starts of the engine serve seven facts, since each costs many seconds; the sixth: tracked, it is the same as untracked; the
    seventh: on one node, it is the same as on two."""
    track = ("--set", f"track={TRACK}", "--set", "rounds=2")
    killed(command("run", experiment, "--to", tmp_path / "run", "--nodes", 2, "--seed", 3, *track), tmp_path / "run")
    done = finished(command("run", "--resume", tmp_path / "run", "--nodes", 1), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = RunFolder(tmp_path / "run")
    run = folder.read("run.json")
    assert (run["status"], run["attempt"], run["seed"]) == ("completed", 2, 3)
    assert "round 2/2" in done.stdout  # plain lines where there is no terminal
    assert "\x1b" not in done.stdout
    assert (folder.directory / "report.html").stat().st_size < 8_000_000
    made = (folder.directory / "progress.jsonl").read_text().count('"event": "round"')
    assert made - len(rounds(folder)) <= 1  # a whole round that is made again
    record_property("rounds_lost", 3 - len(rounds(folder)))

    assert ended_as_tracked(folder) == ("completed" if TRACK else None)

    config = {**run["config"], "run-dir": str(tmp_path / "same"), "track": "", "resume": False}
    same = RunFolder(tmp_path / "same")
    same.open(settings_from(config), 1)
    run_federation(InProcessGrid(config, num_nodes=1), settings_from(config), same)
    assert checkpoint_bytes(folder) == checkpoint_bytes(same)
    for site in ("hospital", "court"):
        adapter = Path("sites") / site / "adapter" / "adapter.safetensors"
        assert (folder.directory / adapter).read_bytes() == (same.directory / adapter).read_bytes()
    assert [line["dev_loss"] for line in rounds(folder)] == [line["dev_loss"] for line in rounds(same)]
    scores, wanted = same.read("scores.json"), folder.read("scores.json")
    # Flower's random node ids are a few bytes shorter or longer; and a resumed run sends once more what sites have.
    assert abs(scores.pop("uplink_bytes_per_round") - wanted.pop("uplink_bytes_per_round")) < 100
    assert scores.pop("downlink_bytes_per_round") < wanted.pop("downlink_bytes_per_round")
    once, again = scores.pop("total_bytes"), wanted.pop("total_bytes")
    assert all(once[way] < again[way] for way in ("up", "down"))
    assert scores == wanted

    text = "Guten Tag.\n\nDer Arzt liest.\n"
    for wanted in (["--site", "hospital"], ["--direction", "nl-it"]):
        result = CliRunner().invoke(app, ["translate", "--run", str(folder.directory), *wanted], input=text)
        assert result.exit_code == 0, result.output
        assert result.stdout.count("\n") == 3
        assert result.stdout.split("\n")[1] == ""

    rendered = CliRunner().invoke(app, ["report", str(folder.directory)])
    assert rendered.exit_code == 0
    assert "hospital" in rendered.output


LATE = """
import os
from pathlib import Path

from ray._private import services

HERE = Path(__file__).parent


def late(runtime_env):
    with (HERE / "starts").open("a") as starts:
        starts.write("x")
    if len((HERE / "starts").read_text()) <= int(os.environ["LATE_STARTS"]):
        program = HERE / "raylet.sh"
        program.write_text(f'#!/bin/sh\\nsleep 40\\nexec {services.RAYLET_EXECUTABLE} "$@"\\n')
        program.chmod(0o755)
        services.RAYLET_EXECUTABLE = str(program)
    return runtime_env
"""


@pytest.mark.slow  # Ray waits 30 s at least
@pytest.mark.parametrize(
    ("limit", "late", "starts"),
    [({}, 1, 1), ({RAY_LIMIT: "1"}, 1, 2), ({RAY_LIMIT: "1"}, 9, 2)],
    ids=["waited-for", "started-again", "given-up"],
)
def test_a_ray_that_is_late_is_waited_for_then_started_again_then_the_cause(
    experiment, tmp_path, monkeypatch, limit, late, starts
):
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "late_ray.py").write_text(LATE, encoding="utf-8")
    monkeypatch.delenv(RAY_LIMIT, raising=False)
    hook = {"PYTHONPATH": str(tmp_path / "hook"), "RAY_RUNTIME_ENV_HOOK": "late_ray.late", "LATE_STARTS": str(late), **limit}
    for name, value in hook.items():
        monkeypatch.setenv(name, value)
    done = finished(command("run", experiment, "--to", tmp_path / "run", "--set", "rounds=1"), tmp_path)
    shown = done.stdout + done.stderr
    assert (tmp_path / "hook" / "starts").read_text() == starts * "x", shown
    assert shown.count("it is started again") == starts - 1
    if late == 1:
        assert done.returncode == 0, shown
        assert f"report: {tmp_path / 'run' / 'report.html'}" in shown
    else:
        assert done.returncode == 1
        assert "error: the run failed: Ray, which simulates the sites, did not start in 2 tries" in shown.splitlines()[-1]
        assert "Traceback" not in shown


@pytest.mark.slow
def test_ctrl_c_stops_everything_and_says_so(experiment, tmp_path, request):
    process = subprocess.Popen(
        command("run", experiment, "--to", tmp_path / "run", "--set", "rounds=500", "--set", f"track={TRACK}"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        # A shell's background job ignores Ctrl-C, and the suite may be one.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    request.addfinalizer(lambda: process.poll() is None and (process.send_signal(signal.SIGINT), process.wait(60)))
    ends = time.monotonic() + 240
    while not (tmp_path / "run" / "rounds.jsonl").is_file():
        assert time.monotonic() < ends, "no round ended"
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.3)
    family = psutil.Process(process.pid).children(recursive=True)
    assert family
    os.kill(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in stderr
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "interrupted"
    assert ended_as_tracked(RunFolder(tmp_path / "run")) == ("interrupted" if TRACK else None)
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["method=adapter-famlies"], ["method", "adapter-famlies", "did you mean 'adapter-families'"]),
        (["batchsize=3"], ["batchsize", "did you mean 'batch-size'"]),
        (["rounds=many"], ["rounds = 'many'", "wanted int"]),
        (["federation=nowhere.toml"], ["nowhere.toml", "no such file"]),
        (["rounds"], ["key=value"]),
    ],
)
def test_a_wrong_key_or_value_is_refused_before_anything_starts(experiment, tmp_path, arguments, words):
    with pytest.raises(ConfigError) as refused:
        run(experiment, to=tmp_path / "run", set_=arguments)
    for word in words:
        assert word in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_a_missing_corpus_file_is_refused_before_anything_starts(experiment, tmp_path, monkeypatch):
    federation = tmp_path / "files.toml"
    federation.write_text('[[site]]\nname = "a"\ndirection = "de-fr"\ntsv = "none.tsv.gz"\n')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CorpusError, match=r"site a(.|\n)*none\.tsv\.gz"):
        run(experiment, data=tmp_path, set_=[f"federation={federation}"])
    assert not (tmp_path / "runs").exists()


@pytest.fixture
def broken_off(experiment: Path, tmp_path: Path) -> RunFolder:
    """A run that began and whose server is gone."""
    folder = RunFolder(tmp_path / "run")
    folder.open(read_experiment(experiment, {"run-dir": str(folder.directory)}), 1)
    return folder


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Settings, Federation]]:
    """What would be handed to Flower."""
    handed: list[tuple[Settings, Federation]] = []

    def carry_out(settings: Settings, federation: Federation, *rest: object) -> None:
        handed.append((settings, federation))

    monkeypatch.setattr("fedlingua.desk.cli.run.carry_out", carry_out)
    return handed


def resumed(folder: Path, *overrides: str, data: Path | None = None, server: Path | None = None) -> None:
    run(data=data, set_=list(overrides), server=server, resume=folder)


def test_a_run_that_was_broken_off_is_gone_on_with_under_its_own_settings(broken_off, no_engine):
    before = settings_from(broken_off.read("run.json")["config"])
    resumed(broken_off.directory, "deadline.phase-s=5", "below-quorum=go-on")
    ((settings, federation),) = no_engine
    assert settings == replace(before, resume=True, deadline_s=5.0, below_quorum="go-on")
    assert federation.site_names == ["hospital", "court"]


def test_a_run_of_before_keys_that_have_come_since_is_gone_on_with(broken_off, no_engine):
    config = broken_off.read("run.json")["config"]
    new = ("track", "task")
    broken_off.update(config={key: value for key, value in config.items() if key not in new})
    resumed(broken_off.directory)
    ((settings, _),) = no_engine
    assert settings == replace(settings_from(config), resume=True)
    broken_off.open(settings, 2)
    about = broken_off.read("run.json")
    assert about["attempt"] == 2
    assert {key: about["config"][key] for key in new} == {key: config[key] for key in new}


@pytest.mark.parametrize(("flags", "told"), [(set(), True), ({"amx_bf16"}, False)])
def test_a_run_says_before_it_starts_that_this_cpu_has_no_bf16(experiment, tmp_path, monkeypatch, capsys, flags, told):
    class StartedError(Exception):
        pass

    def engine(*_):
        raise StartedError

    monkeypatch.setattr("fedlingua.common.devices.cpu_flags", lambda: frozenset(flags))
    monkeypatch.setattr("fedlingua.desk.cli.run.Engine", engine)
    with pytest.raises(StartedError):
        run(experiment, set_=["precision=bf16"], to=tmp_path / "run")
    assert ("this CPU has no native bf16 and computes in fp32" in " ".join(capsys.readouterr().out.split())) == told


def test_a_run_goes_where_its_settings_say_unless_the_command_line_says_otherwise(experiment, no_engine, tmp_path):
    named = f"run-dir={tmp_path / 'set'}"
    assert run(experiment, set_=[named])["run"] == tmp_path / "set"
    assert run(experiment, set_=[named], to=tmp_path / "to")["run"] == tmp_path / "to"
    assert len(no_engine) == 2
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "run.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"run-dir .*: holds a run already"):
        run(experiment, set_=[named])


@pytest.fixture
def killed_in_the_default_folder(experiment, tmp_path, monkeypatch) -> RunFolder:
    monkeypatch.chdir(tmp_path)
    settings = read_experiment(experiment, {})
    folder = RunFolder(tmp_path / "runs" / f"{experiment.stem}-{settings.method}-{settings.seed}")
    folder.open(settings, 1)
    folder.checkpoints.save(1, {})
    return folder


@pytest.mark.parametrize("named", [False, True])
def test_the_same_run_typed_again_after_a_crash_says_how_to_go_on(
    experiment, killed_in_the_default_folder, no_engine, capsys, named
):
    killed = killed_in_the_default_folder
    if named:
        with pytest.raises(ConfigError) as refused:
            run(experiment, to=killed.directory)
        said = str(refused.value)
    else:
        assert run(experiment)["run"] == killed.directory.with_name(f"{killed.directory.name}-2")
        said = capsys.readouterr().err
    assert f"stopped here after round 1 of {killed.read('run.json')['config']['rounds']}" in said
    command = said.partition("fedlingua ")[2].partition(";")[0].split()
    assert CliRunner().invoke(app, command).exit_code == 0
    assert no_engine[-1][0].resume


def test_a_run_to_start_from_lies_beside_the_experiment_or_in_the_current_folder(
    experiment, killed_in_the_default_folder, no_engine, tmp_path
):
    first = killed_in_the_default_folder.directory
    beside = tmp_path / "deeper" / "next.toml"
    shutil.copytree(first, beside.parent / "runs" / "R")
    beside.write_text(experiment.read_text().replace('start-from = ""', 'start-from = "runs/R"'))
    run(beside, to=tmp_path / "a")
    run(experiment, set_=[f"start-from=runs/{first.name}"], to=tmp_path / "b")
    assert [settings.start_from for settings, _ in no_engine] == [str(beside.parent / "runs" / "R"), str(first)]


@pytest.mark.parametrize(
    ("override", "first", "why"),
    [
        ("adapter.dim=9", {}, "it was trained with adapter.dim = .*, and this run has 9; give the same"),
        ("backbone=demo", {}, "it was trained with backbone = .*, and this run has 'demo'"),
        ("tensor-set=lora", {}, "it was trained with tensor-set = 'adapters'"),
        ("seed=1", {"method": "adapter-local"}, "under its method adapter-local nothing leaves a site"),
        ("start-from=runs/nowhere", {}, "is not a run folder: it is not there"),
    ],
)
def test_a_run_to_start_from_that_does_not_fit_is_refused_before_anything_starts(
    experiment, killed_in_the_default_folder, no_engine, override, first, why
):
    folder = killed_in_the_default_folder
    folder.update(config={**folder.read("run.json")["config"], **first})
    with pytest.raises(ConfigError, match=f"start-from.*{why}"):
        run(experiment, set_=[f"start-from={folder.directory}", override])
    assert not no_engine


def test_a_run_that_ended_goes_on_or_has_other_settings_is_not_offered(
    experiment, killed_in_the_default_folder, no_engine, capsys
):
    run(experiment, set_=["rounds=7"])
    with killed_in_the_default_folder.held():
        run(experiment)
    killed_in_the_default_folder.close("completed")
    run(experiment)
    assert "--resume" not in capsys.readouterr().err


def test_a_relative_data_folder_is_made_absolute_for_a_resumed_run_too(broken_off, no_engine, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    resumed(broken_off.directory, data=Path("data"))
    assert no_engine[0][0].data_dir == str(tmp_path / "data")


@pytest.mark.parametrize(("override", "key"), [("seed=3", "seed"), ("method=base", "method"), ("batch-size=1", "batch-size")])
def test_a_resumed_run_keeps_its_settings(broken_off, no_engine, override, key):
    with pytest.raises(ConfigError, match=f"--resume: {key} cannot be changed"):
        resumed(broken_off.directory, override, "deadline.phase-s=5")
    assert not no_engine


def test_a_completed_run_is_not_resumed_but_given_more_rounds(broken_off, no_engine):
    broken_off.close("completed")
    advice = re.escape(f"fedlingua run --resume {broken_off.directory} --set rounds=")
    with pytest.raises(RunError, match=f"the run is completed.*: {advice}N$"):
        resumed(broken_off.directory)
    resumed(broken_off.directory, "rounds=9")
    assert no_engine[0][0].rounds == 9


def test_a_run_whose_rounds_depend_on_their_number_is_not_extended_by_the_command(broken_off, no_engine):
    broken_off.close("completed")
    broken_off.update(config={**broken_off.read("run.json")["config"], "schedule": "linear"})
    with pytest.raises(RunError, match="under schedule = 'linear'"):
        resumed(broken_off.directory, "rounds=9")
    assert not no_engine


def test_a_folder_without_a_run_is_not_resumed(no_engine, tmp_path):
    with pytest.raises(RunError, match=r"is not a run folder: it has no run\.json"):
        resumed(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_run_that_another_server_is_at_work_on_is_not_resumed(broken_off, no_engine):
    with broken_off.held(), pytest.raises(RunError, match="its run is still going"):
        resumed(broken_off.directory)
    assert not no_engine


def test_resume_and_an_experiment_exclude_each_other(experiment, broken_off):
    folder = str(broken_off.directory)
    for arguments in (
        [],
        [str(experiment), "--resume", folder],
        ["--resume", folder, "--seed", "3"],
        ["--resume", folder, "--to", "x"],
    ):
        assert CliRunner().invoke(app, ["run", *arguments]).exit_code == 2


@pytest.fixture
def server(tmp_path) -> ServerFile:
    made = init_server(tmp_path / "server", "north", [], "0.0.0.0:9092", "127.0.0.1:9093", insecure=True)
    (tmp_path / "clinic.toml").write_text('[[site]]\nname = "clinic"\ndirection = "de-fr"\n')
    add_site(made, tmp_path / "clinic.toml")
    return made


def test_a_deployment_takes_the_servers_federation_whose_text_is_elsewhere(experiment, server):
    settings, federation = check_experiment(experiment, None, [], None, server)
    assert settings.federation == str(server.federation)
    assert federation.site_names == ["clinic"]


def test_a_deployment_waits_for_lost_sites_unless_the_experiment_says_otherwise(experiment, server):
    lines = [line for line in experiment.read_text().splitlines() if "below-quorum" not in line]
    experiment.write_text("\n".join(lines) + "\n")
    assert check_experiment(experiment, None, [], None, server)[0].below_quorum == "wait"
    assert check_experiment(experiment, None, ["below-quorum=go-on"], None, server)[0].below_quorum == "go-on"
    experiment.write_text(experiment.read_text() + 'below-quorum = "fail"\n')
    assert check_experiment(experiment, None, [], None, server)[0].below_quorum == "fail"


def test_text_in_one_language_is_deployed_in_either_mode(experiment, server):
    text = server.federation.read_text().replace('direction = "de-fr"', 'language = "de"')
    server.federation.write_text(text.replace('"shared-side"', '"components"'))
    pretrains = ["task=masked-language", "backbone=demo-encoder"]
    assert check_experiment(experiment, None, pretrains, None, server)[1].sites[0].direction.is_one_language
    with pytest.raises(
        ConfigError, match=r"task = 'translation', and a site has text in one language \(de\); give it a direction"
    ):
        check_experiment(experiment, None, [], None, server)


def test_mixed_text_is_refused_for_a_deployment_even_where_the_server_has_it(experiment, server):
    text = server.federation.read_text().replace("[split]\n", "[split]\nmixed = true\n")
    server.federation.write_text(text)
    with pytest.raises(ConfigError, match="clinic has no corpus here"):
        check_experiment(experiment, None, [], None, server)
    text = text.replace('name = "clinic"\n', 'name = "clinic"\nphrasebook = "court"\n').replace('"shared-side"', '"components"')
    server.federation.write_text(text)
    with pytest.raises(ConfigError, match="mixed = true mixes all sites' text, which only a simulation can"):
        check_experiment(experiment, None, [], None, server)


def test_a_split_that_needs_all_text_in_one_place_is_refused_for_a_deployment(experiment, server, broken_off, no_engine):
    text = server.federation.read_text()
    server.federation.write_text(text.replace('"shared-side"', '"components"'))
    with pytest.raises(ConfigError, match="mode = 'components' needs all sites' text in one place"):
        check_experiment(experiment, None, [], None, server)
    # The run's own federation file is what a resumed run keeps, and that of this run splits by components.
    with pytest.raises(ConfigError, match="mode = 'components' needs all sites' text in one place"):
        resumed(broken_off.directory, server=server.path)
    assert not no_engine
