"""MLflow: one run in the store that its own environment names (MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME), else in its default one."""

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

# Its own retries would outlast a run's end; and nothing here is for its makers.
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

from mlflow.entities import Metric, Param, RunTag
from mlflow.tracking import MlflowClient

from fedlingua.desk.tracking.tracker import PROJECT, About, Status, Tracker

STATUS: Mapping[Status, str] = {"completed": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}
MOST = {"metrics": 1000, "params": 100}
"""What MLflow takes in one call."""
Entry = TypeVar("Entry")
PROOF = "failures"
"""A number that every round has: its history says which rounds are there."""


def open_run(about: About, told: int) -> Tracker:
    """The run that carries the id of ours as a tag, else a new one."""
    client, tag = MlflowClient(), f"{PROJECT}.run"
    experiment = _experiment(client)
    for found in client.search_runs([experiment], f"tags.`{tag}` = '{about.id}'", max_results=1):
        known = found.info.run_id
        last = max((one.step for one in client.get_metric_history(known, PROOF)), default=-1)
        return MLflow(client, known, last, running=False)
    created = client.create_run(experiment, run_name=about.name, tags={tag: about.id}).info.run_id
    params = [Param(mlflow_name(key), str(value)) for key, value in about.parameters.items()]
    for part in _parts(params, MOST["params"]):
        client.log_batch(created, params=part)
    return MLflow(client, created, -1, running=True)


class MLflow:
    """Metrics by round; the settings are the run's parameters, the status is MLflow's own."""

    def __init__(self, client: MlflowClient, known: str, told: int, running: bool) -> None:
        self.known, self.told = known, told
        self._client, self._running = client, running

    def tell(self, step: int, values: Mapping[str, float]) -> None:
        now = int(1000 * time.time())
        # The proof last: a round that was broken off in the middle has none, and is told again.
        ordered = sorted(values.items(), key=lambda item: item[0] == PROOF)
        metrics = [Metric(mlflow_name(name), value, now, step) for name, value in ordered]
        if not self._running:  # it may have ended before
            self._client.update_run(self.known, status="RUNNING")
            self._running = True
        for part in _parts(metrics, MOST["metrics"]):
            self._client.log_batch(self.known, metrics=part)

    def end(self, status: Status, step: int, scores: Mapping[str, float]) -> None:
        self.tell(step, scores)
        self._client.log_batch(self.known, tags=[RunTag(f"{PROJECT}.status", status)])
        self._client.set_terminated(self.known, STATUS[status])

    def close(self) -> None:
        pass  # the client keeps nothing open


def mlflow_name(name: str) -> str:
    """A name that MLflow takes: letters, digits, and `_-. :/`."""
    return re.sub(r"[^\w\-. :/]", "_", name.replace("+", "p"), flags=re.ASCII)


def _experiment(client: MlflowClient) -> str:
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT
    found = client.get_experiment_by_name(name)
    return str(found.experiment_id if found else client.create_experiment(name))


def _parts(whole: Sequence[Entry], size: int) -> Iterator[Sequence[Entry]]:
    return (whole[first : first + size] for first in range(0, len(whole), size))
