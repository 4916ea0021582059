"""A site's worker: a process that has all libraries loaded and forks for each message, so that no message waits for imports.

Flower starts a program for each message. Here that program is `worker_call.py`, which takes milliseconds: it passes its arguments,
environment and open files to the worker, whose fork then runs the gate as the program itself would. The fork pulls the message, which names
its run and bundle. If an earlier fork has answered that run under that bundle's hash, it still has the model and the text: it is given the
message, and the new fork ends. Otherwise the new fork answers, and then waits for further messages. One fork waits at most, and for a
limited time, so that memory and GPU are released.

The worker itself never holds any part of a bundle, a model or a site's text: it imports only installed libraries, and learns from its forks
which ones. It does not read the memory in which a message goes from fork to fork.
"""

import contextlib
import importlib
import json
import os
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

from fedlingua.consent import audit
from fedlingua.consent.bundle import bundle_hash
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
MOST_MODULES = 2000
"""Most modules that a fork lists after a message."""
LOOK_S, ACCEPT_S = 1.0, 10.0
"""Time between two looks at what has run out, and for a waiting fork to accept a message before it counts as hung."""
TAKEN, YOURS = b"taken", b"yours"
"""What the worker says to a fork that has pulled a message: another fork answers it, or this one. A waiting fork says TAKEN, too."""


@dataclass
class Call:
    """The arguments and environment that a message's program was started with.

    message: what Flower's function has pulled, and Flower's ids of the task; None before. files: the program's standard input, output and
    error, and memory for all these. caller: the connection to the program. may_repeat: whether another fork answers if this one crashes.
    """

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    message: tuple[Any, dict[str, int]] | None
    files: list[int]
    caller: int = -1
    may_repeat: bool = True

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
        return cls(*about, None, [*files, os.memfd_create("message")], connection.detach())

    @classmethod
    def of_pulled(cls, files: list[int]) -> "Call":
        """Read a call whose message another fork has pulled."""
        with open(files[3], "rb", closefd=False) as memory:
            memory.seek(0)
            about, pulled = json.loads(memory.readline()), gate.stored(memory)
        return cls(about["arguments"], about["environment"], about["folder"], (pulled, about["ids"]), files)

    def take_over(self) -> None:
        """Give this process the arguments, environment and files of the program."""
        for number, file in enumerate(self.files[:3]):
            os.dup2(file, number)
        _close(self.files[:3])
        os.environ.clear()
        os.environ.update(self.environment)
        os.chdir(self.folder)
        sys.argv[:] = self.arguments

    def let_go(self) -> None:
        """Give the program's files up, and let any signal end this process again."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        with open(os.devnull, "r+b") as nothing:
            for file in range(3):
                os.dup2(nothing.fileno(), file)
        os.close(self.files[3])
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)

    def pull(self, flower: Callable[..., Any], client: Any) -> tuple[Any, bool]:
        """Pull the message by Flower's function, and store it for another fork. Return it, and whether another fork has pulled it."""
        identity: Any = importlib.import_module("flwr.supercore.task_identity").TaskIdentity
        if self.message:
            (pulled, ids), self.message = self.message, None
            for name, number in ids.items():
                setattr(identity, name, number)
            return pulled, True
        pulled = flower(client)
        ids = {name: getattr(identity, name) for name in ("task_id", "run_id", "node_id")}
        about = {"arguments": self.arguments, "environment": self.environment, "folder": self.folder, "ids": ids}
        with open(self.files[3], "wb", closefd=False) as memory:
            memory.write(json.dumps(about).encode() + b"\n")
            gate.store(pulled, memory)
        return pulled, False


@dataclass
class Fork:
    """A process that answers messages. ended: a file that becomes readable once it has ended. control: the worker's end of a connection.

    call: what it carries out; None: it waits. holds: its run and bundle. since: when it began that. is_asked: whether it has yet to accept
    the call.
    """

    process: int
    ended: int
    control: socket.socket
    call: Call | None
    holds: bytes = b""
    since: float = field(default_factory=time.monotonic)
    is_asked: bool = False


