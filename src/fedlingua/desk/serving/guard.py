"""What stands before the application: whose requests are taken, how large they may be, and what every answer carries."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from fedlingua.common.errors import without_words
from fedlingua.common.terminal import one_line

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

BODY_S = 20.0
"""Time for a request to come whole."""
DRAINED_BYTES, DRAINED_S = 64 << 20, 5.0
"""Of what is too large so much is read and thrown away, since most clients read no answer before they have said all."""
HEADERS = {
    "content-security-policy": "default-src 'none'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """The application behind it gets whole requests of bounded size.

    hosts: names that a request may be for; None: any. A page elsewhere whose name is made to point here has another one.
    """

    def __init__(self, app: App, body_bytes: int, hosts: Iterable[str] | None = None, body_s: float = BODY_S) -> None:
        self.app, self.body_bytes, self.body_s = app, body_bytes, body_s
        self.hosts = frozenset(hosts) if hosts is not None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        started = False

        async def guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                own = {name.decode("latin-1").lower() for name, _ in message.get("headers", [])}
                more = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name not in own]
                message = {**message, "headers": [*message.get("headers", []), *more]}
            await send(message)

        try:
            await self._taken(scope, receive, guarded)
        except Exception as error:
            print(f"error: {scope['method']} {one_line(scope['path'])}: {without_words(error)}", file=sys.stderr, flush=True)
            if not started:
                await refuse(guarded, 500, "something went wrong in the server, whose log says where")

    async def _taken(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if self.hosts is not None and _name(headers.get(b"host", "")) not in self.hosts:
            await refuse(send, 403, f"this server is for {', '.join(sorted(self.hosts))} alone; it was asked for by another name")
            return
        origin, here = headers.get(b"origin"), f"//{headers.get(b'host', '')}".lower()
        # Behind a proxy that renames the host the browser's own word counts.
        if origin and origin.partition(":")[2].lower() != here and headers.get(b"sec-fetch-site") != "same-origin":
            await refuse(
                send, 403, "this server takes nothing from another site's page (Origin); ask from its own, or from a program"
            )
            return
        told = headers.get(b"content-length", "0")
        too_large = told.isdigit() and int(told) > self.body_bytes
        if too_large and b"expect" in headers:  # it waits to be told to go on, and is not
            await self._too_large(send)
            return
        body = b""
        try:
            async with asyncio.timeout(self.body_s):
                more = not too_large
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > self.body_bytes:
                        too_large, more = True, False
        except TimeoutError:
            await refuse(send, 408, f"the request has not come whole within {self.body_s:g} s", {"connection": "close"})
            return
        if too_large:
            body = b""
            await _drain(receive)
            await self._too_large(send)
            return
        given = False

        async def replayed() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, replayed, send)

    async def _too_large(self, send: Send) -> None:
        wanted = f"a request has at most {self.body_bytes:,} bytes; send fewer sentences at a time"
        await refuse(send, 413, wanted, {"connection": "close"})


async def refuse(send: Send, status: int, what: str, headers: dict[str, str] | None = None) -> None:
    """An answer that says no, in the words of all the others."""
    body = json.dumps({"error": what}, ensure_ascii=False).encode()
    told = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
    fields = [(name.encode(), value.encode()) for name, value in told.items()]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


async def _drain(receive: Receive) -> None:
    left = DRAINED_BYTES
    try:
        async with asyncio.timeout(DRAINED_S):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return


def _name(host: str) -> str:
    """Of a Host header, without the port: [::1]:8000 -> ::1."""
    return (host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]).lower()
