"""Processes: an end that nothing escapes, and an environment that leaves the user's own Flower alone."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from fedlingua.common.errors import RunError
from fedlingua.common.terminal import last_lines
from fedlingua.desk.processes import end, flower_environment, free_port, json_object, marked, program, signals_held

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
POLITE = """
import signal, sys, time
def leave(number, frame):
    print("tidied up", flush=True)
    sys.exit(7)
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
time.sleep(600)
"""


def child(code: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def ended(code: str, grace_s: float, hurry: threading.Event | None = None) -> tuple[int, str, float]:
    """(exit status, what it still printed, seconds that it took)."""
    with child(code) as process:
        handle, began = psutil.Process(process.pid), time.monotonic()
        try:
            end([handle], grace_s, hurry)
            took = time.monotonic() - began
            status = int(handle.wait(10))
        finally:
            process.kill()  # nothing is left where `end` is wrong
        assert process.stdout is not None
        return status, process.stdout.read(), took


def test_a_child_that_ignores_sigterm_is_killed_after_the_grace() -> None:
    status, _, took = ended(STUBBORN, 0.5)
    assert status == -signal.SIGKILL
    assert 0.5 <= took < 30  # it would sleep for a minute


def test_marked_processes_of_another_user_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", STUBBORN], env={**os.environ, "FEDLINGUA_TRIAL": "x"}) as running:
        try:
            while not marked("FEDLINGUA_TRIAL", "x"):  # until it has its own environment
                time.sleep(0.05)
            assert [process.pid for process in marked("FEDLINGUA_TRIAL", "x")] == [running.pid]
            user = os.getuid()
            monkeypatch.setattr(os, "getuid", lambda: user + 1)
            assert marked("FEDLINGUA_TRIAL", "x") == []
        finally:
            running.kill()


def test_a_child_that_heeds_sigterm_has_its_time_and_no_more_is_waited() -> None:
    status, printed, took = ended(POLITE, 300.0)
    assert (status, printed) == (7, "tidied up\n")
    assert took < 300  # the grace, long enough for a machine that stands still for a while


def test_without_a_grace_nobody_is_asked() -> None:
    assert ended(POLITE, 0.0)[:2] == (-signal.SIGKILL, "")


def test_a_second_signal_cuts_the_grace_short() -> None:
    hurry = threading.Event()
    threading.Timer(0.3, hurry.set).start()
    status, _, took = ended(STUBBORN, 30.0, hurry)
    assert status == -signal.SIGKILL
    assert took < 30  # the grace


def test_a_process_that_is_gone_already_is_no_error() -> None:
    with child("print('ready')") as process:
        handle = psutil.Process(process.pid)
        process.wait()
    end([handle], 0.2)
    end([], 0.2)


def test_flower_gets_its_own_home_this_pythons_programs_and_nothing_to_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLWR_HOME", "/the/users/own")
    monkeypatch.setenv("PATH", "/somewhere")
    monkeypatch.setenv("OTHER", "stays")
    environment = flower_environment(tmp_path)
    assert environment["FLWR_HOME"] == str(tmp_path)
    assert environment["PATH"].split(os.pathsep) == [str(Path(sys.executable).parent), "/somewhere"]
    assert environment["FLWR_TELEMETRY_ENABLED"] == "0"
    assert environment["FLWR_DISABLE_UPDATE_CHECK"] == environment["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"
    assert environment["OTHER"] == "stays"
    assert os.environ["FLWR_HOME"] == "/the/users/own"


def test_the_program_beside_this_python_goes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flwr").write_text("#!/bin/sh\n")
    (tmp_path / "flwr").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program("flwr") == str(Path(sys.executable).parent / "flwr")
    (tmp_path / "flwr").rename(tmp_path / "no-such-beside")
    assert program("no-such-beside") == str(tmp_path / "no-such-beside")
    with pytest.raises(RunError, match="`nowhere` is not installed"):
        program("nowhere")


def test_a_free_port_can_be_listened_on() -> None:
    with socket.create_server(("127.0.0.1", free_port())):
        pass


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        ('warning\n{"a": {"b": 1}}\nbye', {"a": {"b": 1}}),
        ("nothing", None),
        ('{"a": ', None),
        ("", None),
        ("} {", None),
        ("[1]", None),
    ],
)
def test_an_object_is_found_between_warnings(printed: str, found: dict[str, object] | None) -> None:
    assert json_object(printed) == found


def test_the_last_lines_come_without_colours_and_gaps() -> None:
    assert last_lines("one\n\n\x1b[31mtwo\x1b[0m  \n\nthree\n", 2) == "two\nthree"


def test_signals_are_held_and_then_given_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with signals_held() as hurry:
        assert not hurry.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        assert hurry.wait(5)
    assert signal.getsignal(signal.SIGTERM) == before
