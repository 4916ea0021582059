"""The socket: had at once, or a clear word why not."""

import socket

import pytest

from fedlingua.common.errors import ConfigError, DeploymentError
from fedlingua.desk.serving.listening import is_loopback, listen, url_of


def test_a_port_of_ones_own_is_listened_at_at_once() -> None:
    with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        assert url_of(listening) == f"http://127.0.0.1:{port}"
        assert is_loopback(listening)
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        with pytest.raises(DeploymentError, match=f"--port {port} cannot be opened .*in use.*; give another --port"):
            listen("127.0.0.1", port)
    listen("127.0.0.1", port).close()


def test_what_is_no_address_of_ours_is_refused() -> None:
    with pytest.raises(ConfigError, match="--host no such name: there is no such address"):
        listen("no such name", 0)
    with pytest.raises(DeploymentError, match=r"--host 192.0.2.1 --port 0 cannot be opened"):
        listen("192.0.2.1", 0)


def test_all_addresses_are_more_than_loopback() -> None:
    """Bound, which nobody can see in this moment, and closed again."""
    with listen("0.0.0.0", 0) as listening:
        assert not is_loopback(listening)
