"""The engine against real Flower: runs that complete, raise and are broken off, and what is left of them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from fedlingua.common.errors import RunError
from fedlingua.desk import pace, processes
from fedlingua.desk.cli.engine import Engine, RunStatus
from fedlingua.desk.cli.profile import Profile

SIMULATION = Profile("simulation", ":local:")

APP = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "tiny"
version = "1.0.0"
description = "One question to every node"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "example"

[tool.flwr.app.components]
serverapp = "tiny_server:app"
clientapp = "tiny_client:app"

[tool.flwr.app.config]
mode = "ask"
folder = ""
flag = false
"""

SERVER = """
import json
import time
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    if context.run_config["mode"] == "raise":
        raise LookupError("the server gave up")
    while len(nodes := list(grid.get_node_ids())) < 2:
        time.sleep(0.1)
    config = RecordDict({"config": ConfigRecord(dict(context.run_config))})
    replies = list(grid.send_and_receive([Message(config, node, "query") for node in nodes]))
    answers = [dict(reply.content["config"]) for reply in replies]
    Path(context.run_config["folder"], "answers.json").write_text(json.dumps(answers), encoding="utf-8")
    if context.run_config["mode"] == "wait":
        time.sleep(600)
"""

CLIENT = """
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.query()
def query(message: Message, context: Context) -> Message:
    return Message(RecordDict({"config": message.content["config"]}), reply_to=message)
"""

PROFILES = """
[superlink.simulation]
address = ":local:"

[fedlingua.simulation]
cpus-per-node = 1
"""


@pytest.fixture(scope="module")
def app_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    app = tmp_path_factory.mktemp("apps") / "tiny-app"
    app.mkdir()
    (app / "pyproject.toml").write_text(APP, encoding="utf-8")
    (app / "pyproject-flwr.toml").write_text(PROFILES, encoding="utf-8")
    for name, text in {"server": SERVER, "client": CLIENT}.items():
        (app / f"tiny_{name}.py").write_text(text, encoding="utf-8")
    (app / "beside").mkdir()
    (app / "beside" / "x.py").write_text("raise LookupError", encoding="utf-8")
    return app


@pytest.fixture(scope="module")
def user_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("user")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.delenv("FLWR_HOME", raising=False)
        yield home


def processes_of(home: Path) -> list[str]:
    """Names of the processes, other than this one, that have this FLWR_HOME."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get("FLWR_HOME") == str(home):
                found.append(f"{process.pid} {process.name()}")
        except (psutil.Error, OSError):
            continue
    return found


def finish(engine: Engine, run_id: str) -> RunStatus:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        status = engine.status(run_id)
        if status.finished:
            return status
        time.sleep(0.5)
    raise AssertionError(f"not finished: {status}\n{engine.log_tail(run_id)}")


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + 90
    while not file.exists():
        assert time.monotonic() < deadline, f"{file.name} did not appear"
        time.sleep(0.1)


@pytest.mark.slow
def test_runs_that_complete_fail_and_are_refused(app_dir: Path, user_home: Path, tmp_path: Path) -> None:
    # Long enough that Ray's sockets would not fit beneath it, and with what a shell or a loose parser stumbles on.
    home = tmp_path / ("h" * 100) / "it's home"
    folder = tmp_path / 'a "b" c\'s \\n ü'
    folder.mkdir()
    with Engine(app_dir, home, SIMULATION) as engine:
        assert home.stat().st_mode & 0o777 == 0o700

        good = engine.submit({"folder": str(folder), "flag": True}, num_nodes=2)
        assert finish(engine, good) == RunStatus("finished", "completed")
        answers = json.loads((folder / "answers.json").read_text(encoding="utf-8"))
        assert answers == [{"folder": str(folder), "flag": True, "mode": "ask"}] * 2

        bad = engine.submit({"mode": "raise"}, num_nodes=2)
        status = finish(engine, bad)
        assert (status.state, status.outcome) == ("finished", "failed")
        assert "the server gave up" in status.details
        tail = engine.log_tail(bad)
        assert "LookupError" in tail
        assert "the server gave up" in tail

        with pytest.raises(RunError, match="no-such-key"):
            engine.submit({"no-such-key": 1}, num_nodes=2)
        ray_dir = engine._ray_dir
        assert processes_of(home)
    assert processes_of(home) == []
    assert ray_dir is not None
    assert not ray_dir.exists()
    assert list(user_home.iterdir()) == []


INTERRUPTED = """
import sys, time
from pathlib import Path
from fedlingua.desk.cli.engine import Engine
from fedlingua.desk.cli.profile import Profile

