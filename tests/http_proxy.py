"""An HTTP proxy on loopback that does CONNECT, as those do through which an institution reaches the outside."""

import http.server
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy", "all_proxy", "no_grpc_proxy", "no_proxy")
ALL_VARIABLES = (*VARIABLES, *map(str.upper, VARIABLES))


class HttpProxy(http.server.ThreadingHTTPServer):
    """there: "host:port" that may be reached -> where it really is. asked: what clients wanted. known: their Proxy-Authorization."""

    def __init__(self, there: Mapping[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), _Tunnel)
        self.there, self.asked, self.known = there, list[str](), list[str | None]()
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Tunnel(http.server.BaseHTTPRequestHandler):
    server: HttpProxy

    def do_CONNECT(self) -> None:
        self.server.asked.append(self.path)
        self.server.known.append(self.headers["Proxy-Authorization"])
        if self.path not in self.server.there:
            self.send_error(403)
            return
        host, _, port = self.server.there[self.path].rpartition(":")
        with socket.create_connection((host, int(port))) as far:
            self.send_response(200)
            self.end_headers()
            back = threading.Thread(target=_pass_on, args=(far, self.connection))
            back.start()
            _pass_on(self.connection, far)
            back.join()

    def log_message(self, *_: object) -> None:
        pass


def _pass_on(here: socket.socket, there: socket.socket) -> None:
    with suppress(OSError):
        while data := here.recv(1 << 16):
            there.sendall(data)
    with suppress(OSError):
        there.shutdown(socket.SHUT_WR)


@contextmanager
def http_proxy(there: Mapping[str, str]) -> Iterator[HttpProxy]:
    with HttpProxy(there) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()
