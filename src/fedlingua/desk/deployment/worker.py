"""A site's worker: a process that has all libraries loaded and forks for each message, so that no message waits for imports.

Flower starts a program for each message. Here that program is `worker_call.py`, which takes milliseconds: it passes its arguments,
environment and open files to the worker, whose fork then runs the gate as the program itself would. A fork pulls its message, which names
its run and bundle. If an earlier fork has answered that run under that bundle's hash, it still has the model and the text, and is given the
message; the new fork ends. Otherwise the new fork answers, and then waits for further messages of its run. One fork waits at most, and for
a limited time, so that its memory and the GPU's are released.

The worker itself never holds any part of a bundle, a model or a site's text: it imports only installed libraries, and learns from its forks
which ones. A message goes from one fork to another unopened, through memory that the worker does not read.
"""

import contextlib
import importlib
import json
import os
import pickle
import selectors
import shutil
import signal
import socket
import sys
import sysconfig
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from fedlingua.desk.deployment import gate
from fedlingua.desk.deployment.service import Service

SOCKET = "FEDLINGUA_WORKER"
"""Environment variable: path of the worker's socket, in a folder that only its user can enter."""
FIRST = ("flwr.supernode.cli.flwr_clientapp", "flwr.clientapp", "torch", "transformers", "safetensors.numpy", "sacrebleu")
"""Modules imported before the first message; others are imported after the first message that needed them."""
OURS = ("fedlingua", "clients", "strategies")
"""Packages that a bundle contains."""
LONGEST = 1 << 20
"""Most bytes of a call: arguments and environment."""
LOOK_S, ACCEPT_S = 1.0, 10.0
"""Time between two looks at what has run out, and for a waiting fork to accept a message before it counts as hung."""
TAKEN, YOURS, DONE = b"taken", b"yours", b"done"
"""Words between worker and fork. Any other word of a fork's names the run and bundle of the message that it has pulled."""


class Pulled:
    """Stands for Flower's client while a message is pulled. answers: those so far; without a client, the SuperNode is not asked again."""

    def __init__(self, answers: dict[tuple[str, bytes], Any], client: Any = None) -> None:
        self._answers, self._client = answers, client

    def __getattr__(self, name: str) -> Callable[[Any], Any]:
        def ask(request: Any) -> Any:
            asked = name, request.SerializeToString(deterministic=True)
            if self._client is not None:
                self._answers[asked] = getattr(self._client, name)(request)
            return self._answers[asked]

        return ask


@dataclass
class Call:
    """The arguments and environment that a message's program was started with.

    files: its standard input, output and error, and memory for the pulled message. caller: the connection to the program. is_second:
    whether a fork that carried it out has crashed.
    """

    arguments: list[str]
    environment: Mapping[str, str]
    folder: str
    files: list[int]
    caller: int = -1
    is_second: bool = False

    @classmethod
    def receive(cls, connection: socket.socket) -> "Call":
        """Read a call: its length in four bytes with the three files, then JSON; raise ValueError if it is invalid or cut off."""
        head, files, _, _ = socket.recv_fds(connection, 4, 3)
        length = int.from_bytes(head, "big")
        try:
            if len(head) != 4 or len(files) != 3 or length > LONGEST:
                raise ValueError("no call")
            with connection.makefile("rb") as stream:
                content: dict[str, Any] = json.loads(stream.read(length))
            about = content["arguments"], content["environment"], content["folder"]
        except (ValueError, KeyError, TypeError) as error:
            _close(files)
            raise ValueError("no call") from error
        return cls(*about, [*files, os.memfd_create("message")], connection.detach())

    @classmethod
    def passed_on(cls, files: list[int]) -> "Call":
        """Read a call whose message another fork has pulled."""
        with os.fdopen(os.dup(files[3]), "rb") as memory:
            memory.seek(0)
            return cls(*pickle.load(memory), files)

    def take_over(self) -> None:
        """Give this process the arguments, environment and files of the program."""
        for number, file in enumerate(self.files[:3]):
            os.dup2(file, number)
        _close(self.files[:3])
        os.environ.clear()
        os.environ.update(self.environment)
        os.chdir(self.folder)
        sys.argv[:] = self.arguments

    def pull(self, pull: Callable[[Any], Any], client: Any) -> tuple[Any, bool]:
        """Pull the message, or take it from memory; return it, and whether it was in memory. pull: Flower's function."""
        with os.fdopen(os.dup(self.files[3]), "r+b") as memory:
            if memory.seek(0, os.SEEK_END):
                memory.seek(0)
                pickle.load(memory)
                return pull(Pulled(pickle.load(memory))), True
            answers: dict[tuple[str, bytes], Any] = {}
            pulled = pull(Pulled(answers, client))
            pickle.dump((self.arguments, dict(self.environment), self.folder), memory)
            pickle.dump(answers, memory)
            return pulled, False


