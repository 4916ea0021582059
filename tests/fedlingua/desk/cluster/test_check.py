"""What is asked of a Ray cluster before a run starts on it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fedlingua.common.errors import ConfigError
from fedlingua.desk.cluster import check
from fedlingua.desk.cluster.check import Machine, check_address, check_cluster
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


def test_machines_without_room_for_a_client_are_left_out(cluster: Ready) -> None:
    assert [each.name for each in cluster(machine("head", 0, torch="1.0"), machine("one"))] == ["one"]
    with pytest.raises(ConfigError, match="no machine with 2 CPUs and 0 GPUs"):
        cluster(machine("head", 0))


def test_another_version_on_a_machine_is_refused_with_both(cluster: Ready) -> None:
    with pytest.raises(
        ConfigError, match=rf"machine two .* has torch 1\.0 \(here {library_versions()['torch']}".replace("+", r"\+")
    ):
        cluster(machine("one"), machine("two", torch="1.0"))


def test_a_folder_that_a_machine_does_not_see_is_named(cluster: Ready) -> None:
    with pytest.raises(ConfigError, match=r"machine two .* does not see /shared; share it"):
        cluster(machine("one"), machine("two", missing=("/shared",)))
