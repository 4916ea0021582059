"""A site's worker: a process that has all libraries loaded and forks for each message, so that no message waits for imports.

Flower starts a program for each message. Here that program is `worker_call.py`, which takes milliseconds: it passes its arguments,
environment and open files to the worker, whose fork then runs the gate as the program itself would. Each message still has a process of
its own, which ends with the message and releases memory and GPU. The worker itself never holds any part of a bundle, a model or a
site's text: it imports only installed libraries, and learns from the messages' processes which ones.
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
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlingua.desk.deployment.service import Service

SOCKET = "FEDLINGUA_WORKER"
"""Environment variable: path of the worker's socket, in a folder that only its user can enter."""
FIRST = ("flwr.supernode.cli.flwr_clientapp", "flwr.clientapp", "torch", "transformers", "safetensors.numpy", "sacrebleu")
"""Modules imported before the first message; others are imported after the first message that needed them."""
OURS = ("fedlingua", "clients", "strategies")
"""Packages that a bundle contains."""
LONGEST = 1 << 20
"""Most bytes of a call: arguments and environment."""
LOOK_S = 1.0


@dataclass(frozen=True)
class Call:
    """The arguments and environment that a message's program was started with. files: its standard input, output and error."""

    arguments: list[str]
    environment: Mapping[str, str]
    folder: str
    files: list[int]

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
            return cls(content["arguments"], content["environment"], content["folder"], files)
        except (ValueError, KeyError, TypeError) as error:
            _close(files)
            raise ValueError("no call") from error

    def take_over(self) -> None:
        """Give this process the arguments, environment and files of the program."""
        for number, file in enumerate(self.files):
            os.dup2(file, number)
        _close(self.files)
        os.environ.clear()
        os.environ.update(self.environment)
        os.chdir(self.folder)
        sys.argv[:] = self.arguments


def serve(path: Path, parent: int) -> None:
    """Answer calls on a socket until the parent process ends or SIGTERM arrives; a fork carries out each call.

    path: Path of the socket, in a folder of its own. parent: The process of `fedlingua site start`.

    If a caller is gone, its fork is ended. Works on Linux only, since a pidfd reports a fork's end.
    """
    import_all(FIRST)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    forks: dict[int, Fork] = {}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener, selectors.DefaultSelector() as selector:
        path.unlink(missing_ok=True)  # left by a worker that was killed
        listener.bind(str(path))
        listener.listen(64)
        selector.register(listener, selectors.EVENT_READ)
        try:
            while os.getppid() == parent:
                # One at a time, because handling one may close another's file, whose number the next call then gets.
                for key, _ in selector.select(LOOK_S)[:1]:
                    if key.fileobj is listener:
                        connection, _ = listener.accept()
                        if fork := _forked(connection, path.parent, [listener.fileno(), *forks]):
                            for file in (fork.ended, fork.caller):
                                forks[file] = fork
                                selector.register(file, selectors.EVENT_READ)
                        continue
                    fork = forks[key.fd]
                    over = [fork.caller] if key.fd == fork.caller else [file for file, each in forks.items() if each is fork]
                    for file in over:
                        selector.unregister(file)
                        del forks[file]
                    if key.fd == fork.ended:
                        fork.finish()
                    else:
                        fork.stop()
            shutil.rmtree(path.parent, ignore_errors=True)  # a parent that was killed leaves it
        finally:
            for fork in forks.values():
                fork.stop()


@dataclass(frozen=True)
class Fork:
    """The process of one message. ended: a file that becomes readable once the process has ended. caller: connection to the program that
    Flower started, readable once that is gone. imported: a file in which the process lists the modules that it had to import."""

    process: int
    ended: int
    caller: int
    imported: Path

    def finish(self) -> None:
        """Send the exit status to the caller, and import the modules that the next message will need as well."""
        _, status = os.waitpid(self.process, 0)
        with contextlib.suppress(OSError):  # the caller may be gone
            os.write(self.caller, bytes([os.waitstatus_to_exitcode(status) % 256]))
        _close([self.ended, self.caller])
        with contextlib.suppress(OSError, ValueError):
            import_all(json.loads(self.imported.read_bytes()))
        self.imported.unlink(missing_ok=True)

    def stop(self) -> None:
        """End the process, since nobody waits for it any more."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGTERM)


def _forked(connection: socket.socket, folder: Path, files: Iterable[int]) -> Fork | None:
    """Start to carry out a call; return None if none could be read. files: the worker's own, which the fork closes."""
    connection.settimeout(LOOK_S)
    try:
        call = Call.receive(connection)
    except (OSError, ValueError):
        connection.close()
        return None
    if process := os.fork():
        _close(call.files)
        return Fork(process, os.pidfd_open(process), connection.detach(), folder / f"{process}.json")
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _close([*files, connection.fileno()])
        before = set(sys.modules)
        code = _carried_out(call)
        new = [name for name in installed_modules() if name not in before]
        if new:
            (folder / f"{os.getpid()}.json").write_text(json.dumps(new), encoding="utf-8")
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _carried_out(call: Call) -> int:
    """Run the gate as a program would, and return its exit status."""
    from fedlingua.desk.deployment import gate

    try:
        call.take_over()
        gate.main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


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
    """Return the command line of a worker, without its parent's process id."""
    return [sys.executable, "-m", "fedlingua.desk.deployment.worker"]


@contextmanager
def worker_of(environment: Mapping[str, str], home: Path) -> Iterator[Service | None]:
    """Run a site's worker, whose environment names its socket; None if the system cannot report a fork's end (not Linux)."""
    if not hasattr(os, "pidfd_open"):
        yield None
        return
    # The path is short, as a socket's must be, and only its user can enter the folder.
    with tempfile.TemporaryDirectory(prefix="fedlingua-") as folder:
        own = {**environment, SOCKET: f"{folder}/worker"}
        with Service("the worker", [*command(), str(os.getpid())], own, home) as worker:
            yield worker


if __name__ == "__main__":
    serve(Path(os.environ[SOCKET]), int(sys.argv[1]))
