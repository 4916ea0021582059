"""The server's listening socket, opened before anything loads."""

import ipaddress
import os
import socket

from fedlingua.common.errors import ConfigError, DeploymentError


def listen(host: str, port: int) -> socket.socket:
    """Open a socket that already accepts connections, which wait while the model loads. port: 0 takes any free one.

    Raises:
        ConfigError: no such host. DeploymentError: the port is in use, or this user may not open it.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (socket.gaierror, UnicodeError) as error:
        raise ConfigError(
            f"--host {host}: there is no such address ({error}); wanted one of this machine, as 127.0.0.1"
        ) from error
    both = family == socket.AF_INET6  # "::" means all addresses, those of IPv4 too
    try:
        return socket.create_server(address, family=family, backlog=128, dualstack_ipv6=both)
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise DeploymentError(
            f"--host {host} --port {port} cannot be opened ({why}); give another --port, or 0 for any free one"
        ) from error


def is_loopback(listening: socket.socket) -> bool:
    """Return whether only this machine can reach the socket."""
    return ipaddress.ip_address(listening.getsockname()[0].split("%")[0]).is_loopback


def url_of(listening: socket.socket) -> str:
    """Return the URL at which a browser reaches the socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
