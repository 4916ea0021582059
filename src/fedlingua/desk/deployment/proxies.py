"""The way from this machine to a server: through the HTTP proxy that the environment names, or directly, as Flower's SuperNode goes.

The variables are read as gRPC reads them (`http_proxy_mapper.cc`); Python's own reading differs in names, case and patterns. Over HTTP,
from flwr 1.40 on, it is Python's.
"""

import base64
import http.client
import ipaddress
import os
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

from fedlingua.desk.processes import beside_proxies, over_grpc

GRPC = ("grpc_proxy", "https_proxy", "http_proxy")
"""Variables that gRPC reads. The first that is set counts, and an empty one says: directly."""
HTTP = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


@dataclass(frozen=True)
class Way:
    """How a server is reached. words: to follow its address in a message; "" where the environment has no part in it.

    variable, sparing: that name the proxy, and the hosts to be reached without it.
    """

    words: str = ""
    variable: str = ""
    sparing: str = ""
    proxy: SplitResult = field(default_factory=lambda: urlsplit(""))

    def connect(self, host: str, port: int, timeout_s: float) -> socket.socket:
        """Return a connection to the server; raise OSError without one."""
        if not self.proxy.hostname:
            return socket.create_connection((host, port), timeout_s)
        tunnel = http.client.HTTPConnection(self.proxy.hostname, self.proxy.port or 443, timeout=timeout_s)
        try:
            tunnel.set_tunnel(host, port, self._authorization())
            tunnel.connect()
        except (OSError, http.client.HTTPException) as error:
            tunnel.close()
            raise OSError(str(error) or type(error).__name__) from error
        return tunnel.sock

    def _authorization(self) -> dict[str, str]:
        user, _, _ = self.proxy.netloc.rpartition("@")
        return {"Proxy-Authorization": f"Basic {base64.b64encode(unquote(user).encode()).decode()}"} if user else {}


def way_to(host: str) -> Way:
    """Return the way that a SuperNode started in this environment takes to a host."""
    environment = {**os.environ, **beside_proxies(os.environ)}
    names = GRPC if over_grpc() else HTTP
    variable = next((name for name in names if name in environment), "")
    if not variable:
        unread = [name for name in map(str.upper, names) if name in environment]
        return Way(f" (directly: gRPC reads {unread[0].lower()}, not {unread[0]})" if unread else "")
    value = environment[variable]
    if not value:
        return Way()
    sparing = "no_grpc_proxy" if over_grpc() and "no_grpc_proxy" in environment else "no_proxy"
    if _is_spared(host, environment[sparing]) if over_grpc() else proxy_bypass_environment(host, {"no": environment[sparing]}):
        return Way(f" (directly, as {sparing} says)")
    proxy = urlsplit(value)
    with suppress(ValueError):  # a port that is no number
        if proxy.scheme == "http" and proxy.hostname:
            return Way(f" through the proxy {proxy.hostname}:{proxy.port or 443} ({variable})", variable, sparing, proxy)
    return Way(f" (directly: {variable} is not http://HOST:PORT, and so not used)")


def _is_spared(host: str, entries: str) -> bool:
    """Return whether gRPC's list of hosts names this one: by its end, or as an address in a network."""
    for entry in filter(None, entries.split(",")):
        name = entry.strip().lower()
        if host.lower().endswith(name):
            return True
        with suppress(ValueError):
            if "/" in name and ipaddress.ip_address(host) in ipaddress.ip_network(name, strict=False):
                return True
    return False
