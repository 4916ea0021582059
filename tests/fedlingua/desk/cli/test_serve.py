"""`fedlingua serve` as a process: it starts, answers, ends at once with the right code, and says what speaks against a start."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from fedlingua.common.errors import FedlinguaError
from fedlingua.desk.cli import serve
from fedlingua.desk.cli.app import app
from fedlingua.runs.folder import RunFolder


@contextmanager
def served(run: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server and its address; ends with the block, whatever it did."""
    command = [
        sys.executable,
        "-c",
        "from fedlingua.desk.cli.app import main; main()",
        "serve",
        "--run",
        str(run),
        "--port",
        "0",
        *more,
    ]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background job ignores Ctrl-C, and the suite may be one.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        line = next(line for line in process.stderr if not line.startswith("warning: "))
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+: 4 sites of .*; Ctrl-C ends it\n", line), line + process.stderr.read()
        yield process, line.partition(": ")[0]
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()
        process.stderr.close()


def test_sigterm_ends_it_with_its_code_no_traceback_and_nothing_left(finished_run: Path) -> None:
    with served(finished_run, "--threads", "1") as (process, address):
        body = json.dumps({"site": "bank", "sentences": ["geheim"]}).encode()
        asked = urllib.request.Request(f"{address}/v1/translate", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=120) as answer:
            assert json.loads(answer.read())["answered_by"]["told"] == "site bank"
        children = psutil.Process(process.pid).children(recursive=True)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(120) == 0
        said = process.stdout.read() + process.stderr.read()
    assert "Traceback" not in said
    assert "geheim" not in said
    assert not [child for child in children if child.is_running()]
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(address.rpartition(":")[2]))) != 0


def test_ctrl_c_twice_while_it_translates_ends_it_with_its_code_too(finished_run: Path) -> None:
    with served(finished_run, "--threads", "1", "--batch", "1", "--beam", "60", "--timeout", "0.3") as (process, address):
        body = json.dumps({"site": "bank", "sentences": [f"Zeman {n} hezky a dlouze čte noviny" for n in range(100)]}).encode()
        asked = urllib.request.Request(f"{address}/v1/translate", body, {"Content-Type": "application/json"})
        with pytest.raises(urllib.error.HTTPError, match="504"):
            urllib.request.urlopen(asked, timeout=120)
        for _ in range(2):
            os.kill(process.pid, signal.SIGINT)
            time.sleep(0.3)
        assert process.wait(120) == 130
        assert "Traceback" not in process.stderr.read()


LEFT_BEHIND = """
import sys, torch
from fedlingua.desk.cli.serve import _leave_if_translating
from fedlingua.desk.serving.batching import Batcher

def endless(who, sentences):
    while True:
        torch.ones(300, 300) @ torch.ones(300, 300)

batcher = Batcher(endless, 6)
batcher.ask(None, ["a"])
batcher.close(0.3)
_leave_if_translating(0)
sys.exit(0)
"""


def test_a_translation_that_outlasts_the_farewell_is_no_abort() -> None:
    """torch aborts a process whose interpreter ends beside a thread that is inside of it."""
    ended = subprocess.run([sys.executable, "-c", LEFT_BEHIND], capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def asked(run: Path, *arguments: object) -> str:
    done = CliRunner().invoke(app, ["serve", "--run", str(run), *map(str, arguments)])
    assert done.exit_code != 0
    assert done.exception is None or isinstance(done.exception, FedlinguaError | SystemExit), done.exception
    return f"{done.output}{done.exception}"


def test_what_speaks_against_a_start_is_told_before_the_model_loads(
    finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedlingua.exchange.trainable.build_trainable", lambda settings: pytest.fail("the model was loaded"))
    monkeypatch.setattr(serve.signal, "signal", lambda *handler: None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"--port {port} cannot be opened" in asked(finished_run, "--port", port)
    assert "is not a run folder" in asked(tmp_path, "--port", 0)
    assert "--beam 0; wanted 1 to 64" in asked(finished_run, "--beam", 0)
    assert "there is no such address" in asked(finished_run, "--host", "no such name")
    for name in ("https://translate.example.org", "translate.example.org:8443", "", "a..b"):
        assert f"--host-name {name!r}; wanted a name alone" in asked(finished_run, "--host-name", name)
    assert "70000" in asked(finished_run, "--port", 70000)
    assert "0" in asked(finished_run, "--max-waiting", 0)


def test_more_than_loopback_is_warned_of_and_so_are_what_the_run_warned_of_and_unused_terms(
    finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a server, so that nobody can reach it."""
    shutil.copytree(finished_run, tmp_path / "run")
    RunFolder(tmp_path / "run").warn(["the backbone knows nothing"])
    started: list[object] = []

    class Server:
        def run(self, sockets: list[socket.socket]) -> None:
            started.extend(sockets)
            for one in sockets:
                one.close()

    monkeypatch.setattr(serve, "_server", lambda guard: started.append(guard.hosts) or Server())
    monkeypatch.setattr(serve.signal, "signal", lambda *handler: None)
    warned = CliRunner().invoke(app, ["serve", "--run", str(finished_run), "--host", "0.0.0.0", "--port", "0"])
    assert warned.exit_code == 0, warned.output
    assert "warning: 0.0.0.0 can be reached from other machines" in warned.stderr
    assert started[0] is None
    (tmp_path / "x.sv-de.tsv").write_text("bok\tBuch\nbok\tBand\n")
    arguments = ["--port", "0", "--terms", str(tmp_path / "x.sv-de.tsv")]
    unwarned = CliRunner().invoke(app, ["serve", "--run", str(tmp_path / "run"), *arguments])
    assert "can be reached" not in unwarned.stderr
    assert "warning: the backbone knows nothing" in unwarned.stderr
    assert "x.sv-de.tsv, line 2: translates the term of line 1 differently; line 1 is used" in unwarned.stderr
    assert started[2] == {"127.0.0.1", "localhost", "::1"}
    named = ["--host-name", "Translate.example.org", "--host-name", "übersetzung.example.org"]
    for host in ("127.0.0.1", "0.0.0.0"):  # behind a proxy that keeps Host, on this machine or another
        started.clear()
        CliRunner().invoke(app, ["serve", "--run", str(finished_run), "--host", host, "--port", "0", *named])
        assert started[0] == {"translate.example.org", "xn--bersetzung-8db.example.org", host, "127.0.0.1", "localhost", "::1"}