class Worker:
    """The worker and its forks. listener: its socket. idle_s: how long a fork waits for further messages."""

    def __init__(self, listener: socket.socket, idle_s: float) -> None:
        self._listener, self._idle_s = listener, idle_s
        self._selector, self._forks = selectors.DefaultSelector(), list[Fork]()
        self._to_import = list[str]()  # while no message waits
        self._watch(listener.fileno(), self._accept)

    def serve(self, parent: int) -> None:
        """Answer calls until the parent process ends; if a caller is gone, its fork is ended."""
        try:
            while os.getppid() == parent:
                # One at a time, because handling one may close another's file, whose number the next then gets.
                for key, _ in (ready := self._selector.select(0 if self._to_import else LOOK_S)[:1]):
                    key.data()
                if not ready and self._to_import:
                    import_all([self._to_import.pop(0)])
                for fork in self._forks:
                    age_s = time.monotonic() - fork.since
                    if (fork.is_asked and age_s > ACCEPT_S) or (fork.call is None and age_s > self._idle_s):
                        os.kill(fork.process, signal.SIGKILL)
        finally:
            for fork in self._forks:
                os.kill(fork.process, signal.SIGTERM)

    def _watch(self, file: int, ready: Callable[[], Any]) -> None:
        self._selector.register(file, selectors.EVENT_READ, ready)

    def _forget(self, *files: int) -> None:
        for file in files:
            with contextlib.suppress(KeyError):
                self._selector.unregister(file)
        _close(files)

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
        call.may_repeat = False
        for fork in self._forks:
            if fork.call is call:
                os.kill(fork.process, signal.SIGTERM)

    def _fork(self, call: Call, holds: bytes = b"") -> None:
        """Start to carry out a call. holds: run and bundle of its message, if that has been pulled."""
        control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if not (process := os.fork()):
            others = [file for fork in self._forks if fork.call for file in fork.call.files]
            _close([control.fileno(), *(key.fd for key in self._selector.get_map().values()), *others])
            _answer_all(call, other, holds, self._idle_s > 0)
        other.close()
        fork = Fork(process, os.pidfd_open(process), control, call, holds)
        self._forks.append(fork)
        self._watch(fork.ended, partial(self._over, fork))
        self._watch(control.fileno(), partial(self._hear, fork))

    def _hear(self, fork: Fork) -> bool:
        """Handle a word of a fork's; return False if there is none."""
        with contextlib.suppress(OSError, KeyError):
            word = fork.control.recv(LONGEST, socket.MSG_DONTWAIT)
            if not word:
                self._selector.unregister(fork.control)
            elif word == TAKEN:
                fork.is_asked = False
            elif word.startswith(b"{"):
                self._done(fork, json.loads(word))
            else:
                fork.control.send(self._passed_on(fork, word))
            return bool(word)
        return False

    def _passed_on(self, fork: Fork, holds: bytes) -> bytes:
        """Give a fork's message to the one that waits for messages of this run and bundle; end one that waits for others."""
        for other in self._forks:
            if other.call is None and other.holds != holds:
                os.kill(other.process, signal.SIGKILL)
            elif other.call is None:
                with contextlib.suppress(OSError):  # it may have ended just now
                    socket.send_fds(other.control, [TAKEN], fork.call.files if fork.call else [])
                    other.call, other.since, other.is_asked, fork.call = fork.call, time.monotonic(), True, None
                    return TAKEN
        fork.holds = holds
        return YOURS

    def _done(self, fork: Fork, result: Mapping[str, Any]) -> None:
        """Finish a fork's call, and note the modules that other forks will need as well."""
        call, fork.call, fork.since = fork.call, None, time.monotonic()
        fork.holds = fork.holds if result["waits"] else b""
        for other in self._forks:
            if other is not fork and other.call is None:
                os.kill(other.process, signal.SIGKILL)
        if call:
            self._finish(call, result["code"])
        self._to_import += result["imported"]

    def _over(self, fork: Fork) -> None:
        """Clean up after a process. If it crashed, another carries out its call; once, since the call may be the cause."""
        while self._hear(fork):  # its last words
            pass
        os.waitpid(fork.process, 0)
        self._forks.remove(fork)
        self._forget(fork.ended, fork.control.detach())
        if fork.call and fork.call.may_repeat:
            fork.call.may_repeat = False
            self._fork(fork.call, fork.holds)
        elif fork.call:
            _log_unanswered(fork.call, fork.holds)
            self._finish(fork.call, 1)

    def _finish(self, call: Call, code: int) -> None:
        with contextlib.suppress(OSError):  # the caller may be gone
            os.write(call.caller, bytes([code % 256]))
        self._forget(call.caller, *call.files)


def serve(path: Path, parent: int, idle_s: float) -> None:
    """Answer calls on a socket, in a folder of its own, until the parent process, `fedlingua site start`, ends or SIGTERM arrives."""
    import_all(FIRST)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        path.unlink(missing_ok=True)  # left by a worker that was killed
        listener.bind(str(path))
        listener.listen(64)
        Worker(listener, idle_s).serve(parent)
        shutil.rmtree(path.parent, ignore_errors=True)  # a parent that was killed leaves it


def _answer_all(call: Call, control: socket.socket, holds: bytes, waits: bool) -> NoReturn:
    """Carry out a call in this process, a fork, and those that the worker passes on; then end the process.

    holds: Run and bundle of the call's message, if that has been pulled. waits: Whether the process may wait for another call.
    """
    known, program = set(sys.modules), None

    def pull(flower: Callable[..., Any], client: Any) -> Any:
        nonlocal holds
        pulled, is_passed_on = call.pull(flower, client)
        if not is_passed_on:
            holds = f"{pulled[2].run_id} {bundle_hash(pulled[3].content)}".encode()
            control.send(holds)
            if control.recv(len(TAKEN)) == TAKEN:
                os._exit(0)  # without Flower's farewell, because the message is being answered elsewhere
        return pulled

    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        call = Call.of_pulled(call.files) if holds else call
        while True:
            again, code = False, 0
            try:
                call.take_over()
                program = program or gate.prepared(pull)
                program()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
                again = isinstance(end, gate.AnsweredError) and waits and bool(holds)
            except BaseException:
                traceback.print_exc()
                _log_unanswered(call, holds)
                code = 1
            call.let_go()
            new = [name for name in installed_modules() if name not in known][:MOST_MODULES]
            known.update(new)
            control.send(json.dumps({"code": code, "waits": again, "imported": new}).encode())
            files = socket.recv_fds(control, len(TAKEN), 4)[1] if again else []
            if not files:
                break
            control.send(TAKEN)
            call = Call.of_pulled(files)
    finally:
        os._exit(1)


def _log_unanswered(call: Call, holds: bytes) -> None:
    """Append a line to the site's log for a message whose process ended without a reply: the SuperNode answers it with an error."""
    flower_run, _, bundle = holds.decode().partition(" ")
    line = {"asked": "a message", "flower_run": flower_run, "bundle": bundle, "refused": "its process crashed or was stopped"}
    with contextlib.suppress(Exception):  # the message is refused either way, and the worker answers others
        audit.append(Path(call.environment[gate.REFUSED]).parent, line)


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
