"""The socket that is listened at, had before anything loads."""

import ipaddress
import os
import socket

from fedlingua.common.errors import ConfigError, DeploymentError

BACKLOG = 128


def listen(host: str, port: int) -> socket.socket:
    """A socket that already accepts connections, which wait while the model loads. port: 0 takes any free one.

    Raises:
        ConfigError: no such host. DeploymentError: the port is in use, or not ours to take.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (socket.gaierror, UnicodeError) as error:
        raise ConfigError(
            f"--host {host}: there is no such address ({error}); wanted one of this machine, as 127.0.0.1"
        ) from error
    both = family == socket.AF_INET6  # "::" is all addresses, those of IPv4 too
    try:
        return socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=both)
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise DeploymentError(
            f"--host {host} --port {port} cannot be opened ({why}); give another --port, or 0 for any free one"
        ) from error


def is_loopback(listening: socket.socket) -> bool:
    """Whether only this machine can reach it."""
    return ipaddress.ip_address(listening.getsockname()[0].split("%")[0]).is_loopback


def url_of(listening: socket.socket) -> str:
    """Where a browser finds it."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
