"""A site's worker carries a message out as the program that Flower starts would, and outlives neither its site nor its callers.

Flower's client is stood in for by a function that pulls a message from a file; test_messages.py has Flower's own.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from fedlingua.consent.bundle import bundle_hash
from fedlingua.desk.deployment import gate, worker
from fedlingua.desk.deployment.audited import verify
from fedlingua.desk.deployment.service import Service
from fedlingua.desk.deployment.worker import SOCKET, worker_of

CALL = Path(gate.__file__).with_name("worker_call.py")
INSTEAD = [sys.executable, "-c", "import sys; print('instead', *sys.argv[1:]); sys.exit(7)"]
ANSWER = """
import os, sys, time
from types import ModuleType, SimpleNamespace as Values
import fedlingua.desk.deployment.gate as gate
flower = sys.modules['flwr.supercore.task_identity'] = ModuleType('flwr.supercore.task_identity')
flower.TaskIdentity = Values(task_id=0, run_id=0, node_id=0)
def pull(client):
    run, bundle, text = sys.argv[1].split()
    with open('asked', 'a') as file:
        file.write(text + '\\n')
    flower.TaskIdentity.task_id = text
    return text, 'context', Values(run_id=run), Values(content=bundle.encode())
def prepared(take):
    def client_app():
        {body}
    return client_app
gate.prepared = prepared
def store(pulled, file):
    file.write(' '.join([pulled[0], pulled[2].run_id, pulled[3].content.decode()]).encode())
def stored(file):
    text, run, bundle = file.read().decode().split()
    return text, 'context', Values(run_id=run), Values(content=bundle.encode())
gate.store, gate.stored = store, stored
"""
REMEMBER = """
        text = take(pull, 'client')[0]
        assert flower.TaskIdentity.task_id == text
        print(os.getpid(), *(before := getattr(sys, 'before', [])), flush=True)
        sys.before = [*before, text]
        if text == 'crash' and not os.path.exists('crashed') or text == 'crash-again':
            open('crashed', 'a').close()
            os.kill(os.getpid(), 9)
        if text == 'fail':
            raise MemoryError('no room')
        if text == 'wait':
            time.sleep(600)
        raise gate.AnsweredError(0)"""
"""What a site's client does with a message "run bundle text": print the process, and the texts of the messages that it answered before."""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[contextlib.ExitStack]:
    """Workers whose gate does what `body` says and which import nothing at first."""
    with contextlib.ExitStack() as stack:
        yield stack


def started(stack: contextlib.ExitStack, tmp_path: Path, body: str = REMEMBER, idle_s: float = 600.0) -> Service:
    """A worker whose gate does this, in the place of Flower's client."""
    source = Path(gate.__file__).parents[3]
    program = (
        f"import runpy, sys; sys.path.insert(0, {str(source)!r})\n{ANSWER.format(body=body)}\n"
        "from fedlingua.desk.deployment import worker\nfrom pathlib import Path\n"
        "worker.FIRST, worker.ACCEPT_S, worker.LOOK_S = (), 0.5, 0.2\n"
        "worker.serve(Path(os.environ[worker.SOCKET]), int(sys.argv[1]), float(sys.argv[2]))"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "command", lambda: [sys.executable, "-c", program])
        found = stack.enter_context(worker_of(dict(os.environ), tmp_path, idle_s / 60))
    assert found is not None
    found.wait_until(socket_of(found).exists, "its socket", 30.0)
    return found


def socket_of(found: Service) -> Path:
    return Path(found.environment[SOCKET])


def call(path: Path, *arguments: str, **options: object) -> "subprocess.Popen[str]":
    """What Flower starts for a message."""
    command = [sys.executable, "-I", "-S", str(CALL), str(path), *INSTEAD, "--", *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload,no-any-return]


def test_a_message_has_the_callers_arguments_files_folder_environment_and_status(
    start: contextlib.ExitStack, tmp_path: Path
) -> None:
    body = "print(sys.argv, os.getcwd(), os.environ['WHO'], sys.stdin.read()); print('oh', file=sys.stderr); sys.exit(5)"
    path = socket_of(started(start, tmp_path, body))
    (tmp_path / "elsewhere").mkdir()
    caller = call(path, "--token", "x y", cwd=tmp_path / "elsewhere", env={**os.environ, "WHO": "me"})
    out, err = caller.communicate("token on stdin", timeout=60)
    assert out == f"['flwr-clientapp', '--token', 'x y'] {tmp_path / 'elsewhere'} me token on stdin\n"
    assert (err, caller.returncode) == ("oh\n", 5)


