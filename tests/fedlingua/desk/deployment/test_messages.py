"""Messages of Flower's own SuperNode, answered through a site's worker by Flower's own program."""

import contextlib
import hashlib
import io
import os
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import uvicorn
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.supercore.constant import TaskType
from flwr.supercore.fab import Fab
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.main import create_app
from flwr.supernode.nodestate import NodeState, NodeStateFactory
from flwr.supernode.start_client_internal import _insert_message

from fedlingua.consent.bundle import approved, bundle_hash
from fedlingua.desk.deployment import gate, worker
from fedlingua.desk.deployment.site_setup import approve
from fedlingua.desk.deployment.worker import SOCKET, worker_of
from fedlingua.desk.processes import HOST, flower_environment, free_port

SETTINGS = """[project]
name = "tiny"
version = "1.0.0"
license = "Apache-2.0"
[tool.flwr.app]
publisher = "tests"
[tool.flwr.app.components]
serverapp = "tiny_client:app"
clientapp = "tiny_client:app"
"""
CLIENT = """
import os, signal
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
app, before = ClientApp(), []
@app.train()
def train(message, context):
    text = message.content["asked"]["text"]
    if text == "crash" and before:
        os.kill(os.getpid(), signal.SIGKILL)
    if text == "fail":
        raise MemoryError("no room")
    reply = ConfigRecord({"process": os.getpid(), "text": text, "before": list(before), "mark": MARK})
    before.append(text)
    return Message(RecordDict({"reply": reply}), reply_to=message)
"""
FIRST = 'worker.FIRST = ("flwr.supernode.cli.flwr_clientapp", "flwr.clientapp")'
"""A worker that imports Flower alone starts in two seconds."""
SERVE = "worker.serve(Path(os.environ[worker.SOCKET]), int(sys.argv[1]), float(sys.argv[2]))"


def bundle(mark: int) -> bytes:
    files = {"pyproject.toml": SETTINGS, "tiny_client.py": CLIENT.replace("MARK", str(mark))}
    lines = [f"{name},{hashlib.sha256(text.encode()).hexdigest()},{8 * len(text)}" for name, text in files.items()]
    with zipfile.ZipFile(content := io.BytesIO(), "w") as archive:
        for name, text in {**files, ".info/CONTENT": "\n".join(lines)}.items():
            archive.writestr(name, text)
    return content.getvalue()


