"""A TCP forwarder on loopback that counts what goes through it: what two programs really say to each other."""

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
UP, DOWN = "up", "down"
CHUNK = 1 << 16


class Forwarder:
    """Passes on every byte between whoever connects to `port` and `to`, as a context manager.

    Up is towards `to`. Bytes are those of the TCP streams: the transport's frames and encryption are in them, headers of packets are not.
    """

    def __init__(self, to: int) -> None:
        self._to = (HOST, to)
        self._lock = threading.Lock()
        self._moved = {UP: 0, DOWN: 0}
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]

    @property
    def moved(self) -> dict[str, int]:
        """Bytes so far, by way."""
        with self._lock:
            return dict(self._moved)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._lock:
            left = [self._listener, *self._open]
        for one in left:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed, at the end
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(self._to)
                except OSError:  # nobody is there: as if nobody were here
                    near.close()
                    continue
                with self._lock:
                    self._open |= {near, far}
                for source, target, way in ((near, far, UP), (far, near, DOWN)):
                    threading.Thread(target=self._pass_on, args=(source, target, way), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, way: str) -> None:
        with contextlib.suppress(OSError):  # one of the two is gone
            while chunk := source.recv(CHUNK):
                with self._lock:  # before it is sent: whoever has a byte finds it counted
                    self._moved[way] += len(chunk)
                target.sendall(chunk)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)
