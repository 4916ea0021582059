"""What is asked of a Ray cluster before a run starts on it."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fedlingua.common.errors import ConfigError, RunError
from fedlingua.desk.cluster import check
from fedlingua.desk.cluster.check import Machine, check_address, check_cluster, machines, room_for
from fedlingua.runs.folder import library_versions

Ready = Callable[..., list[Machine]]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Machine]]:
    """Ask a cluster of these machines."""

    def ask(*found: Machine) -> list[Machine]:
        monkeypatch.setattr(check, "check_address", lambda address: None)
        monkeypatch.setattr(check, "machines", lambda *asked: list(found))
        return check_cluster("10.0.0.5:6379", 2, 0.0, [Path("/shared")])

    return ask


def machine(name: str = "one", clients: int = 4, missing: tuple[str, ...] = (), **other: str) -> Machine:
    return Machine(name, clients, {**library_versions(), **other}, missing)


@pytest.mark.parametrize("address", ["", "auto", "ray://10.0.0.5:10001", "10.0.0.5", "10.0.0.5:port"])
def test_an_address_names_a_host_and_a_port(address: str) -> None:
    with pytest.raises(ConfigError, match="give HOST:PORT"):
        check_address(address)


def test_an_address_where_nothing_listens_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match=r"127.0.0.1:1.*nothing answers there"):
        check_address("127.0.0.1:1")
    with pytest.raises(ConfigError, match="nothing answers there"):
        check_address("127.0.0.1:99999")


@pytest.mark.parametrize(
    ("resources", "cpus", "gpus", "clients"),
    [
        ({"CPU": 5.0}, 2, 0.0, 2),
        ({"CPU": 8.0, "GPU": 1.0}, 1, 0.25, 4),
        ({"CPU": 1.0, "GPU": 4.0}, 2, 1.0, 0),
        ({"CPU": 8.0}, 1, 1.0, 0),
        ({}, 1, 0.0, 0),
    ],
)
def test_a_machine_takes_as_many_clients_as_its_cores_and_gpus_allow(
    resources: dict[str, float], cpus: int, gpus: float, clients: int
) -> None:
    assert room_for(resources, cpus, gpus) == clients


def test_a_cluster_without_room_for_a_client_is_refused(cluster: Ready) -> None:
    assert [each.name for each in cluster(machine("one"), machine("two"))] == ["one", "two"]
    with pytest.raises(ConfigError, match="no machine with 2 CPUs and 0 GPUs"):
        cluster()


def test_why_a_cluster_cannot_be_used_is_told_in_rays_words(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = "Traceback\nRuntimeError: Version mismatch: The cluster was started with:\n    Ray: 2.0.0\n    Python: 3.9.1"
    monkeypatch.setattr(subprocess, "run", lambda command, **how: subprocess.CompletedProcess(command, 1, "", ray))
    with pytest.raises(RunError, match=r"(?s)cluster at 10\.0\.0\.5:6379 cannot be used from here:.*Python: 3\.9\.1"):
        machines("10.0.0.5:6379", 1, 0.0, [])


def test_a_cluster_that_does_not_answer_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], timeout: float, **how: object) -> None:
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(RunError, match="does not answer within 90 s; see `ray status`"):
        machines("10.0.0.5:6379", 1, 0.0, [])


def test_another_version_on_a_machine_is_refused_with_both(cluster: Ready) -> None:
    with pytest.raises(
        ConfigError, match=rf"machine two .* has torch 1\.0 \(here {library_versions()['torch']}".replace("+", r"\+")
    ):
        cluster(machine("one"), machine("two", torch="1.0"))


def test_a_folder_that_a_machine_does_not_see_is_named(cluster: Ready) -> None:
    with pytest.raises(ConfigError, match=r"machine two .* does not see /shared; share it"):
        cluster(machine("one"), machine("two", missing=("/shared",)))
