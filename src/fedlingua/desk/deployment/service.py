"""Run a long-lived program of Flower's under one of ours: pass its output on, end it on signals, and leave no process behind.

Supervisors on the index (supervisord, circus, honcho) are daemons or run a list of commands. None ends processes that have lost their
parent, as those under a killed SuperLink have, and none lets a caller wait until the program is ready.
"""

import collections
import contextlib
import hashlib
import http.client
import logging
import math
import os
import ssl
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO, Self

from fedlingua.common.errors import DeploymentError
from fedlingua.common.terminal import printable
from fedlingua.desk.pace import Pace, to_stderr
from fedlingua.desk.processes import end_marked, marked, signals_held

GRACE_S, ANSWER_S = 30.0, 20.0
"""Time to log off: a SuperNode killed earlier stays on its SuperLink's list for a minute. Time for an answer, before another try."""
LAST_LINES = 100
ACCESS = b"[uvicorn.access]"
"""Marks Flower's line for each request to its HTTP API: a hundred megabytes a day of nothing that anybody reads."""
LOG_BYTES, OLD_LOGS = 5 * 2**20, 3
"""Size at which a log is put aside, and how many of those are kept."""
MARK = "FEDLINGUA_SERVICE"
"""Environment variable that identifies every process under a service."""


class Service:
    """One program and all processes under it, as a context manager; SIGTERM, SIGINT and SIGHUP set `stopped`.

    folder: its working directory. log: file for its output, which otherwise goes to our output. listen: read its output on the way to ours,
    leave colours and access lines out, and with `log` also write it there, to a file of bounded size.
    locked: folder that exists and whose lock the caller holds, so that this service is the only one of its name for it; see `end_earlier`.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        log: Path | None = None,
        listen: bool = False,
        locked: Path | None = None,
    ) -> None:
        self.name, self.command, self.environment = name, list(command), dict(environment)
        self.folder, self.log, self.listen = folder, log, listen
        self._heard: collections.deque[bytes] = collections.deque(maxlen=LAST_LINES)
        self._listener: threading.Thread | None = None
        self._mark = _mark_of(name, locked) if locked else uuid.uuid4().hex
        self.stopped = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._signals = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self.stopped = self._signals.enter_context(signals_held())
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.start()
        return self

    def end_earlier(self) -> None:
        """End what is left of this service where the command that ran it last was killed; only with `locked`, and before the start."""
        if marked(MARK, self._mark):
            to_stderr(self.name)("ending an earlier one, which still runs although its command was killed")
            end_marked(MARK, self._mark, GRACE_S)

    def start(self) -> None:
        """Start the program, or restart it after it has ended by itself."""
        with self.log.open("wb") if self.log and not self.listen else contextlib.nullcontext() as lines:
            # It gets a session of its own, so that we receive a Ctrl-C and pass it on in order.
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

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            end_marked(MARK, self._mark, GRACE_S)  # orphans included: those under a SuperLink survive its kill -9
            self._process.wait()
        if self._listener is not None:
            self._listener.join(GRACE_S)
        self._signals.close()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def printed(self) -> str:
        """Return what the program has written to its log so far; with `listen`, its last lines, which are complete once it has ended."""
        if self._listener is not None:
            if self.ended:
                self._listener.join(1.0)
            return b"".join(tuple(self._heard)).decode("utf-8", errors="replace")
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log else ""

    def check(self) -> None:
        """Raise DeploymentError if the program has ended by itself."""
        if self._process is not None and (code := self._process.poll()) is not None:
            raise DeploymentError(f"{self.name} has ended (exit status {code}); its last lines above say why")

    def wait_until(self, ready: Callable[[], bool], what: str, timeout_s: float = math.inf) -> None:
        """Wait until `ready`; raise DeploymentError if the program ends first, or is not ready in time."""
        ends = time.monotonic() + timeout_s
        with Pace(to_stderr(self.name), before=f"waiting for {what}"):
            while not ready() and not self.stopped.wait(0.2):
                self.check()
                if time.monotonic() > ends:
                    raise DeploymentError(f"{self.name}: {what} did not happen within {timeout_s:g} s; see its lines above")

    def _pass_on(self, lines: IO[bytes]) -> None:
        log = RotatingFileHandler(self.log, maxBytes=LOG_BYTES, backupCount=OLD_LOGS, encoding="utf-8") if self.log else None
        with lines, contextlib.closing(log) if log else contextlib.nullcontext():
            for line in lines:
                if ACCESS in line:
                    continue
                self._heard.append(line)
                words = printable(line.decode("utf-8", errors="replace"))  # its log quotes input from others
                sys.stderr.write(words)
                sys.stderr.flush()
                if log:
                    log.handle(logging.makeLogRecord({"msg": words.rstrip("\n")}))


def _mark_of(name: str, folder: Path) -> str:
    """Return the mark of the service of this name for a folder; no other folder has it, not even at the same path in a container."""
    there = folder.resolve()
    about = there.stat()
    return hashlib.sha256(b"\0".join([name.encode(), os.fsencode(there), f"{about.st_dev}:{about.st_ino}".encode()])).hexdigest()


def answers(address: str, authority: Path | None) -> bool:
    """Return whether a SuperLink's HTTP API reports that it is healthy; with TLS if an authority is given."""
    connection = http.client.HTTPConnection(address, timeout=ANSWER_S)
    try:
        if authority is not None:
            context = ssl.create_default_context(cafile=authority)
            connection = http.client.HTTPSConnection(address, timeout=ANSWER_S, context=context)
        with contextlib.closing(connection):
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):  # nobody listens, or no such authority; the program's own output says why
        return False


def last_words(printed: str) -> str:
    """Return why a program of Flower's ended: its output between the exit code and the link to the documentation."""
    reason = printed.partition("Exit Code")[2].partition("For more information")[0].split("\n")[1:]
    return " ".join(reason).strip() or printed[-300:]
