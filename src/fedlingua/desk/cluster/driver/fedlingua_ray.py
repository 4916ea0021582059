"""Loaded into the process of Flower's simulation engine on a Ray cluster: a machine that is lost costs no message and no run.

Flower gives a message of a lost actor up, and puts the actor back into its pool, where it fails every message after it. Ray calls `survive`
before it connects (its RAY_RUNTIME_ENV_HOOK). The folder of this file is on that process's path; nothing of fedlingua is imported, since
that process imports the run's bundle.
"""

import threading
import time
from logging import WARNING
from typing import Any

import ray
from flwr.app import Context, Message
from flwr.common.constant import PARTITION_ID_KEY
from flwr.server.superlink.fleet.vce.backend.raybackend import RayBackend
from flwr.supercore import log
from ray.exceptions import RayActorError

MOST_LOST = 3
"""Actors that a message may lose; one that ends its process each time is at fault itself."""
_WAIT_S = 0.05
_TAKING = threading.Lock()


def survive(runtime_env: dict[str, Any] | None) -> dict[str, Any] | None:
    """Have messages of lost actors answered by others; the environment of the workers stays as it is."""
    RayBackend.process_message = process_message  # type: ignore[method-assign]
    return runtime_env


def process_message(self: RayBackend, message: Message, context: Context) -> tuple[Message, Context]:
    """Have an idle actor answer the message; if it is lost, drop it and ask another.

    Raises:
        RayActorError: the message has lost three actors, or the last one. RuntimeError: no actor was left for it.
    """
    pool = self.pool
    assert pool is not None, "the engine builds its pool first"
    assert self.app_fn is not None, "and then loads the app"
    job = (self.app_fn, message, str(context.node_config[PARTITION_ID_KEY]), context)
    lost = 0
    while True:
        with _TAKING:
            future = pool.submit(_run, job) if pool.is_actor_available() else None
        if future is None:  # fewer actors than threads, since some were lost
            if not pool.num_actors:
                raise RuntimeError("no actor of the cluster is left")
            time.sleep(_WAIT_S)
            continue
        try:
            _, reply, after = ray.get(future)
        except RayActorError as error:
            with _TAKING:
                del pool._future_to_actor[future]
                pool.num_actors -= 1
            lost += 1
            log(WARNING, "an actor of the cluster was lost, %s are left: %s", pool.num_actors, str(error).split("\n", 1)[0])
            if lost >= MOST_LOST or not pool.num_actors:
                raise
            continue
        except BaseException:
            pool.add_actor_back_to_pool(future)
            raise
        pool.add_actor_back_to_pool(future)
        return reply, after


def _run(actor: Any, *job: Any) -> Any:
    return actor.run.remote(*job)
