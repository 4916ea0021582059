"""trackio: a run in its local store, or where its own environment sends it (TRACKIO_SPACE_ID, TRACKIO_SERVER_URL, TRACKIO_PROJECT)."""

import os
from collections.abc import Mapping
from typing import Any

import trackio
from trackio.sqlite_storage import SQLiteStorage

from fedlingua.desk.tracking.tracker import PROJECT, About, Status, Tracker


def open_run(about: About, told: int) -> Tracker:
    """The run of that name, made where there is none; trackio keeps what it is told within half a second, so its store says what it has."""
    project, name = os.environ.get("TRACKIO_PROJECT") or PROJECT, f"{about.name}-{about.id[:8]}"
    if not (os.environ.get("TRACKIO_SPACE_ID") or os.environ.get("TRACKIO_SERVER_URL")):
        kept = SQLiteStorage.get_max_step_for_run(project, name)
        told = -1 if kept is None else kept
    config = dict(about.parameters)
    # What it would measure of this machine is not the run's.
    run = trackio.init(project, name, config=config, resume="allow", embed=False, auto_log_gpu=False, auto_log_cpu=False)
    return Trackio(run, name, told)


class Trackio:
    """Metrics by round; the settings are the run's config; the status is the metric `completed`, 1 or 0."""

    def __init__(self, run: Any, known: str, told: int) -> None:
        self.known, self.told = known, told
        self._run = run

    def tell(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def end(self, status: Status, step: int, scores: Mapping[str, float]) -> None:
        self._run.log({**scores, "completed": float(status == "completed")}, step=step)

    def close(self) -> None:
        self._run.finish()
