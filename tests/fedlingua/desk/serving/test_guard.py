"""What comes before the application: size, time, name, and a log without text."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from fedlingua.desk.serving import guard
from fedlingua.desk.serving.guard import Guard, checked_names

LIMIT = 100


class App:
    """Answers with what it was sent."""

    def __init__(self, fails: bool = False) -> None:
        self.got: list[bytes] = []
        self.fails = fails

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        assert not message["more_body"]
        self.got.append(message["body"])
        status = 500 if self.fails else 200
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-security-policy", b"own")]})
        await send({"type": "http.response.body", "body": b"" if self.fails else message["body"]})
        if self.fails:  # answered already, as FastAPI does it
            raise ValueError("the patient's name is Anna")


def asked(
    guarded: Guard, chunks: Iterable[bytes], headers: dict[str, str] | None = None, waits: bool = False
) -> tuple[int, dict[str, str], str, int]:
    """(status, headers, body, chunks that were read); waits: after the chunks nothing comes any more."""
    left, sent, read = list(chunks), list[Message](), 0

    async def receive() -> Message:
        nonlocal read
        if waits and not left:
            await asyncio.sleep(60)
        read += 1
        return {"type": "http.request", "body": left.pop(0) if left else b"", "more_body": bool(left) or waits}

    async def send(message: Message) -> None:
        sent.append(message)

    told = {"host": "localhost:8000", **(headers or {})}
    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "path": "/v1/translate",
        "headers": [(name.encode(), value.encode()) for name, value in told.items()],
    }
    asyncio.run(guarded(scope, receive, send))
    start = sent[0]
    fields = {name.decode().lower(): value.decode() for name, value in start["headers"]}
    return start["status"], fields, b"".join(one.get("body", b"") for one in sent[1:]).decode(), read


def test_a_request_comes_whole_with_headers_that_the_answer_may_have_of_its_own() -> None:
    app = App()
    status, headers, body, _ = asked(Guard(app, LIMIT), [b"a" * 60, b"b" * 40])
    assert (status, body, app.got) == (200, "a" * 60 + "b" * 40, [b"a" * 60 + b"b" * 40])
    assert (headers["x-content-type-options"], headers["content-security-policy"]) == ("nosniff", "own")


@pytest.mark.parametrize("told", [True, False])
def test_too_large_a_request_is_refused_and_never_held_in_memory(told: bool) -> None:
    app, chunks = App(), [b"x" * 60] * 1000
    status, headers, body, read = asked(Guard(app, LIMIT), chunks, {"content-length": "60000"} if told else {})
    assert (status, app.got, headers["connection"]) == (413, [], "close")
    assert json.loads(body) == {"error": "a request has at most 100 bytes; send fewer sentences at a time"}
    assert read == 1000  # thrown away, since most clients listen only once they have said all


def test_who_asks_before_sending_too_much_is_refused_before_it_is_sent() -> None:
    status, _, _, read = asked(Guard(App(), LIMIT), [b"x" * 60] * 1000, {"content-length": "60000", "expect": "100-continue"})
    assert (status, read) == (413, 0)


def test_what_never_ends_is_drained_only_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "DRAINED_BYTES", 600)
    status, _, _, read = asked(Guard(App(), LIMIT), [b"x" * 60] * 1000)
    assert (status, read) == (413, 12)


def test_a_request_that_does_not_come_is_given_up() -> None:
    app = App()
    status, headers, body, _ = asked(Guard(app, LIMIT, body_s=0.05), [b"x"], waits=True)
    assert (status, headers["connection"], app.got) == (408, "close", [])
    assert "did not arrive" in body


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8000", 200),
        ("LOCALHOST", 200),
        ("[::1]:8000", 200),
        ("evil.example", 403),
        ("", 403),
        ("localhost.evil.example:8000", 403),
    ],
)
def test_a_page_elsewhere_that_points_its_name_here_is_sent_away(host: str, status: int) -> None:
    assert asked(Guard(App(), LIMIT, ["localhost", "::1"]), [b"x"], {"host": host})[0] == status


def test_behind_a_proxy_that_keeps_its_name_the_page_works_under_that_name() -> None:
    kept = {"host": "translate.example.org", "origin": "https://translate.example.org"}
    assert asked(Guard(App(), LIMIT, ["localhost", *checked_names(["Translate.Example.org"])]), [b"x"], kept)[0] == 200
    status, _, body, _ = asked(Guard(App(), LIMIT, ["localhost"]), [b"x"], kept)
    assert (status, "--host-name" in body) == (403, True)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://localhost:8000"}, 200),
        ({"origin": "https://LOCALHOST:8000"}, 200),  # a proxy before it has the certificate
        ({"origin": "https://translate.example", "sec-fetch-site": "same-origin"}, 200),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "https://evil.example", "sec-fetch-site": "cross-site"}, 403),
        ({"origin": "http://localhost:3000", "sec-fetch-site": "same-site"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "null", "host": ""}, 403),
    ],
)
def test_a_page_of_another_site_is_sent_away(headers: dict[str, str], status: int) -> None:
    app = App()
    assert asked(Guard(app, LIMIT), [b"x"], headers)[0] == status
    assert len(app.got) == (status == 200)


def test_what_fails_inside_is_logged_without_its_words(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, body, _ = asked(Guard(App(fails=True), LIMIT), [b"Anna"])
    log = capsys.readouterr().err
    assert status == 500
    assert "error: POST /v1/translate: ValueError at guard.py:" in log
    assert "Anna" not in log + body


def test_no_other_protocol_gets_through() -> None:
    app = App()

    async def never() -> Message:
        raise AssertionError

    async def unsaid(message: Message) -> None:
        raise AssertionError

    asyncio.run(Guard(app, LIMIT)({"type": "websocket"}, never, unsaid))
    assert app.got == []
