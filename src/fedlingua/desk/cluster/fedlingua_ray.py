"""Loaded into the process of Flower's simulation engine on a Ray cluster: the messages of a lost machine are answered by others.

Flower puts a lost actor back into its pool, where it fails every message after it. Ray calls `survive` before it connects (its
RAY_RUNTIME_ENV_HOOK). Nothing of fedlingua is imported, since that process imports the run's bundle.
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
_COUNTING = threading.Lock()


def survive(runtime_env: dict[str, Any] | None) -> dict[str, Any] | None:
    """Have messages of lost actors answered by others; the environment of the workers stays as it is."""
    RayBackend.process_message = process_message  # type: ignore[method-assign]
    return runtime_env


def process_message(self: RayBackend, message: Message, context: Context) -> tuple[Message, Context]:
    """Have an idle actor answer the message; if it is lost, drop it and ask another, up to `MOST_LOST` of them."""
    pool: Any = self.pool
    job, lost = (self.app_fn, message, str(context.node_config[PARTITION_ID_KEY]), context), 0
    while pool.num_actors:
        try:
            future = pool.submit(lambda actor, *job: actor.run.remote(*job), job)
        except IndexError:  # there are more threads than actors left
            time.sleep(_WAIT_S)
            continue
        try:
            _, reply, after = ray.get(future)
        except RayActorError as error:
            del pool._future_to_actor[future]
            with _COUNTING:
                pool.num_actors -= 1
            log(WARNING, "an actor of the cluster was lost, %s are left: %s", pool.num_actors, error)
            if (lost := lost + 1) == MOST_LOST:
                raise
            continue
        except BaseException:
            pool.add_actor_back_to_pool(future)
            raise
        pool.add_actor_back_to_pool(future)
        return reply, after
    raise RuntimeError("no actor of the cluster is left")
