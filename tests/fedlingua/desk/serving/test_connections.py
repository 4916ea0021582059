"""Whoever says half a request: let go in time, and in nobody's way. Real sockets on loopback."""

import asyncio
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from starlette.types import Message, Receive, Scope, Send

from fedlingua.desk.cli.serve import _server
from fedlingua.desk.serving import guard
from fedlingua.desk.serving.guard import Guard
from fedlingua.desk.serving.listening import listen

HALF = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
WHOLE = HALF + b"\r\n"
BODY = b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"


async def answers(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        for kind in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{kind}.complete"})
        return
    message: Message = await receive()
    if scope["path"] == "/slow":
        await asyncio.sleep(0.6)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok" if not message.get("more_body") else b"no"})


@contextmanager
def served(body_s: float = 20.0) -> Iterator[int]:
    """The port of a server as `fedlingua serve` makes it, over an application that answers at once."""
    with listen("127.0.0.1", 0) as listening:
        server = _server(Guard(answers, 1000, body_s=body_s))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening.dup()]})
        thread.start()
        ends = time.monotonic() + 20
        while not server.started and time.monotonic() < ends:
            time.sleep(0.01)
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = server.force_exit = True
            thread.join(20)


def healthy(port: int, path: str = "/health") -> float:
    """Seconds until it has answered."""
    began = time.monotonic()
    asked = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    asked.request("GET", path)
    assert asked.getresponse().status == 200
    asked.close()
    return time.monotonic() - began


@pytest.mark.parametrize(
    "said", [b"", b"G", HALF, BODY, WHOLE], ids=["nothing", "a letter", "half a header", "half a body", "idle"]
)
def test_four_hundred_half_open_connections_keep_nobody_out(said: bytes) -> None:
    with served() as port, ExitStack() as held:
        for _ in range(400):
            half = held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            half.sendall(said)
        assert min(healthy(port) for _ in range(3)) < guard.HEADER_S / 2  # the least: other work may share the cores


def test_who_is_being_answered_is_not_let_go_for_them() -> None:
    with served() as port, ExitStack() as held:
        taken: list[float] = []
        asks = threading.Thread(target=lambda: taken.append(healthy(port, "/slow")))
        asks.start()
        time.sleep(0.1)
        for _ in range(300):
            held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
        asks.join(60)
        assert taken


def closes_within(port: int, first: bytes, drip: bytes, limit_s: float) -> bytes:
    """What it said before it closed, while a byte came every 50 ms."""
    heard, ends = b"", time.monotonic() + limit_s
    with socket.create_connection(("127.0.0.1", port), timeout=0.05) as half:
        half.sendall(first)
        while time.monotonic() < ends:
            try:
                half.sendall(drip)
                got = half.recv(4096)
                if not got:
                    return heard
                heard += got
            except TimeoutError:
                continue
            except OSError:
                return heard
    raise AssertionError(f"still open after {limit_s} s")


def test_a_header_that_drips_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "HEADER_S", 0.3)
    with served() as port:
        assert closes_within(port, HALF, b"X: y\r\n", 15.0) == b""
        assert b"200" in closes_within(port, WHOLE + HALF, b"X: y\r\n", 15.0), "the second of a connection too"


def test_a_body_that_drips_is_refused_and_cut_off() -> None:
    with served(body_s=0.4) as port:
        assert b" 408 " in closes_within(port, BODY, b"x", 15.0)


def test_a_connection_between_two_requests_keeps_longer_than_a_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "HEADER_S", 1.0)
    with served() as port:
        asked = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        for pause in (0.0, 1.3):
            time.sleep(pause)
            asked.request("GET", "/health")
            assert asked.getresponse().read() == b"ok"
