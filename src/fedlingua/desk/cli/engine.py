"""One Flower engine: starts or finds a SuperLink, submits runs to it, reports their status, and leaves no process behind.

For an address ":local:" Flower starts one SuperLink per user at a fixed port and leaves it running, with all its processes: two
commands would share it, and a Ctrl-C would end neither it nor the run. `flwr run --stream` prints a run's log, but reports neither
how the run ended nor why. An engine therefore starts a SuperLink of its own, and leaves everything else to the `flwr` command.
"""

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, cast, get_args

import psutil
import tomli_w

from fedlingua.common.errors import RunError
from fedlingua.common.terminal import COLOUR, last_lines
from fedlingua.desk import processes
from fedlingua.desk.cli.profile import Profile
from fedlingua.desk.deployment.build import stage_app
from fedlingua.desk.deployment.service import answers
from fedlingua.desk.pace import Pace, to_stderr
from fedlingua.settings.config import Scalar

MARK = "FEDLINGUA_ENGINE"
"""Environment variable that marks every process started under an engine, whatever session it has moved to."""

RAY_LIMIT, RAY_LIMIT_S = "RAY_raylet_start_wait_time_s", "120"
"""Ray's own limit for its start, in seconds. Its default of 30 is too short for a busy machine; a quick start stays quick."""
_START_TRIES = 3
_STOP_S = 60.0  # limit for asking a server to stop a run when the engine closes, which must not hang; it can be stopped there too
_GRACE_S = 4.0  # between SIGTERM and SIGKILL: the processes hold everything in memory and have nothing to save
_STATUS_TRIES = 3
_SHORT_TEMP = 26  # bytes; the paths of Ray's sockets are about 80 bytes longer, and may have 107 at most
DRIVER = Path(__file__).parents[1] / "cluster"
"""Folder of the module that Flower's engine loads on a Ray cluster."""
LOG_LINES = 40
"""Lines from the end of a log that an error message quotes."""

State = Literal["pending", "starting", "running", "finished"]
Outcome = Literal["completed", "failed", "stopped", ""]


@dataclass(frozen=True)
class RunStatus:
    """A run's status according to Flower; `outcome` is "" until the run has finished."""

    state: State
    outcome: Outcome
    details: str = ""

    @property
    def finished(self) -> bool:
        return self.state == "finished"


