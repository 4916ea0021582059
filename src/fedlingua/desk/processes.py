"""Processes of Flower's programs: their environment, and how to find and end them."""

import contextlib
import errno
import json
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

from fedlingua.common.errors import DeploymentError, RunError

HOST = "127.0.0.1"


def flower_environment(home: Path) -> dict[str, str]:
    """Return the environment of Flower's programs; `home` is FLWR_HOME, so the user's ~/.flwr is neither read nor written."""
    # SuperLink and SuperExec look for the programs that they start on the PATH.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {
        **os.environ,
        **beside_proxies(os.environ),
        "PATH": path,
        "FLWR_HOME": str(home),
        # Otherwise Flower makes a second environment of several GB for the app.
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "PYTHONUNBUFFERED": "1",
    }


def over_grpc() -> bool:
    """Return whether SuperNodes speak gRPC, as up to flwr 1.39. From 1.40 they speak HTTP, on the same port as the control API."""
    major, minor = version("flwr").split(".")[:2]
    return (int(major), int(minor)) < (1, 40)


def beside_proxies(environment: Mapping[str, str]) -> dict[str, str]:
    """Return variables that keep loopback traffic off proxies: Flower's programs speak to each other there, and gRPC spares no address."""
    others = environment.get("no_proxy", environment.get("NO_PROXY", ""))
    names = {"no_proxy": others, "NO_PROXY": others}
    if "no_grpc_proxy" in environment:  # gRPC then reads no other
        names["no_grpc_proxy"] = environment["no_grpc_proxy"]
    return {name: ",".join(filter(None, [value, HOST, "localhost"])) for name, value in names.items()}


def marked(variable: str, value: str) -> list[psutil.Process]:
    """Return this user's other processes with variable=value in their environment, even if they changed session or lost their parent."""
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.uids().real == os.getuid() and process.environ().get(variable) == value:
                processes.append(process)
    return processes


def program(name: str) -> str:
    """Return the path of the command beside this Python, else of that on the PATH; raise RunError without one."""
    beside = Path(sys.executable).parent / name
    path = str(beside) if beside.exists() else shutil.which(name)
    if path is None:
        raise RunError(f"The command `{name}` is not installed beside {sys.executable}; install flwr[simulation].")
    return path


def check_free(address: str, where: str) -> None:
    """Raise DeploymentError if no server could listen on the address, host:port, now."""
    host, _, port = address.rpartition(":")
    try:
        family, kind, _, _, place = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except PermissionError as error:
        raise DeploymentError(
            f"{where} {address!r}: this user may not listen on port {port}; give one of 1024 or above"
        ) from error
    except OSError as error:
        reason = "the port is in use" if error.errno == errno.EADDRINUSE else error.strerror
        raise DeploymentError(f"{where} {address!r}: {reason}; end the other program, or give another host:port") from error


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def json_object(printed: str) -> dict[str, Any] | None:
    """Return the JSON object in a command's output, which may have warnings around it; None without one."""
    start, end = printed.find("{"), printed.rfind("}")
    try:
        content = json.loads(printed[start : end + 1])
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


def end(processes: Iterable[psutil.Process], grace_s: float, hurry: threading.Event | None = None) -> None:
    """Send SIGTERM to all, then SIGKILL to those alive after `grace_s` or once `hurry` is set; psutil detects reused pids."""
    alive = list(processes)
    if grace_s:
        _send(alive, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while alive and time.monotonic() < deadline and not (hurry and hurry.is_set()):
        alive = psutil.wait_procs(alive, timeout=0.1)[1]
    _send(alive, signal.SIGKILL)
    psutil.wait_procs(alive, timeout=5.0)


def end_marked(
    variable: str, value: str, grace_s: float, hurry: threading.Event | None = None, also: Iterable[psutil.Process] = ()
) -> None:
    """End the processes of `marked` and those of `also`; then look again until none that was being started meanwhile is left."""
    end({*also, *marked(variable, value)}, grace_s, hurry)
    for _ in range(10):
        if not (left := marked(variable, value)):
            break
        end(left, 0.0)


def _send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)


def leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


@contextmanager
def signals_held() -> Iterator[threading.Event]:
    """Let signals that would interrupt a clean-up set the yielded event instead."""
    hurry = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield hurry
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda *_: hurry.set()) for number in numbers}
    try:
        yield hurry
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