app, home, folder = map(Path, sys.argv[1:])
with Engine(app, home, Profile("simulation", ":local:")) as engine:
    engine.submit({"folder": str(folder), "mode": "wait"}, num_nodes=2)
    time.sleep(300)
"""


@pytest.mark.slow  # a Ctrl-C of the command itself is tested in test_run.py
def test_an_exception_while_a_run_is_going_leaves_nothing_and_another_engine_goes_on(
    app_dir: Path, user_home: Path, tmp_path: Path
) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    folder = tmp_path / "stopped"
    folder.mkdir()
    command = [sys.executable, "-c", INTERRUPTED, str(app_dir), str(theirs), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    # A shell's background job ignores Ctrl-C, and the suite may be one.
    program = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, preexec_fn=_hear_ctrl_c)
    try:
        with Engine(app_dir, mine, SIMULATION) as engine:
            run_id = engine.submit({"folder": str(folder), "mode": "wait"}, num_nodes=2)
            wait_for(folder / "answers.json")
            wait_for(tmp_path / "answers.json")
            assert any("raylet" in name for name in processes_of(theirs))
            program.send_signal(signal.SIGINT)
            time.sleep(0.3)
            program.send_signal(signal.SIGINT)  # impatient, in the midst of the clean-up
            _, errors = program.communicate(timeout=30)
            assert b"KeyboardInterrupt" in errors
            assert processes_of(theirs) == []

            assert engine.status(run_id).state == "running"
        assert processes_of(mine) == []
    finally:
        if program.poll() is None:
            program.terminate()
            program.wait(30)


def test_a_superlink_that_cannot_start_says_why(app_dir: Path, user_home: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRPC_VERBOSITY", "NONE")
        patch.setenv("PYTHONHOME", str(tmp_path))  # a Python without its library
        with pytest.raises(RunError, match=r"ended while starting(.|\n)*encodings"), Engine(app_dir, home, SIMULATION):
            pass
    assert processes_of(home) == []


def test_a_deployment_that_does_not_answer(app_dir: Path, user_home: Path, tmp_path: Path) -> None:
    profiles = tmp_path / "profiles.toml"
    profiles.write_text('[superlink.deployment]\naddress = "127.0.0.1:9"\ninsecure = true\n', encoding="utf-8")
    with Engine(app_dir, tmp_path / "home", Profile.read(profiles, "deployment")) as engine:
        assert processes_of(tmp_path / "home") == []
        with pytest.raises(RunError, match="flwr run"):
            engine.submit({}, num_nodes=2)


# Takes longer than it used to be given; answers with the files of the app that it was given.
SLOW_FLWR = """#!/bin/sh
sleep 2.5
echo '{"success": true, "run-id": "'$(cd "$2" && find . -type f | sort | tr '\\n' ' ')'"}'
"""


def test_a_slow_machine_has_its_time_and_is_told_what_is_waited_for(
    app_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And Flower is given what is bundled, nothing that lies beside."""
    flwr = tmp_path / "flwr"
    flwr.write_text(SLOW_FLWR)
    flwr.chmod(0o755)
    monkeypatch.setattr(processes, "program", lambda _: str(flwr))
    monkeypatch.setattr(pace, "EVERY_S", 1.0)
    with Engine(app_dir, tmp_path / "home", Profile("deployment", "127.0.0.1:9", insecure=True)) as engine:
        files = engine.submit({}, num_nodes=2).split()
        engine._going.clear()
    assert files == [
        "./.info/CONTENT",
        "./pyproject.toml",
        "./src/fedlingua/desk/left_out.py",
        "./tiny_client.py",
        "./tiny_server.py",
    ]
    assert "`flwr run`: waiting for 127.0.0.1:9, for " in capsys.readouterr().err


def _hear_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
