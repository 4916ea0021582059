"""Messages of lost actors, with Flower's own pool and backend; and a run on a cluster that loses a machine."""

import contextlib
import importlib.util
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import psutil
import pytest
from flwr.simulation.ray_transport.ray_actor import BasicActorPool
from ray.exceptions import RayActorError

from fedlingua.common.errors import ConfigError, RunError
from fedlingua.common.files import APP_DIR
from fedlingua.common.processes import HOST, free_port, program
from fedlingua.desk.cluster.check import DRIVER, Machine, check_address, machines
from fedlingua.runs.folder import RunFolder


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, as Flower's engine loads it; an object reference is a function here."""
    spec = importlib.util.spec_from_file_location("fedlingua_ray", DRIVER / "fedlingua_ray.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module.ray, "get", lambda answer: answer())
    return module


class Actor:
    """Answers its own name, raises, or is lost from one message on."""

    def __init__(self, name: str, error: BaseException | None = None) -> None:
        self.name, self.error, self.asked = name, error, 0
        self.run = SimpleNamespace(remote=self._run)

    def _run(self, app: object, message: str, cid: str, context: object) -> Callable[[], Any]:
        self.asked += 1

        def answer() -> tuple[str, str, object]:
            if self.error is not None:
                raise self.error
            return cid, f"{message} by {self.name}", context

        return answer


def backend(*actors: Actor) -> Any:
    pool = BasicActorPool.__new__(BasicActorPool)
    pool.pool, pool.num_actors, pool._future_to_actor = list(actors), len(actors), {}
    return SimpleNamespace(pool=pool, app_fn=lambda: None)


CONTEXT: Any = SimpleNamespace(node_config={"partition-id": 3})


def test_a_message_of_a_lost_actor_is_answered_by_another_and_the_lost_one_asked_no_more(driver: ModuleType) -> None:
    lost, well = Actor("lost", RayActorError()), Actor("well")
    engine = backend(well, lost)  # the pool hands out the last one first
    assert driver.process_message(engine, "train", CONTEXT) == ("train by well", CONTEXT)
    assert driver.process_message(engine, "evaluate", CONTEXT) == ("evaluate by well", CONTEXT)
    assert (lost.asked, well.asked, engine.pool.pool, engine.pool.num_actors) == (1, 2, [well], 1)


def test_an_error_of_the_app_is_the_messages_own_and_its_actor_stays(driver: ModuleType) -> None:
    failing = Actor("failing", ValueError("no text"))
    engine = backend(failing)
    with pytest.raises(ValueError, match="no text"):
        driver.process_message(engine, "train", CONTEXT)
    assert (engine.pool.pool, failing.asked) == ([failing], 1)


def test_a_message_that_loses_three_actors_is_given_up(driver: ModuleType) -> None:
    engine = backend(Actor("well"), *(Actor("lost", RayActorError()) for _ in range(3)))
    with pytest.raises(RayActorError):
        driver.process_message(engine, "train", CONTEXT)
    assert driver.process_message(engine, "evaluate", CONTEXT)[0] == "evaluate by well"


def test_without_any_actor_left_the_engine_is_told(driver: ModuleType) -> None:
    engine = backend(Actor("lost", RayActorError()))
    with pytest.raises(RayActorError):
        driver.process_message(engine, "train", CONTEXT)
    with pytest.raises(RuntimeError, match="no actor of the cluster is left"):
        driver.process_message(engine, "train", CONTEXT)


def test_messages_wait_where_threads_outnumber_the_actors_left(driver: ModuleType) -> None:
    engine, answers = backend(Actor("well")), []
    actor = engine.pool.pool.pop()  # busy
    thread = threading.Thread(target=lambda: answers.append(driver.process_message(engine, "train", CONTEXT)[0]))
    thread.start()
    thread.join(0.2)
    assert not answers
    engine.pool.pool.append(actor)
    thread.join(10)
    assert answers == ["train by well"]


class Machines:
    """Nodes of a Ray cluster with a CPU each, on loopback; each ends with the processes that it started."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.address = folder, f"{HOST}:{free_port()}"
        self.nodes: list[subprocess.Popen[bytes]] = []
        self.start("--head", f"--port={self.address.rpartition(':')[2]}", "--include-dashboard=false", f"--temp-dir={folder}")

    def start(self, *options: str) -> None:
        common = [
            f"--node-ip-address={HOST}",
            "--num-cpus=1",
            "--object-store-memory=80000000",
            "--disable-usage-stats",
            "--block",
        ]
        with (self.folder / f"node-{len(self.nodes)}.log").open("wb") as log:
            command = [program("ray"), "start", *common, *options]
            self.nodes.append(subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "RAY_ADDRESS": ""}))

    def wait(self) -> None:
        """Until all nodes have joined."""
        ends = time.monotonic() + 120
        while len(self.joined()) < len(self.nodes):
            assert time.monotonic() < ends, [file.read_text() for file in sorted(self.folder.glob("node-*.log"))]
            time.sleep(0.5)

    def joined(self) -> list[Machine]:
        try:
            check_address(self.address)
            return machines(self.address, 1, 0.0, [self.folder])
        except (ConfigError, RunError):
            return []

    def kill(self, number: int) -> None:
        """End a node at once, as a machine that loses its power."""
        top = psutil.Process(self.nodes[number].pid)
        for process in [*top.children(recursive=True), top]:
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.nodes[number].wait()


@pytest.fixture
def three_machines() -> Iterator[Machines]:
    with tempfile.TemporaryDirectory(prefix="fl-", dir="/tmp") as folder:  # paths of Ray's sockets have to be short
        cluster = Machines(Path(folder))
        try:
            cluster.wait()
            for _ in range(2):  # one after the other: two that start at once on one machine take each other's ports
                cluster.start(f"--address={cluster.address}")
                cluster.wait()
            yield cluster
        finally:
            for number in reversed(range(len(cluster.nodes))):
                if cluster.nodes[number].poll() is None:
                    cluster.kill(number)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_machine_killed_in_the_middle_of_a_run_costs_no_tensor(three_machines: Machines, tmp_path: Path) -> None:
    def command(name: str, *more: str) -> list[str]:
        keys = [f"--set={key}" for key in ("rounds=4", "keep.choose=false", "score-split=dev")]
        return [
            program("fedlingua"),
            "run",
            "experiments/demo.toml",
            *keys,
            "--to",
            str(tmp_path / name),
            *more,
        ]

    with subprocess.Popen(command("cluster", "--ray-address", three_machines.address), cwd=APP_DIR) as running:
        rounds = tmp_path / "cluster" / "rounds.jsonl"
        while running.poll() is None and (not rounds.is_file() or len(rounds.read_text().splitlines()) < 3):
            time.sleep(0.1)
        three_machines.kill(1)
        assert running.wait() == 0
    assert subprocess.run(command("here"), cwd=APP_DIR, check=False).returncode == 0
    there, here = (RunFolder(tmp_path / name) for name in ("cluster", "here"))
    assert there.checkpoints.rounds() == here.checkpoints.rounds()
    last = here.checkpoints.rounds()[-1]
    for file in sorted((here.checkpoints.directory / f"{last:04d}").glob("*.safetensors")):
        assert file.read_bytes() == (there.checkpoints.directory / f"{last:04d}" / file.name).read_bytes(), file.name
    assert there.read("scores.json")["sites"] == here.read("scores.json")["sites"]