@dataclass
class Fork:
    """A process that answers messages. ended: a file that becomes readable once it has ended. control: the worker's end of a connection.

    call: The call that it carries out; None: it waits for another. holds: Its run and bundle. since: When it was given the call, or began to
    wait. is_asked: Whether it has yet to accept the call.
    """

    process: int
    ended: int
    control: socket.socket
    call: Call | None
    holds: bytes = b""
    since: float = field(default_factory=time.monotonic)
    is_asked: bool = False

    def dismiss(self) -> None:
        """End the process once it waits."""
        self.holds = b""
        with contextlib.suppress(OSError):
            self.control.shutdown(socket.SHUT_WR)

    def kill(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process, number)


class Worker:
    """The worker and its forks. listener: its socket. folder: the socket's. idle_s: how long a fork waits for further messages."""

    def __init__(self, listener: socket.socket, folder: Path, idle_s: float) -> None:
        self._listener, self._folder, self._idle_s = listener, folder, idle_s
        self._selector, self._forks = selectors.DefaultSelector(), list[Fork]()
        self._watch(listener.fileno(), self._accept)

    def serve(self, parent: int) -> None:
        """Answer calls until the parent process ends or SIGTERM arrives."""
        try:
            while os.getppid() == parent:
                # One at a time, because handling one may close another's file, whose number the next then gets.
                for key, _ in self._selector.select(LOOK_S)[:1]:
                    key.data()
                for fork in self._forks:
                    age_s = time.monotonic() - fork.since
                    if fork.is_asked and age_s > ACCEPT_S:
                        fork.kill(signal.SIGKILL)
                    elif fork.call is None and age_s > self._idle_s:
                        fork.dismiss()
        finally:
            for fork in self._forks:
                fork.kill(signal.SIGTERM)

    def _watch(self, file: int, ready: Callable[[], Any]) -> None:
        self._selector.register(file, selectors.EVENT_READ, ready)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.settimeout(LOOK_S)
            try:
                call = Call.receive(connection)
            except (OSError, ValueError):
                return
        self._watch(call.caller, partial(self._left, call))
        self._fork(call)

    def _left(self, call: Call) -> None:
        """End the process of a call whose program has ended."""
        self._selector.unregister(call.caller)
        call.is_second = True
        for fork in self._forks:
            if fork.call is call:
                fork.kill(signal.SIGTERM)

    def _fork(self, call: Call, holds: bytes = b"") -> None:
        """Start to carry out a call. holds: run and bundle of its message, if that has been pulled."""
        control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        process = os.fork()
        if not process:
            calls = [fork.call for fork in self._forks if fork.call]
            _close([control.fileno(), *self._selector.get_map(), *(file for each in calls for file in each.files)])
            _answer_all(call, other, self._folder, holds, self._idle_s > 0)
        other.close()
        fork = Fork(process, os.pidfd_open(process), control, call, holds)
        self._forks.append(fork)
        self._watch(fork.ended, partial(self._over, fork))
        self._watch(control.fileno(), partial(self._told, fork))

    def _told(self, fork: Fork) -> bool:
        """Handle a word of a fork's; return False if there is none."""
        try:
            word = fork.control.recv(1024, socket.MSG_DONTWAIT)
        except OSError:
            return False
        if not word:
            with contextlib.suppress(KeyError):
                self._selector.unregister(fork.control)
        elif word == TAKEN:
            fork.is_asked = False
        elif word == DONE:
            self._waits(fork)
        else:
            is_passed_on = self._passed_on(fork, word)
            fork.holds = b"" if is_passed_on else word
            with contextlib.suppress(OSError):
                fork.control.send(TAKEN if is_passed_on else YOURS)
        return bool(word)

    def _waits(self, fork: Fork) -> None:
        call, fork.call, fork.since = fork.call, None, time.monotonic()
        for other in self._forks:
            if other is not fork and other.call is None:
                other.dismiss()
        if call:
            self._finish(fork, call, 0)

    def _passed_on(self, fork: Fork, holds: bytes) -> bool:
        """Give a fork's message to the fork that waits for messages of this run and bundle; end one that waits for others."""
        for other in self._forks:
            if other.call is None and other.holds != holds:
                other.dismiss()
            elif other.call is None and fork.call:
                try:
                    socket.send_fds(other.control, [TAKEN], fork.call.files)
                except OSError:  # it has just ended
                    continue
                other.call, other.since, other.is_asked, fork.call = fork.call, time.monotonic(), True, None
                return True
        return False

    def _over(self, fork: Fork) -> None:
        """Clean up after a process. If it crashed, another carries out its call; once, since the call may be the cause."""
        while self._told(fork):  # its last words
            pass
        _, status = os.waitpid(fork.process, 0)
        self._forks.remove(fork)
        for file in (fork.ended, fork.control.fileno()):
            with contextlib.suppress(KeyError):
                self._selector.unregister(file)
        os.close(fork.ended)
        fork.control.close()
        if (call := fork.call) is None:
            return
        code = os.waitstatus_to_exitcode(status)
        if code < 0 and not call.is_second:
            call.is_second = True
            self._fork(call, fork.holds)
        else:
            self._finish(fork, call, code)

    def _finish(self, fork: Fork, call: Call, code: int) -> None:
        """Send the exit status to the caller, and import the modules that the next message will need as well."""
        with contextlib.suppress(OSError):  # the caller may be gone
            os.write(call.caller, bytes([code % 256]))
        with contextlib.suppress(KeyError):
            self._selector.unregister(call.caller)
        _close([call.caller, *call.files])
        imported = self._folder / f"{fork.process}.json"
        with contextlib.suppress(OSError, ValueError):
            import_all(json.loads(imported.read_bytes()))
        imported.unlink(missing_ok=True)


