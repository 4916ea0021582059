"""A run's application without a socket, and the same with one."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from starlette.testclient import TestClient

from fedlingua.desk.serving.api import application
from fedlingua.desk.serving.guard import Guard, Limits
from fedlingua.desk.serving.listening import listen, url_of
from fedlingua.desk.serving.models import Models
from fedlingua.desk.translating.decoding import Decoding
from fedlingua.desk.translating.models import RunModels

LIMITS = Limits(sentences=20, characters=200, waiting=8, timeout_s=30.0)


@pytest.fixture(scope="package")
def models(finished_run: Path) -> Models:
    return Models(RunModels(finished_run), Decoding())


@pytest.fixture(scope="package")
def client(models: Models) -> Iterator[TestClient]:
    with TestClient(Guard(application(models, LIMITS), LIMITS.body_bytes), base_url="http://localhost") as made:
        yield made


@pytest.fixture(scope="package")
def address(finished_run: Path) -> Iterator[str]:
    """Of a server in a thread of this process, on a port of its own."""
    app = Guard(application(Models(RunModels(finished_run), Decoding()), LIMITS), LIMITS.body_bytes, ("127.0.0.1",))
    with listen("127.0.0.1", 0) as listening:
        server = uvicorn.Server(uvicorn.Config(app, http="h11", ws="none", log_config=None, access_log=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening.dup()]})
        thread.start()
        ends = time.monotonic() + 30
        while not server.started and time.monotonic() < ends:
            time.sleep(0.02)
        assert server.started
        yield url_of(listening)
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()
