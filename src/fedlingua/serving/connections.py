"""A connection of `serve`: whoever never says a whole request is let go, and keeps nobody else out."""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_S = 10.0
"""Time for a request's header, which uvicorn gives without end."""
MOST_WAITED_FOR = 256
"""Connections of which the next word is awaited, or that do not read theirs; the longest such one makes room for the next.

uvicorn's own limit of connections would refuse whoever comes after them; of whole requests the batcher takes as many as may wait.
"""


class Connection(H11Protocol):
    """uvicorn's own, with a limit of time and of number on what is half said."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """As uvicorn's, and room is made."""
        super().connection_made(transport)
        self._header: asyncio.TimerHandle | None = None
        self._await_header()
        waited_for = [each for each in self.connections if isinstance(each, Connection) and each.is_waited_for()]
        if len(waited_for) > MOST_WAITED_FOR:
            min(waited_for, key=lambda each: each.since).transport.abort()

    def data_received(self, data: bytes) -> None:
        """As uvicorn's; the time of a header begins with its first byte and ends with its last."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._end_header()
        elif self._header is None:
            self._await_header()

    def connection_lost(self, exc: Exception | None) -> None:
        """As uvicorn's."""
        self._end_header()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """As uvicorn's, which now waits for the next request."""
        self.since = self.loop.time()
        super().on_response_complete()

    def is_waited_for(self) -> bool:
        """Whether it is still to say a whole request, or to read its answer."""
        silent = self.conn.their_state in (h11.IDLE, h11.SEND_BODY) or self.transport.get_write_buffer_size() > 0
        return silent and not self.transport.is_closing()

    def _await_header(self) -> None:
        self.since = self.loop.time()
        self._header = self.loop.call_later(HEADER_S, self.transport.close)

    def _end_header(self) -> None:
        if self._header is not None:
            self._header.cancel()
            self._header = None
