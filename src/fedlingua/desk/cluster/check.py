"""Check a Ray cluster before a run is started on it: it answers, its machines have room, the same libraries and the same folders."""

import json
import logging
import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlingua.common.errors import ConfigError, RunError
from fedlingua.common.processes import last_lines
from fedlingua.runs.folder import library_versions

ADDRESS = re.compile(r"(?P<host>[^\s:/]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})")
DRIVER = Path(__file__).parent / "driver"
"""Folder of the module that Flower's engine loads on a cluster."""
_CONNECT_S, _ANSWER_S = 5.0, 90.0


@dataclass(frozen=True)
class Machine:
    """A machine of a cluster. clients: how many sites can train on it at once. missing: folders that it does not see."""

    name: str
    clients: int
    versions: Mapping[str, str]
    missing: Sequence[str]


def check_address(address: str) -> None:
    """Raise ConfigError unless the address reads HOST:PORT and something listens there. Ray itself would wait for minutes."""
    match = ADDRESS.fullmatch(address)
    if match is None:
        raise ConfigError(f"ray-address = {address!r}: give HOST:PORT, as `ray start --head` prints it, such as 10.0.0.5:6379")
    try:
        socket.create_connection((match["host"].strip("[]"), int(match["port"])), _CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"ray-address = {address!r}: nothing answers there ({error}); start the cluster with `ray start --head --port=6379`, or "
            "leave it out to simulate on this machine alone"
        ) from error


def machines(address: str, cpus: int, gpus: float, folders: Sequence[Path]) -> list[Machine]:
    """Ask the machines of a cluster that have room for a client; in a process of its own, since Ray stays in the one that connects.

    Args:
        cpus, gpus: What a client takes.
        folders: Which the machines have to see.

    Raises:
        RunError: the cluster cannot be used from here, for example because it has another version of Python or Ray.
    """
    command = [sys.executable, "-m", "fedlingua.desk.cluster.check", address, str(cpus), str(gpus), *map(str, folders)]
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": path, "RAY_USAGE_STATS_ENABLED": "0"}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_ANSWER_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise RunError(f"the Ray cluster at {address} does not answer within {_ANSWER_S:.0f} s; see `ray status`") from error
    if done.returncode:
        raise RunError(f"the Ray cluster at {address} cannot be used from here:\n{last_lines(done.stderr, 4)}")
    return [Machine(**each) for each in json.loads(done.stdout.splitlines()[-1])]


def check_cluster(address: str, cpus: int, gpus: float, folders: Sequence[Path]) -> list[Machine]:
    """Return the machines of a cluster on which clients can run.

    Raises:
        ConfigError: nothing answers at the address, no machine has room for a client, or one has other libraries or not the same folders.
        RunError: as `machines` does.
    """
    check_address(address)
    with_room = machines(address, cpus, gpus, folders)
    if not with_room:
        raise ConfigError(
            f"the Ray cluster at {address} has no machine with {cpus} CPUs and {gpus:g} GPUs, which a client takes; give the profile "
            "a smaller cpus-per-node or gpus-per-node"
        )
    here = library_versions()
    for machine in with_room:
        other = [
            f"{name} {version} (here {here[name]})" for name, version in machine.versions.items() if version != here.get(name)
        ]
        if other:
            raise ConfigError(
                f"machine {machine.name} of the Ray cluster has {', '.join(other)}; install the same versions there"
            )
        if machine.missing:
            raise ConfigError(
                f"machine {machine.name} of the Ray cluster does not see {', '.join(machine.missing)}; share it under the same path, for "
                "example by NFS"
            )
    return with_room


def room_for(resources: Mapping[str, float], cpus: int, gpus: float) -> int:
    """Return how many clients a machine with these resources, by Ray's names, takes at once."""
    rooms = [int(resources.get(kind, 0) / takes) for kind, takes in (("CPU", cpus), ("GPU", gpus)) if takes]
    return min(rooms, default=0)


def _ask(address: str, cpus: int, gpus: float, folders: Sequence[str]) -> list[dict[str, Any]]:
    """Connect to the cluster, and return what each machine with room for a client says."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    environment: dict[str, Any] = {"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}}
    ray.init(address=address, runtime_env=environment, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    there = ray.remote(num_cpus=0)(_here)
    asked: list[tuple[str, int, Any]] = []
    for node in ray.nodes():  # type: ignore[no-untyped-call]
        if clients := room_for(node["Resources"] if node["Alive"] else {}, cpus, gpus):
            place = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            asked.append((node["NodeManagerHostname"], clients, there.options(scheduling_strategy=place).remote(folders)))
    return [{"name": name, "clients": clients, **ray.get(answer)} for name, clients, answer in asked]


def _here(folders: Sequence[str]) -> dict[str, Any]:
    """Return this machine's versions, and which folders it does not see."""
    return {"versions": library_versions(), "missing": [folder for folder in folders if not os.path.isdir(folder)]}


if __name__ == "__main__":
    of_cluster, of_cpus, of_gpus, *seen = sys.argv[1:]
    print(json.dumps(_ask(of_cluster, int(of_cpus), float(of_gpus), seen)))
