"""accelerate's trackers, each opened for a run of ours or to go on with it: TensorBoard, MLflow and trackio."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.tracking import GeneralTracker, MLflowTracker, TensorBoardTracker, TrackioTracker

from fedlingua_lab.tracking.values import parameters

PROJECT = "fedlingua"
"""The name under which MLflow and trackio group this project's runs, unless their own environment variables give another."""


def open_tracker(name: str, folder: Path, run: Mapping[str, Any], known: str | None) -> tuple[GeneralTracker, str]:
    """Open a tracker's run for the run in `folder`. run: Its run.json. known: The tracker's name for it; None: it is new there.

    Returns:
        The tracker, which has the run's settings, and its name for the run. TensorBoard's files are in the run folder, so that
        `tensorboard --logdir runs` shows every run by its name.
    """
    title = str(run.get("name") or folder.name)
    tracker: GeneralTracker
    if name == "tensorboard":
        tracker = TensorBoardTracker("tensorboard", folder)
    elif name == "mlflow":
        # MLflow's own retries would outlast a run's end; and its makers get no telemetry.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        tracker = MLflowTracker(PROJECT, run_id=known, run_name=title, tags={f"{PROJECT}.run": run["id"]})
    else:
        title = f"{title}-{run['id'][:8]}"
        # What trackio would measure of this machine does not belong to the run.
        quiet = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
        project = os.environ.get("TRACKIO_PROJECT") or PROJECT
        tracker = TrackioTracker(project, name=title, config=parameters(run), resume="allow", **quiet)
    PartialState()  # without it accelerate refuses to log its own messages
    tracker.start()
    if known is None and name != "trackio":
        tracker.store_init_configuration(parameters(run))
    return tracker, tracker.tracker.info.run_id if name == "mlflow" else title