def serve(path: Path, parent: int, idle_s: float) -> None:
    """Answer calls on a socket until the parent process ends or SIGTERM arrives; forks carry them out.

    path: Path of the socket, in a folder of its own. parent: The process of `fedlingua site start`. idle_s: As in Worker.

    If a caller is gone, its fork is ended. Works on Linux only, since a pidfd reports a fork's end.
    """
    import_all(FIRST)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        path.unlink(missing_ok=True)  # left by a worker that was killed
        listener.bind(str(path))
        listener.listen(64)
        Worker(listener, path.parent, idle_s).serve(parent)
        shutil.rmtree(path.parent, ignore_errors=True)  # a parent that was killed leaves it


def _answer_all(call: Call, control: socket.socket, folder: Path, holds: bytes, waits: bool) -> NoReturn:
    """Carry out a call in this process, a fork, and those that the worker passes on; then end the process.

    holds: Run and bundle of the call's message, if that has been pulled. waits: Whether the process may wait for another call.
    """
    known, code = set(sys.modules), 1

    def pull(flower: Callable[[Any], Any], client: Any) -> Any:
        nonlocal holds
        pulled, is_known = call.pull(flower, client)
        if not is_known:
            holds = f"{pulled[2].run_id} {gate.bundle_hash(pulled[3].content)}".encode()
            control.send(holds)
            if control.recv(len(TAKEN)) == TAKEN:
                os._exit(0)  # without Flower's farewell, because the message is being answered elsewhere
        return pulled

    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        call.take_over()
        client_app = gate.prepared(pull)
        while True:
            waits, code = _carried_out(client_app, waits)
            if new := [name for name in installed_modules() if name not in known]:
                (folder / f"{os.getpid()}.json").write_text(json.dumps(new), encoding="utf-8")
                known.update(new)
            if not (waits and holds):
                break
            _let_go(call)
            control.send(DONE)
            _, files, _, _ = socket.recv_fds(control, len(TAKEN), 4)
            if not files:
                break
            control.send(TAKEN)
            call = Call.passed_on(files)
            call.take_over()
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        _flush()
        os._exit(code)


def _carried_out(client_app: Callable[[], Any], waits: bool) -> tuple[bool, int]:
    """Run Flower's program. Return whether the process may carry out another, and the exit status."""
    try:
        client_app()
    except gate.AnsweredError:
        return waits, 0
    except SystemExit as end:
        return False, end.code if isinstance(end.code, int) else int(end.code is not None)
    return False, 0


def _let_go(call: Call) -> None:
    """Close the files of a call that has been carried out, and end the process on any signal again."""
    _flush()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    _close([nothing, call.files[3]])
    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
        signal.signal(signal_number, signal.SIG_DFL)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


def _close(files: Iterable[int]) -> None:
    for file in files:
        with contextlib.suppress(OSError):
            os.close(file)


def import_all(names: Iterable[str]) -> None:
    """Import modules; a module that cannot be imported is left to the message that needs it."""
    for name in names:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def installed_modules() -> Iterator[str]:
    """Yield this process's modules from installed packages or Python's library, and none from a bundle."""
    homes = tuple({f"{sysconfig.get_path(kind)}{os.sep}" for kind in ("stdlib", "platstdlib", "purelib", "platlib")})
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        origin = getattr(spec, "origin", None)
        # A module registered under another name than its own cannot be imported under that name.
        if spec and origin and spec.name == name and origin.startswith(homes) and name.partition(".")[0] not in OURS:
            yield name


def command() -> list[str]:
    """Return the command line of a worker, without its parent's process id and its seconds of waiting."""
    return [sys.executable, "-m", "fedlingua.desk.deployment.worker"]


@contextmanager
def worker_of(environment: Mapping[str, str], home: Path, idle_minutes: float) -> Iterator[Service | None]:
    """Run a site's worker, whose environment names its socket; None if the system cannot report a fork's end (not Linux)."""
    if not hasattr(os, "pidfd_open"):
        yield None
        return
    # The path is short, as a socket's must be, and only its user can enter the folder.
    with tempfile.TemporaryDirectory(prefix="fedlingua-") as folder:
        own = {**environment, SOCKET: f"{folder}/worker"}
        with Service("the worker", [*command(), str(os.getpid()), str(60 * idle_minutes)], own, home) as worker:
            yield worker


if __name__ == "__main__":
    serve(Path(os.environ[SOCKET]), int(sys.argv[1]), float(sys.argv[2]))