def answer(found: Service, folder: Path, message: str) -> list[str]:
    """The process that answered a message, and the messages that it had answered before."""
    caller = call(socket_of(found), message, cwd=folder)
    out, err = caller.communicate("", timeout=60)
    assert caller.returncode == 0, err
    return out.split()


def gone(process: str) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.wait_procs([psutil.Process(int(process))], timeout=30)[1] == []
    return True


def test_messages_of_one_run_and_bundle_are_answered_by_the_process_that_knows_them_and_pulled_once(
    start: contextlib.ExitStack, tmp_path: Path
) -> None:
    found = started(start, tmp_path)
    first, *before = answer(found, tmp_path, "run-1 bundle-1 one")
    assert before == []
    assert answer(found, tmp_path, "run-1 bundle-1 two") == [first, "one"]
    assert answer(found, tmp_path, "run-1 bundle-1 three") == [first, "one", "two"]
    assert (tmp_path / "asked").read_text().split() == ["one", "two", "three"]


@pytest.mark.parametrize("other", ["run-2 bundle-1", "run-1 bundle-2"])
def test_another_run_or_bundle_has_a_process_of_its_own_and_ends_that_of_the_one_before(
    start: contextlib.ExitStack, tmp_path: Path, other: str
) -> None:
    found = started(start, tmp_path)
    first = answer(found, tmp_path, "run-1 bundle-1 one")
    second = answer(found, tmp_path, f"{other} two")
    assert len(second) == 1
    assert second != first
    assert gone(first[0])
    assert answer(found, tmp_path, f"{other} three") == [*second, "two"]
    assert len(answer(found, tmp_path, "run-1 bundle-1 four")) == 1


def test_a_later_message_has_its_own_callers_arguments_folder_environment_and_files(
    start: contextlib.ExitStack, tmp_path: Path
) -> None:
    told = "sys.argv[1:], os.getcwd(), os.environ['WHO'], sys.stdin.read()"
    body = f"text = take(pull, 'client')[0]; print(text, {told}); raise gate.AnsweredError(0)"
    path = socket_of(started(start, tmp_path, body))
    for who in ("me", "you"):
        (folder := tmp_path / who).mkdir()
        caller = call(path, f"run bundle {who}", cwd=folder, env={**os.environ, "WHO": who})
        assert caller.communicate(f"for {who}", timeout=60)[0] == f"{who} ['run bundle {who}'] {folder} {who} for {who}\n"


@pytest.mark.parametrize("idle_s", [0.0, 0.5])
def test_a_process_that_waits_too_long_ends_and_a_later_message_has_another(
    start: contextlib.ExitStack, tmp_path: Path, idle_s: float
) -> None:
    found = started(start, tmp_path, idle_s=idle_s)
    first = answer(found, tmp_path, "run bundle one")
    assert gone(first[0])
    assert len(answer(found, tmp_path, "run bundle two")) == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSTOP])
def test_where_the_process_that_waits_was_killed_or_hangs_another_answers(
    start: contextlib.ExitStack, tmp_path: Path, number: signal.Signals
) -> None:
    found = started(start, tmp_path)
    first = answer(found, tmp_path, "run bundle one")
    os.kill(int(first[0]), number)
    second = answer(found, tmp_path, "run bundle two")
    assert len(second) == 1
    assert second != first
    assert gone(first[0])
    assert answer(found, tmp_path, "run bundle three") == [*second, "two"]


@pytest.mark.parametrize("before", [[], ["one"]])
def test_a_message_whose_process_crashes_is_answered_by_another_without_being_pulled_again(
    start: contextlib.ExitStack, tmp_path: Path, before: list[str]
) -> None:
    found = started(start, tmp_path)
    for text in before:
        answer(found, tmp_path, f"run bundle {text}")
    (crashed, *known), (answered, *left) = answer_lines(found, tmp_path, "run bundle crash")
    assert (known, left) == (before, [])
    assert crashed != answered
    assert (tmp_path / "asked").read_text().count("crash") == 1
    assert answer(found, tmp_path, "run bundle two") == [answered, "crash"]


def answer_lines(found: Service, folder: Path, message: str) -> list[list[str]]:
    """As `answer`, of each process that tried."""
    return [line.split() for line in call(socket_of(found), message, cwd=folder).communicate("", timeout=60)[0].splitlines()]


def test_a_message_that_crashes_every_process_is_given_up(start: contextlib.ExitStack, tmp_path: Path) -> None:
    found = started(start, tmp_path)
    caller = call(
        socket_of(found), "run bundle crash-again", cwd=tmp_path, env={**os.environ, gate.REFUSED: f"{tmp_path}/state/bundles"}
    )
    assert len(caller.communicate("", timeout=60)[0].splitlines()) == 2
    (line,), broken = verify(tmp_path / "state")
    assert (line["refused"], line["flower_run"], broken) == ("its process crashed or was stopped", "run", "")
    assert line["bundle"] == bundle_hash(b"bundle")
    assert len(answer(found, tmp_path, "run bundle one")) == 1


