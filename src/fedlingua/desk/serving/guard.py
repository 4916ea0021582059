"""Guard the application: limits on time and size, permitted hosts and origins, and headers of every reply.

uvicorn's own limits are used where they suffice: the bytes of a header (the default h11_max_incomplete_event_size), the pause
between two requests (timeout_keep_alive), the wait at shutdown (timeout_graceful_shutdown). It limits neither the time of a
header or a body nor the size of a body. Its limit_concurrency answers 503 to every further connection, so 400 that never send a
whole request would keep everybody out; here the oldest is closed. Starlette checks Host, but neither Origin nor sizes.
"""

import asyncio
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

import h11
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from typer import Option
from uvicorn.protocols.http.h11_impl import H11Protocol

from fedlingua.common.errors import ConfigError, without_words
from fedlingua.common.terminal import one_line

HEADER_S = 10.0
"""Time for a request's header to arrive."""
MOST_WAITED_FOR = 256
"""Most connections that still send a request or read a reply; beyond that number the oldest is closed."""
BODY_S = 20.0
"""Time for a request's body to arrive."""
DRAINED_BYTES, DRAINED_S = 64 << 20, 5.0
"""How much of a too large body is read and discarded, since most clients read no reply before they have sent all."""
HEADERS = {
    "content-security-policy": "default-src 'none'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
CLOSE = {"connection": "close"}
HOST_NAME = re.compile(r"[\w.-]+", re.ASCII)


@dataclass(frozen=True)
class Limits:
    """Limits of a request; options of `fedlingua serve`."""

    sentences: Annotated[int, Option("--max-sentences", min=1, help="Most sentences in a request.")] = 100
    characters: Annotated[int, Option("--max-characters", min=1, help="Most characters in a sentence.")] = 2000
    waiting: Annotated[int, Option("--max-waiting", min=1, help="Most waiting requests; further ones get status 503.")] = 64
    timeout_s: Annotated[
        float, Option("--timeout", min=0.1, metavar="SECONDS", help="Seconds a request may wait; then it gets status 504.")
    ] = 60.0

    @property
    def body_bytes(self) -> int:
        """Largest body of a request, at least 1 MiB: in JSON an escaped character takes up to 6 bytes."""
        return max(1 << 20, 6 * self.sentences * self.characters)


class Connection(H11Protocol):
    """uvicorn's connection, with limits on the time for a header and on the number of unfinished requests."""

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
        """Return whether the client still has to send a whole request, or to read its reply."""
        silent = self.conn.their_state in (h11.IDLE, h11.SEND_BODY) or self.transport.get_write_buffer_size() > 0
        return silent and not self.transport.is_closing()

    def _time_header(self) -> None:
        if self.conn.their_state is not h11.IDLE and self.header:
            self.header.cancel()
            self.header = None
        elif self.conn.their_state is h11.IDLE and not self.header:
            self.since = self.loop.time()
            self.header = self.loop.call_later(HEADER_S, self.transport.close)


def checked_names(names: Iterable[str]) -> list[str]:
    """Return host names as a request's Host has them, without its port: in lower case, and letters beyond ASCII as `xn--`."""
    checked = list[str]()
    for name in names:
        try:
            checked.append(name.encode("idna").decode("ascii").lower())
        except UnicodeError:
            checked.append("")
        if not HOST_NAME.fullmatch(checked[-1]):
            raise ConfigError(
                f"--host-name {name!r}; wanted a name alone, such as translate.example.org, without https:// or a port"
            )
    return checked


class Guard:
    """Middleware that passes only whole requests of bounded size on to the application.

    hosts: names that a request's Host may have; None: any. A page of another site whose name is made to point here sends that name.
    """

    def __init__(self, app: ASGIApp, body_bytes: int, hosts: Iterable[str] | None = None, body_s: float = BODY_S) -> None:
        self.app, self.body_bytes, self.body_s = app, body_bytes, body_s
        self.hosts = frozenset(hosts) if hosts is not None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            headers = Headers(scope=scope)
            self._check_sender(headers)
            body = await self._body(headers, receive)
            if body is None:
                return
            request: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

            async def replayed() -> Message:
                """Replay the received request, then pass on what follows."""
                return request.pop() if request else await receive()

            await self.app(scope, replayed, guarded)
        except HTTPException as refused:  # by the guard itself; the application answers its own
            await JSONResponse({"error": refused.detail}, refused.status_code, refused.headers)(scope, receive, guarded)
        except Exception as error:
            print(f"error: {scope['method']} {one_line(scope['path'])}: {without_words(error)}", file=sys.stderr, flush=True)

    def _check_sender(self, headers: Headers) -> None:
        host = headers.get("host", "")
        # Without the port: [::1]:8000 -> ::1.
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if self.hosts is not None and name.lower() not in self.hosts:
            names = ", ".join(sorted(self.hosts))
            raise HTTPException(
                403, f"this server answers only to {names}; use one of these, or start it with the other name (--host-name)"
            )
        origin = headers.get("origin")
        # Behind a proxy that changes Host, the browser's Sec-Fetch-Site decides.
        if origin and origin.partition(":")[2].lower() != f"//{host}".lower() and headers.get("sec-fetch-site") != "same-origin":
            raise HTTPException(
                403, "this server refuses requests from another site's page (Origin); use its own page, or a program"
            )

    async def _body(self, headers: Headers, receive: Receive) -> bytes | None:
        """Receive the whole body; None if the client has disconnected."""
        wanted = f"a request has at most {self.body_bytes:,} bytes; send fewer sentences at a time"
        too_large = HTTPException(413, wanted, CLOSE)
        length = headers.get("content-length", "0")
        is_too_large = length.isdigit() and int(length) > self.body_bytes
        if is_too_large and "expect" in headers:  # the client waits for 100 Continue, which it does not get
            raise too_large
        body, more = b"", not is_too_large
        try:
            async with asyncio.timeout(self.body_s):
                while more and len(body) <= self.body_bytes:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
        except TimeoutError:
            raise HTTPException(408, f"the request did not arrive within {self.body_s:g} s", CLOSE) from None
        if is_too_large or len(body) > self.body_bytes:
            del body
            await _drain(receive)
            raise too_large
        return body


async def _drain(receive: Receive) -> None:
    left = DRAINED_BYTES
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAINED_S):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