class Engine:
    """A context manager that carries out runs of one app on one profile.

    Args:
        home: FLWR_HOME of all its processes, used by one engine at a time, so that the user's own ~/.flwr is neither read nor
            written; None: a temporary directory, which is removed at the end.
    """

    def __init__(self, app_dir: Path, home: Path | None, profile: Profile) -> None:
        self.app_dir = app_dir.resolve()
        self.profile, self.address = profile, profile.address
        self._own_home = home is None
        # The bundle is unpacked in it, and all machines of a cluster have to see that.
        shared = Path.cwd() if self.profile.ray_address else None
        self.home = Path(os.path.abspath(home or tempfile.mkdtemp(prefix="fedlingua-", dir=shared)))
        self._mark = uuid.uuid4().hex
        self._superlink: subprocess.Popen[bytes] | None = None
        self._ray_dir: Path | None = None
        self._environment: dict[str, str] = {}
        self._going: set[str] = set()
        self._old_handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        # A Ctrl-C in here does not lead to __exit__, and SIGTERM would end Python without calling it.
        try:
            atexit.register(self.close)
            if threading.current_thread() is threading.main_thread():
                for number in (signal.SIGTERM, signal.SIGHUP):
                    if signal.getsignal(number) is signal.SIG_DFL:  # and the program has no handlers of its own
                        self._old_handlers[number] = signal.signal(number, processes.leave)
            self._make_home()
            if self.profile.local:
                self._start_superlink()
            self._write_config()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, run_config: Mapping[str, Scalar], num_nodes: int) -> str:
        """Start a run and return Flower's id of it. num_nodes: of a simulation; a deployment has its own nodes."""
        # A file, because a value with both kinds of quotes cannot be passed on Flower's command line.
        config_file = self.home / "run-config.toml"
        config_file.write_bytes(tomli_w.dumps(dict(run_config)).encode())
        shutil.rmtree(staged := self.home / "bundled", ignore_errors=True)
        stage_app(self.app_dir, staged)
        command = ["run", str(staged), self.profile.name, "--run-config", str(config_file)]
        if self.profile.local:
            resources = {"cpus": self.profile.cpus_per_node, "gpus": self.profile.gpus_per_node}
            share = " ".join(f"client-resources-num-{kind}={number}" for kind, number in resources.items())
            command += ["--federation-config", f"num-supernodes={num_nodes} {share}"]
        run_id = str(self._ask(command)["run-id"])
        self._going.add(run_id)
        return run_id

    def status(self, run_id: str) -> RunStatus:
        """Return the run's status; this takes about a second, so call it sparingly."""
        # `flwr ls` costs a process (0.8 s of one core). Flower's importable client would be cheaper, but it is private, and login
        # and TLS are done around it, not in it; the command's JSON is documented and the same from 1.39 on.
        command = ["ls", self.profile.name, "--run-id", run_id]
        for left in reversed(range(_STATUS_TRIES)):
            try:
                row = self._ask(command)["runs"][0]
                break
            except RunError:  # a single lost answer must not end the watching of a run that takes hours
                if not left:
                    raise
                time.sleep(1.0)
        state, _, outcome = row["status"].partition(":")  # as "running" or "finished:failed"
        if state not in get_args(State) or outcome not in get_args(Outcome):
            raise RunError(f"Flower names a run's status '{row['status']}', unknown to this version.")
        details = str(row.get("status-details", ""))
        status = RunStatus(state, outcome, "" if details == "N/A" else details)
        if status.finished:
            self._going.discard(run_id)
        return status

    def runs(self) -> list[dict[str, str]]:
        """Return Flower's record of each run of its SuperLink, newest first: run-id, status, pending-at, elapsed and others."""
        return cast(list[dict[str, str]], self._ask(["ls", self.profile.name])["runs"])

    def stop(self, run_id: str) -> None:
        """Stop a run, whoever started it; raise RunError if Flower refuses, as for a run that has finished."""
        self._ask(["stop", run_id, self.profile.name])
        self._going.discard(run_id)

    def log(self, run_id: str) -> str:
        """Return what a run's ServerApp has printed so far."""
        return self._flwr(["log", run_id, self.profile.name, "--show"])

    def register(self, public_key_file: Path, name: str) -> bool:
        """Let the node with this public key join, under a name for people; return False if the key is already registered."""
        try:
            self._ask(["supernode", "register", str(public_key_file), self.profile.name, "--name", name])
        except RunError as error:
            if "already" in str(error).lower():
                return False
            raise
        return True

    def log_tail(self, run_id: str) -> str:
        """Return the last lines printed by the SuperLink and a run's ServerApp, for an error message."""
        parts = []
        if self.profile.local:
            parts.append("SuperLink:\n" + self._superlink_tail())
        if self._superlink is None or self._superlink.poll() is None:
            # In a simulation the ServerApp's output goes to Flower alone, not to the SuperLink's log.
            parts.append("ServerApp:\n" + last_lines(self.log(run_id), LOG_LINES))
        return "\n".join(parts)

    def close(self) -> None:
        """Stop unfinished runs and end every process that this engine started; a second Ctrl-C only hastens this."""
        with processes.signals_held() as hurry:
            # Runs of our own SuperLink end with it: it keeps them in memory, and stopping them through it would end no process.
            for run_id in [] if self.profile.local else sorted(self._going):
                if not hurry.is_set():
                    with contextlib.suppress(RunError, subprocess.TimeoutExpired):  # it may have finished by itself
                        self._ask(["stop", run_id, self.profile.name], _STOP_S)
            family: list[psutil.Process] = []  # collected while parents still know their children
            if self._superlink is not None and self._superlink.poll() is None:
                with contextlib.suppress(psutil.Error):
                    top = psutil.Process(self._superlink.pid)
                    family = [top, *top.children(recursive=True)]
            processes.end_marked(MARK, self._mark, _GRACE_S, hurry, family)
            if self._superlink is not None:
                self._superlink.wait()
                self._superlink = None
            if self._ray_dir is not None:
                shutil.rmtree(self._ray_dir, ignore_errors=True)
                self._ray_dir = None
            if self._own_home:
                shutil.rmtree(self.home, ignore_errors=True)
            self._going.clear()
            atexit.unregister(self.close)
        if threading.current_thread() is threading.main_thread():
            while self._old_handlers:
                signal.signal(*self._old_handlers.popitem())

    # --- Starting ---

    def _make_home(self) -> None:
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        environment = {**processes.flower_environment(self.home), MARK: self._mark, "RAY_USAGE_STATS_ENABLED": "0"}
        environment.setdefault(RAY_LIMIT, RAY_LIMIT_S)
        environment.setdefault("RAY_prestart_worker_first_driver", "0")  # Flower starts its own
        for key in ("RAY_ADDRESS", "RAY_REDIS_ADDRESS"):
            environment.pop(key, None)
        if self.profile.ray_address:
            environment["RAY_ADDRESS"], environment["RAY_RUNTIME_ENV_HOOK"] = self.profile.ray_address, "fedlingua_ray.survive"
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, [environment.get("PYTHONPATH"), str(DRIVER)]))
        if self.profile.local:
            # Ray makes sockets in it: however long `home` is, their paths have to stay short.
            usual = tempfile.gettempdir()
            short = usual if len(os.fsencode(usual)) <= _SHORT_TEMP else "/tmp"
            self._ray_dir = Path(tempfile.mkdtemp(prefix="fl-", dir=short))
            environment["RAY_TMPDIR"] = str(self._ray_dir)
        self._environment = environment

    def _write_config(self) -> None:
        link: dict[str, Scalar] = {"address": self.address, "insecure": self.profile.insecure or self.profile.local}
        if self.profile.root_certificates:
            link["root-certificates"] = self.profile.root_certificates
        document = {"superlink": {"default": self.profile.name, self.profile.name: link}}
        (self.home / "config.toml").write_bytes(tomli_w.dumps(document).encode())

    def _start_superlink(self) -> None:
        command = [processes.program("flower-superlink"), "--insecure", "--simulation", "--isolation", "subprocess"]
        # Another process may take the free port before the SuperLink does: then try again on another port.
        for _ in range(_START_TRIES):
            port = processes.free_port()
            self.address = f"{processes.HOST}:{port}"
            # The caller's working directory stays: the ServerApp inherits it, and relative paths keep their meaning.
            with (self.home / "superlink.log").open("wb") as log:
                self._superlink = subprocess.Popen(
                    [*command, "--host", processes.HOST, "--port", str(port)],
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            with Pace(to_stderr("the SuperLink"), before="starting"):
                while self._superlink.poll() is None:
                    # Another's SuperLink may answer on a port that ours could not take.
                    if _listens(self._superlink.pid, port) and answers(self.address, None):
                        return
                    time.sleep(0.1)
            if "address already in use" not in self._superlink_tail().lower():
                break
        raise RunError(f"The SuperLink ended while starting. {self.home / 'superlink.log'} ends with:\n{self._superlink_tail()}")

    # --- Asking Flower ---

    def _flwr(self, arguments: list[str], timeout_s: float | None = None) -> str:
        """Run the `flwr` command and return what it printed; in its own session, so that a Ctrl-C meant for us does not end it.

        It gives up by itself, after 30 s, on a server that does not answer; on a busy machine it may take as long as it needs.
        """
        waiting = Pace(to_stderr(f"`flwr {arguments[0]}`"), before=f"waiting for {self.address}")
        # `flwr ls` is called again and again, and the run shows its own progress.
        with contextlib.nullcontext() if arguments[0] == "ls" else waiting:
            done = subprocess.run(
                [processes.program("flwr"), *arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                timeout=timeout_s,
                check=False,
            )
        return COLOUR.sub("", done.stdout.decode("utf-8", "replace"))

    def _ask(self, arguments: list[str], timeout_s: float | None = None) -> dict[str, Any]:
        """Return the JSON answer of a `flwr` command, whose exit status is 0 even if it was refused."""
        if self._superlink is not None and self._superlink.poll() is not None:
            code = self._superlink.returncode
            raise RunError(f"The SuperLink has ended (exit status {code}). Its log ends with:\n{self._superlink_tail()}")
        printed = self._flwr([*arguments, "--format", "json"], timeout_s)
        answer = processes.json_object(printed)
        if answer is None or not answer.get("success"):
            words = str(answer["error-message"]) if answer and "error-message" in answer else printed
            reason = "\n".join(line for line in words.splitlines() if line.strip() and not line.startswith("Using SuperLink:"))
            if self.profile.local:  # its last error line has details that the command's answer lacks
                errors = [line for line in self._superlink_tail(10).split("\n") if line.startswith("ERROR")]
                reason += f"\nSuperLink: {errors[-1].partition(':')[2].strip()}" if errors else ""
            raise RunError(f"`flwr {arguments[0]}` was refused:\n{reason}")
        return answer

    def _superlink_tail(self, lines: int = LOG_LINES) -> str:
        try:
            text = (self.home / "superlink.log").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return last_lines("\n".join(line for line in text.split("\n") if "[uvicorn.access]" not in line), lines)


def _listens(pid: int, port: int) -> bool:
    with contextlib.suppress(psutil.Error):
        sockets = psutil.Process(pid).net_connections(kind="tcp")
        return any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in sockets)
    return False