def test_a_process_whose_message_failed_answers_no_other(start: contextlib.ExitStack, tmp_path: Path) -> None:
    found = started(start, tmp_path)
    first = answer(found, tmp_path, "run bundle one")
    caller = call(
        socket_of(found), "run bundle fail", cwd=tmp_path, env={**os.environ, gate.REFUSED: f"{tmp_path}/state/bundles"}
    )
    out, err = caller.communicate("", timeout=60)
    assert (out.split(), caller.returncode) == ([*first, "one"], 1)
    assert "MemoryError: no room" in err
    assert [line["refused"] for line in verify(tmp_path / "state")[0]] == ["its process crashed or was stopped"]
    assert gone(first[0])
    assert len(answer(found, tmp_path, "run bundle two")) == 1


def test_of_messages_side_by_side_each_has_a_process_and_one_waits(start: contextlib.ExitStack, tmp_path: Path) -> None:
    found = started(start, tmp_path)
    callers = [call(socket_of(found), "run bundle wait", cwd=tmp_path) for _ in range(2)]
    processes = [caller.stdout.readline().strip() for caller in callers if caller.stdout]
    assert len(set(processes)) == 2
    third = answer(found, tmp_path, "run bundle three")
    assert len(third) == 1
    assert answer(found, tmp_path, "run bundle four") == [*third, "three"]
    callers[0].kill()
    assert gone(processes[0])
    assert answer(found, tmp_path, "run bundle five") == [*third, "three", "four"]
    callers[1].kill()


def test_a_process_that_waits_ends_with_the_worker(start: contextlib.ExitStack, tmp_path: Path) -> None:
    found = started(start, tmp_path)
    first = answer(found, tmp_path, "run bundle one")
    os.kill(found.pid, signal.SIGKILL)
    assert gone(first[0])


def test_a_process_that_waits_ends_with_the_site(start: contextlib.ExitStack, tmp_path: Path) -> None:
    first = answer(started(start, tmp_path), tmp_path, "run bundle one")
    start.close()
    assert gone(first[0])


def test_messages_side_by_side_have_processes_of_their_own_and_what_one_changes_the_next_does_not_see(
    start: contextlib.ExitStack, tmp_path: Path
) -> None:
    body = "print(os.getpid(), getattr(sys, 'mark', 0)); sys.mark = 1"
    path = socket_of(started(start, tmp_path, body))
    lines = [caller.communicate("", timeout=60)[0].split() for caller in [call(path) for _ in range(3)]]
    assert len({process for process, _ in lines}) == 3
    assert {mark for _, mark in lines} == {"0"}


def test_what_a_message_imported_is_there_for_the_next_but_nothing_of_a_bundle(
    start: contextlib.ExitStack, tmp_path: Path
) -> None:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "of_a_bundle.py").write_text("")
    names = "'wave', 'of_a_bundle', 'fedlingua.corpora.split'"
    body = f"print([name in sys.modules for name in ({names})]); sys.path.insert(0, 'bundle'); [__import__(name) for name in ({names})]"
    path = socket_of(started(start, tmp_path, body))
    assert call(path, cwd=tmp_path).communicate("", timeout=60)[0] == "[False, False, False]\n"
    ends = time.monotonic() + 30
    while (line := call(path, cwd=tmp_path).communicate("", timeout=60)[0]) != "[True, False, False]\n":
        assert time.monotonic() < ends, line
    assert list(path.parent.iterdir()) == [path]


def test_a_message_ends_with_its_caller(start: contextlib.ExitStack, tmp_path: Path) -> None:
    path = socket_of(started(start, tmp_path, "print(os.getpid(), flush=True); time.sleep(600)"))
    caller = call(path)
    assert caller.stdout is not None
    process = psutil.Process(int(caller.stdout.readline()))
    caller.kill()
    assert process.wait(timeout=30) is None or not process.is_running()


def test_where_no_worker_answers_a_program_is_started_instead(tmp_path: Path) -> None:
    caller = call(tmp_path / "nobody", "--token", "x")
    assert caller.communicate("", timeout=60)[0] == "instead --token x\n"
    assert caller.returncode == 7


def test_an_error_ends_one_message_and_not_the_worker(start: contextlib.ExitStack, tmp_path: Path) -> None:
    path = socket_of(started(start, tmp_path, "raise RuntimeError('no such model')"))
    for _ in range(2):
        caller = call(path)
        _, err = caller.communicate("", timeout=60)
        assert caller.returncode == 1
        assert "RuntimeError: no such model" in err


