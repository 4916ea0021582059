"""Messages of lost actors, with Flower's own pool and backend; tests/deploy/test_ray_cluster.py has a cluster that loses a machine."""

import importlib.util
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from flwr.simulation.ray_transport.ray_actor import BasicActorPool
from ray.exceptions import RayActorError

from fedlingua.desk.cli.engine import DRIVER


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


def test_a_message_that_loses_three_actors_is_given_up_and_so_is_one_without_any_left(driver: ModuleType) -> None:
    engine = backend(Actor("last", RayActorError()), *(Actor("lost", RayActorError()) for _ in range(3)))
    with pytest.raises(RayActorError):
        driver.process_message(engine, "train", CONTEXT)
    with pytest.raises(RuntimeError, match="no actor of the cluster is left"):
        driver.process_message(engine, "train", CONTEXT)
