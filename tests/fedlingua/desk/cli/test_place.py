"""Where a simulation runs."""

import socket

import pytest

from fedlingua.common.errors import ConfigError
from fedlingua.desk.cli.profile import ready_profile


def test_a_cluster_is_taken_where_something_listens_at_its_address() -> None:
    assert ready_profile("simulation", "", jobs=4).ray_address == ""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert ready_profile("simulation-gpu", address).ray_address == address


@pytest.mark.parametrize("address", ["auto", "ray://10.0.0.5:10001/", "10.0.0.5:port", "127.0.0.1:1", "127.0.0.1:99999"])
def test_an_address_where_nothing_listens_is_refused_at_once(address: str) -> None:
    with pytest.raises(ConfigError, match=r"nothing answers there .*; give HOST:PORT"):
        ready_profile("simulation", address)


def test_runs_side_by_side_are_refused_on_a_cluster() -> None:
    with pytest.raises(ConfigError, match=r"--jobs 2: a run takes all of the Ray cluster a:1; leave --jobs out"):
        ready_profile("simulation", "a:1", jobs=2)