class Site:
    """A SuperNode's Runtime API without a SuperLink, and the programs that it starts for messages."""

    def __init__(self, folder: Path, state: NodeState, factory: ObjectStoreFactory, port: int) -> None:
        self.folder, self.state, self.store, self.port = folder, state, factory.store(), port
        self.environment = {**flower_environment(folder / "flower"), **os.environ, "FLWR_HOME": str(folder / "flower")}
        self.environment |= {gate.APPROVALS: str(folder / "approved.txt"), gate.REFUSED: str(folder / "bundles")}
        self.asked = 0
        state.set_node_id(7)

    def begin(self, run_id: int, content: bytes) -> None:
        """Make a run known, as a SuperNode does at its first message."""
        run = Run.create_empty(run_id)
        run.fab_id, run.fab_version, run.fab_hash, run.series_id = "tests/tiny", "1.0.0", bundle_hash(content), run_id
        self.state.store_run(run)
        self.state.store_fab(Fab(run.fab_hash, content, {}))
        self.state.set_run_series_context(run_id, Context(run_id, 7, {}, RecordDict(), {}, run_id))

    def answer(self, run_id: int, text: str) -> Message:
        """Put a message in, start Flower's program for it, and return the reply."""
        run, self.asked = self.state.get_run(run_id), self.asked + 1
        assert run
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run_id, 1, self.asked
        content = RecordDict({"asked": ConfigRecord({"text": text, "number": self.asked})})
        message = Message(content, dst_node_id=7, message_type="train")
        message.metadata.__dict__["_run_id"] = run_id
        _insert_message(message, self.state, self.store)
        task = self.state.create_task(TaskType.CLIENT_APP, run_id, run.fab_hash)
        token = self.state.claim_task(task) if task else None
        assert token
        options = [
            "--runtime-api-address",
            f"{HOST}:{self.port}",
            "--insecure",
            "--token",
            token,
            "--parent-pid",
            str(os.getpid()),
        ]
        done = subprocess.run(
            [self.folder / "programs" / gate.CLIENT_APP, *options],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        (reply,) = self.state.get_messages(run_ids=[run_id], is_reply=True) or pytest.fail(done.stderr)
        if reply.has_content():
            from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

            tree = self.store.get_object_tree(reply.metadata.message_id)
            names, todo = [], [tree]
            while todo:
                names.append(todo[0].object_id)
                todo = [*todo[1:], *todo[0].children]
            reply = inflate_object_from_contents(tree.object_id, {name: self.store.get(name) for name in names})  # type: ignore[type-var,misc]
        return reply

    def told(self, run_id: int, text: str) -> dict[str, object]:
        return dict(self.answer(run_id, text).content.config_records["reply"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder, port, store = tmp_path_factory.mktemp("site"), free_port(), ObjectStoreFactory()
    factory = NodeStateFactory(store)
    server = uvicorn.Server(uvicorn.Config(create_app(factory), host=HOST, port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    found = Site(folder, factory.state(), store, port)
    source = f"import os, sys; from pathlib import Path; from fedlingua.desk.deployment import worker; {FIRST}; {SERVE}"
    environment = {**found.environment, "PYTHONPATH": str(Path(gate.__file__).parents[3])}
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.setattr(worker, "command", lambda: [sys.executable, "-c", source])
        running = stack.enter_context(worker_of(environment, folder, 10.0))
        assert running
        socket = Path(running.environment[SOCKET])
        running.wait_until(lambda: socket.exists() and server.started, "its socket", 100.0)
        gate.write_programs(folder / "programs", socket)
        yield found
    server.should_exit = True
    thread.join(30)


def test_one_process_answers_the_messages_of_a_run_and_each_run_and_bundle_has_its_own(site: Site) -> None:
    one, other = bundle(1), bundle(2)
    for content in (one, other):
        approve(site.folder / "approved.txt", bundle_hash(content))
    site.begin(1, one)
    first = site.told(1, "a")
    assert first == {"process": first["process"], "text": "a", "before": [], "mark": 1}
    assert site.told(1, "b") == {**first, "text": "b", "before": ["a"]}
    assert site.told(1, "c") == {**first, "text": "c", "before": ["a", "b"]}
    threads = psutil.Process(int(str(first["process"]))).num_threads()
    assert site.told(1, "d")["process"] == first["process"]
    assert psutil.Process(int(str(first["process"]))).num_threads() <= threads
    site.begin(2, one)
    second = site.told(2, "a")
    assert second["before"] == []
    site.begin(3, other)
    third = site.told(3, "a")
    assert (third["before"], third["mark"]) == ([], 2)
    assert len({first["process"], second["process"], third["process"]}) == 3


def test_a_message_whose_process_crashes_is_answered_by_another_under_the_same_token(site: Site) -> None:
    approve(site.folder / "approved.txt", bundle_hash(content := bundle(3)))
    site.begin(4, content)
    first = site.told(4, "a")
    crashed = site.told(4, "crash")
    assert (crashed["text"], crashed["before"]) == ("crash", [])
    assert crashed["process"] != first["process"]
    os.kill(int(str(crashed["process"])), signal.SIGKILL)
    assert site.told(4, "b")["before"] == []


def test_an_error_is_replied_and_its_process_answers_no_other_message(site: Site) -> None:
    approve(site.folder / "approved.txt", bundle_hash(content := bundle(4)))
    site.begin(5, content)
    first = site.told(5, "a")
    assert "MemoryError" in site.answer(5, "fail").error.reason
    assert site.told(5, "b")["process"] != first["process"]


def test_a_bundle_that_is_struck_off_the_list_is_not_run_by_the_process_that_has_it(site: Site) -> None:
    approve(site.folder / "approved.txt", bundle_hash(content := bundle(5)))
    site.begin(6, content)
    site.told(6, "a")
    left = approved(site.folder / "approved.txt") - {bundle_hash(content)}
    (site.folder / "approved.txt").write_text("".join(f"{name}\n" for name in left))
    assert "has not approved the bundle" in site.answer(6, "b").error.reason