@pytest.mark.parametrize("content", [b"", b"\0\0", b"\0\0\0\4nots", b"\xff\xff\xff\xff" + b"x" * 100])
def test_what_is_no_call_is_hung_up_on(start: contextlib.ExitStack, tmp_path: Path, content: bytes) -> None:
    path = socket_of(started(start, tmp_path, "print('here')"))
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(path))
        if content:
            socket.send_fds(stranger, [content], [0, 1, 2])
        stranger.shutdown(socket.SHUT_WR)
        stranger.settimeout(30)
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
    assert call(path).communicate("", timeout=60)[0] == "here\n"


def test_only_its_user_can_reach_it_and_it_ends_with_its_site(start: contextlib.ExitStack, tmp_path: Path) -> None:
    found = started(start, tmp_path, "print(os.getpid(), flush=True); time.sleep(600)")
    assert socket_of(found).parent.stat().st_mode & 0o077 == 0
    caller = call(socket_of(found))
    assert caller.stdout is not None
    of_message, of_worker = psutil.Process(int(caller.stdout.readline())), psutil.Process(found.pid)
    start.close()
    assert psutil.wait_procs([of_message, of_worker], timeout=30)[1] == []
    assert not socket_of(found).parent.exists()
    assert caller.wait(timeout=30) != 0


def test_a_worker_whose_site_was_killed_ends_by_itself(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from fedlingua.desk.deployment.worker import worker_of\n"
        f"with worker_of(dict(os.environ), Path({str(tmp_path)!r}), 1.0) as found:\n"
        "    print(found.pid, Path(found.environment['FEDLINGUA_WORKER']).parent, flush=True); sys.stdin.read()"
    )
    source = {"PYTHONPATH": str(Path(gate.__file__).parents[3])}
    site = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **source}
    )
    assert site.stdout is not None
    number, folder = site.stdout.readline().split()
    process = psutil.Process(int(number))
    site.send_signal(signal.SIGKILL)
    site.wait()
    assert psutil.wait_procs([process], timeout=60)[1] == []
    assert not Path(folder).exists()


def test_a_message_and_its_caller_that_end_at_once_leave_the_worker_whole(start: contextlib.ExitStack, tmp_path: Path) -> None:
    found = started(start, tmp_path, "print(os.getpid(), flush=True); time.sleep(600 * (len(sys.argv) > 1))")
    of_worker = psutil.Process(found.pid)
    for _ in range(6):  # which of the two the worker sees first is not told
        caller = call(socket_of(found), "long")
        assert caller.stdout is not None
        of_message = psutil.Process(int(caller.stdout.readline()))
        of_worker.suspend()
        for process in (of_message, caller):
            process.kill()
        caller.wait(timeout=30)
        of_worker.resume()
    assert call(socket_of(found)).communicate("", timeout=60)[0].strip().isdigit()
    assert not found.ended


def test_a_worker_that_was_killed_is_started_anew(start: contextlib.ExitStack, tmp_path: Path) -> None:
    found = started(start, tmp_path, "print('here')")
    first = found.pid
    os.kill(first, signal.SIGKILL)
    ends = time.monotonic() + 30
    while not found.ended:
        assert time.monotonic() < ends
        time.sleep(0.05)
    assert call(socket_of(found)).communicate("", timeout=60)[0].startswith("instead")
    found.start()
    while (line := call(socket_of(found)).communicate("", timeout=60)[0]) != "here\n":
        assert time.monotonic() < ends, line
    assert found.pid != first


def test_a_folder_that_is_not_there_any_more_ends_one_message(start: contextlib.ExitStack, tmp_path: Path) -> None:
    path = socket_of(started(start, tmp_path, "print('here')"))
    (tmp_path / "gone").mkdir()
    program = (
        f"import os, runpy, sys; os.rmdir(os.getcwd()); os.getcwd = lambda: {str(tmp_path / 'gone')!r}; sys.argv = sys.argv[1:]; "
    )
    command = [
        sys.executable,
        "-c",
        program + "runpy.run_path(sys.argv[0], run_name='__main__')",
        str(CALL),
        str(path),
        *INSTEAD,
        "--",
    ]
    done = subprocess.run(command, cwd=tmp_path / "gone", capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "FileNotFoundError" in done.stderr
    assert call(path).communicate("", timeout=60)[0] == "here\n"


def test_modules_under_another_name_or_of_a_bundle_are_not_told() -> None:
    names = set(worker.installed_modules())
    assert {"json", "psutil"} <= names
    assert not {name for name in names if name.partition(".")[0] in worker.OURS}
    assert json.loads(json.dumps(sorted(names))) == sorted(names)
