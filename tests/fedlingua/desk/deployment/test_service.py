"""A program beneath one of ours: it is noticed when it ends, and nothing of it outlives the block."""

import http.server
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from fedlingua.common.errors import DeploymentError
from fedlingua.desk import pace
from fedlingua.desk.deployment import service
from fedlingua.desk.deployment.service import Service, answers
from fedlingua.desk.processes import free_port

# Starts a grandchild, whose pid it writes down; then waits.
FAMILY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open("pids", "w").write(f"{child.pid}")
{then}
"""


def python(code: str, folder: Path) -> Service:
    return Service("the program", [sys.executable, "-c", code], os.environ, folder)


def grandchild(folder: Path) -> psutil.Process:
    ends = time.monotonic() + 20
    while not (folder / "pids").is_file() or not (folder / "pids").read_text():
        assert time.monotonic() < ends
        time.sleep(0.05)
    return psutil.Process(int((folder / "pids").read_text()))


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_nothing_of_a_program_is_left_after_the_block(tmp_path: Path) -> None:
    with python(FAMILY.replace("{then}", "time.sleep(60)"), tmp_path / "home") as running:
        below, above = grandchild(tmp_path / "home"), psutil.Process(running.pid)
        running.check()
        assert os.getsid(running.pid) == running.pid  # a Ctrl-C at our terminal does not reach it
    assert gone(below)
    assert gone(above)
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700


def test_a_grandchild_whose_parent_is_gone_is_ended_too(tmp_path: Path) -> None:
    with python(FAMILY.replace("{then}", ""), tmp_path) as running:
        below = grandchild(tmp_path)
        with pytest.raises(DeploymentError, match=r"the program has ended \(exit status 0\)"):
            running.wait_until(lambda: False, "its answer", 20)
        assert not gone(below)
    assert gone(below)


def test_a_program_that_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "GRACE_S", 0.5)
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); open('pids', 'w').write('1'); time.sleep(60)"
    with python(code, tmp_path) as running:
        grandchild(tmp_path)
        process = psutil.Process(running.pid)
    assert gone(process)


# A command that runs a program for the folder that it works in, until it is killed.
COMMAND = """
import os, sys, time
from pathlib import Path
from fedlingua.desk.deployment.service import Service
with Service(sys.argv[1], [sys.executable, "-c", sys.argv[2]], os.environ, Path(), locked=Path()):
    time.sleep(60)
"""


def test_what_outlived_its_killed_command_is_ended_before_the_next_start_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders, code = [tmp_path / name for name in ("one", "other")], FAMILY.replace("{then}", "time.sleep(60)")
    for folder in folders:
        folder.mkdir()
        with subprocess.Popen([sys.executable, "-c", COMMAND, "the program", code], cwd=folder) as command:
            below = grandchild(folder)
            command.kill()
        assert not gone(below)
    one, other = (psutil.Process(int((folder / "pids").read_text())) for folder in folders)
    for name, folder in (("another program", folders[0]), ("the program", folders[0]), ("the program", folders[1])):
        Service(name, [], os.environ, folder, locked=folder).end_earlier()
        assert (gone(one), gone(other)) == (name == "the program", folder == folders[1])
    Service("the program", [], os.environ, folders[0], locked=folders[0]).end_earlier()
    assert capsys.readouterr().err == 2 * "the program: ending an earlier one, which still runs although its command was killed\n"


def test_a_program_that_ends_by_itself_is_told_with_its_status(tmp_path: Path) -> None:
    with python("raise SystemExit(3)", tmp_path) as running, pytest.raises(DeploymentError, match=r"exit status 3"):
        running.wait_until(lambda: False, "its answer", 20)


def test_a_program_that_is_listened_to_speaks_through_us_and_can_be_started_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = "import os, sys; print(len(os.listdir())); print('why', file=sys.stderr); open(str(os.getpid()), 'w')"
    with Service("the program", [sys.executable, "-c", code], os.environ, tmp_path, listen=True) as running:
        for files in range(2):
            with pytest.raises(DeploymentError, match=r"exit status 0"):
                running.wait_until(lambda: False, "its answer", 20)
            assert sorted(running.printed().split()) == [str(files), "why"]  # of the last start alone
            assert running.ended
            if not files:
                running.start()
    assert sorted(capfd.readouterr().err.split()) == ["0", "1", "why", "why"]


def test_access_lines_and_colours_are_left_out_and_the_log_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(service, "LOG_BYTES", 1000)
    code = """
for number in range(1000):
    print(f'2026-11-29T06:54:38.938Z INFO [uvicorn.access] 127.0.0.1:{number} - "GET /health HTTP/1.1" 200')
    if number % 10 == 0:
        print(f"\\x1b[92mINFO \\x1b[0m: what is worth reading, number {number}")
"""
    log = tmp_path / "program.log"
    with Service("the program", [sys.executable, "-c", code], os.environ, tmp_path, log, listen=True) as running:
        with pytest.raises(DeploymentError, match="exit status 0"):
            running.wait_until(lambda: False, "its end", 20)
        assert running.printed().count("worth reading") == 100
    files = sorted(tmp_path.glob("program.log*"))
    assert len(files) == 1 + service.OLD_LOGS
    assert all(file.stat().st_size <= 1000 for file in files)
    assert log.read_text().endswith("INFO : what is worth reading, number 990\n")
    for text in (capfd.readouterr().err, *(file.read_text() for file in files)):
        assert "worth reading" in text
        assert "uvicorn.access" not in text
        assert "\x1b" not in text


def test_waiting_ends_with_what_was_waited_for_or_says_what_did_not_come(tmp_path: Path) -> None:
    with python("import time; time.sleep(60)", tmp_path) as running:
        looks = iter([False, True])
        running.wait_until(lambda: next(looks), "its answer", 20)
        with pytest.raises(DeploymentError, match=r"the program: its answer did not happen within 0\.1 s"):
            running.wait_until(lambda: False, "its answer", 0.1)


def test_waiting_has_no_limit_unless_one_is_given_and_says_what_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pace, "EVERY_S", 0.1)
    began = time.monotonic()
    with python("import time; time.sleep(60)", tmp_path) as running:
        running.wait_until(lambda: time.monotonic() > began + 1.5, "its answer")
    assert "the program: waiting for its answer, for 1." in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_waiting_and_its_handler_is_given_back(tmp_path: Path, number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with python("import time; time.sleep(60)", tmp_path) as running:
        threading.Timer(0.3, os.kill, (os.getpid(), number)).start()
        running.wait_until(lambda: False, "its answer", 20)
        assert running.stopped.is_set()
    assert signal.getsignal(number) == before


@pytest.fixture
def health() -> Iterator[list[int]]:
    """[port, status of /health]: an HTTP server on loopback."""
    told = [0, 200]

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(told[1] if self.path == "/health" else 404)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
    told[0] = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield told
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_superlink_answers_once_it_is_well(health: list[int]) -> None:
    assert answers(f"127.0.0.1:{health[0]}", None)
    health[1] = 503
    assert not answers(f"127.0.0.1:{health[0]}", None)


def test_where_nobody_listens_nobody_answers() -> None:
    assert not answers(f"127.0.0.1:{free_port()}", None)


def test_a_server_without_tls_is_no_answer_where_tls_is_wanted(health: list[int], tmp_path: Path) -> None:
    assert not answers(f"127.0.0.1:{health[0]}", tmp_path / "no-such-ca.crt")
