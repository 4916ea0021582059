"""A long-lived program of Flower's beneath one of ours: its lines go through, signals end it, and nothing of it is left.

Supervisors on the index (supervisord, circus, honcho) are daemons or run a list of commands; none ends processes that left their parent,
as what runs beneath a killed SuperLink has, or lets a caller wait for a sign of life.
"""

import collections
import contextlib
import http.client
import math
import signal
import ssl
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import psutil

from fedlingua.common.errors import DeploymentError
from fedlingua.common.processes import end, marked
from fedlingua.common.terminal import printable
from fedlingua.desk.pace import Pace, to_stderr

GRACE_S, ANSWER_S = 30.0, 20.0
"""For a farewell: a SuperNode that is killed before it stays on its SuperLink's list for a minute. For an answer, before another try."""
LAST_LINES = 100
MARK = "FEDLINGUA_SERVICE"
"""Environment variable with which every process beneath a service can be told from all others."""


class Service:
    """One program and all below it, as a context manager; SIGTERM, SIGINT and SIGHUP set `stopped`.

    folder: where it works; log: where its lines go, instead of through to ours; listen: read its lines on their way through to ours.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        log: Path | None = None,
        listen: bool = False,
    ) -> None:
        self.name, self.command, self.environment = name, list(command), dict(environment)
        self.folder, self.log, self.listen = folder, log, listen
        self._heard: collections.deque[bytes] = collections.deque(maxlen=LAST_LINES)
        self._listener: threading.Thread | None = None
        self._mark = uuid.uuid4().hex
        self.stopped = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._handlers: dict[int, object] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self._handlers[number] = signal.signal(number, lambda *_: self.stopped.set())
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.start()
        return self

    def start(self) -> None:
        """Start the program; again, once it has ended by itself."""
        with self.log.open("wb") if self.log else contextlib.nullcontext() as lines:
            # A session of its own, so that a Ctrl-C meant for us is ours to pass on in order.
            self._process = subprocess.Popen(
                self.command,
                env={**self.environment, MARK: self._mark},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if self.listen else lines,
                stderr=subprocess.STDOUT if self.listen else lines,
                start_new_session=True,
            )
        if self._process.stdout is not None:
            self._heard.clear()
            self._listener = threading.Thread(target=self._pass_on, args=(self._process.stdout,), daemon=True)
            self._listener.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process is not None:
            end(self._family(), GRACE_S)
            end(self._family(), 0.0)  # what was being started meanwhile
            self._process.wait()
        if self._listener is not None:
            self._listener.join(GRACE_S)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def printed(self) -> str:
        """What the program has written to its log so far; the last lines of one that is listened to, all of them once it has ended."""
        if self._listener is not None:
            if self.ended:
                self._listener.join(1.0)
            return b"".join(tuple(self._heard)).decode("utf-8", errors="replace")
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log else ""

    def check(self) -> None:
        """Raises DeploymentError once the program has ended by itself."""
        if self._process is not None and (code := self._process.poll()) is not None:
            raise DeploymentError(f"{self.name} has ended (exit status {code}); its last lines above say why")

    def wait_until(self, ready: Callable[[], bool], what: str, timeout_s: float = math.inf) -> None:
        """Return when `ready`; raise DeploymentError if the program ends first, or does not get there in time."""
        ends = time.monotonic() + timeout_s
        with Pace(to_stderr(self.name), before=f"waiting for {what}"):
            while not ready() and not self.stopped.wait(0.2):
                self.check()
                if time.monotonic() > ends:
                    raise DeploymentError(f"{self.name}: {what} did not happen within {timeout_s:g} s; see its lines above")

    def _pass_on(self, lines: IO[bytes]) -> None:
        with lines:
            for line in lines:
                self._heard.append(line)
                sys.stderr.write(printable(line.decode("utf-8", errors="replace")))  # its log quotes what others sent
                sys.stderr.flush()

    def _family(self) -> list[psutil.Process]:
        """All processes of the program, also orphans: those beneath a SuperLink survive its kill -9."""
        return [process for process in marked(MARK, self._mark) if process.status() != psutil.STATUS_ZOMBIE]


def answers(address: str, authority: Path | None) -> bool:
    """Whether a SuperLink's HTTP API says that it is well; with TLS where an authority is given."""
    connection = http.client.HTTPConnection(address, timeout=ANSWER_S)
    try:
        if authority is not None:
            context = ssl.create_default_context(cafile=authority)
            connection = http.client.HTTPSConnection(address, timeout=ANSWER_S, context=context)
        with contextlib.closing(connection):
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):  # nobody listens, or no such authority: the program's own lines say why
        return False


def last_words(printed: str) -> str:
    """Why a program of Flower's ended: what it says between its exit code and its pointer to the documentation."""
    reason = printed.partition("Exit Code")[2].partition("For more information")[0].split("\n")[1:]
    return " ".join(reason).strip() or printed[-300:]
