"""A connection of `serve`: whoever never says a whole request is let go, and keeps nobody else out."""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_S = 10.0
"""Time for a request's header, which uvicorn gives without end."""
MOST_WAITED_FOR = 256
"""Connections that are to say a request or read an answer; the oldest makes room, where uvicorn's own limit would refuse the next."""


class Connection(H11Protocol):
    """uvicorn's own, with a limit of time and of number on what is half said."""

    header: asyncio.TimerHandle | None = None
    since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._time_header()
        waited_for = [each for each in self.connections if isinstance(each, Connection) and each.is_waited_for()]
        if len(waited_for) > MOST_WAITED_FOR:
            min(waited_for, key=lambda each: each.since).transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._time_header()

    def is_waited_for(self) -> bool:
        """Whether it is still to say a whole request, or to read its answer."""
        silent = self.conn.their_state in (h11.IDLE, h11.SEND_BODY) or self.transport.get_write_buffer_size() > 0
        return silent and not self.transport.is_closing()

    def _time_header(self) -> None:
        if self.conn.their_state is not h11.IDLE and self.header:
            self.header.cancel()
            self.header = None
        elif self.conn.their_state is h11.IDLE and not self.header:
            self.since = self.loop.time()
            self.header = self.loop.call_later(HEADER_S, self.transport.close)
