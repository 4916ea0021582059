"""The trackers: TensorBoard, MLflow and trackio. Each opens one run for a run of ours, and continues it when opened again.

accelerate's trackers, one interface for all three, are not used: none of them can say which rounds it has, or find the run that
it began, so a gap could not be filled later; MLflow's ends every run as finished, even one that failed; TensorBoard's writes
the settings as another run at every start; and each loads torch (230 MiB and 1.5 s of CPU for TensorBoard, 41 MiB and 0.2 s
here) on cores that train.
"""

import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Status = Literal["completed", "failed", "interrupted"]
PROJECT = "fedlingua"
"""The name under which a tracker groups this project's runs, unless its own environment variables give another."""


@dataclass(frozen=True)
class About:
    """What a tracker is told about a run. name: chosen by the user; id: unique and permanent; folder: the run folder."""

    name: str
    id: str
    folder: Path
    parameters: Mapping[str, str | int | float | bool]


class Tracker(ABC):
    """An open run of a tracker. known: the tracker's name for it; last_round: the last round that it has, -1 for none.

    A run that the tracker already has does not change, ended or not, until something is reported.
    """

    known: str
    last_round: int

    @abstractmethod
    def tell(self, step: int, values: Mapping[str, float]) -> None:
        """Report the numbers of a round; they are stored when this returns."""

    @abstractmethod
    def end(self, status: Status, step: int, scores: Mapping[str, float]) -> None:
        """Report how the run ended, and its scores, at the round `step`."""

    def close(self) -> None:  # noqa: B027 - not every tracker holds something open
        """Close the run, ended or not."""


class TensorBoard(Tracker):
    """Event files with scalars by round in the run folder, so that `tensorboard --logdir runs` shows every run by its name;
    settings and status are in them for its HParams page.

    A writer continues after `last_round`, and readers discard what a killed writer wrote beyond it; without files it starts anew. The
    file is created with the first report. The writer is tensorboard's own; torch's SummaryWriter is the same but needs torch.
    """

    def __init__(self, about: About, last_round: int) -> None:
        from tensorboard.summary.writer import event_file_writer  # a missing package is reported before any round

        self._writers, self._run = event_file_writer, about
        self._folder = about.folder / "tensorboard"
        self._begun: Any = None
        self.known, self.last_round = "tensorboard", last_round if any(self._folder.glob("events.*")) else -1

    def tell(self, step: int, values: Mapping[str, float]) -> None:
        self._add(step=step, summary={"value": [{"tag": name, "simple_value": value} for name, value in values.items()]})

    def end(self, status: Status, step: int, scores: Mapping[str, float]) -> None:
        from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

        self.tell(step, scores)
        result = api_pb2.STATUS_SUCCESS if status == "completed" else api_pb2.STATUS_FAILURE
        ended = plugin_data_pb2.SessionEndInfo(status=result, end_time_secs=time.time())
        about = metadata.create_summary_metadata(plugin_data_pb2.HParamsPluginData(session_end_info=ended))
        self._add(summary={"value": [{"tag": metadata.SESSION_END_INFO_TAG, "metadata": about}]})

    def close(self) -> None:
        if self._begun:
            self._begun.close()

    def _begin(self) -> None:
        from tensorboard.compat.proto.event_pb2 import SessionLog
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb

        self._begun = self._writers.EventFileWriter(str(self._folder))
        self._add(step=self.last_round + 1, session_log=SessionLog(status=SessionLog.START))
        if self.last_round < 0:
            self._add(summary=hparams_pb(dict(self._run.parameters), trial_id=self._run.name))

    def _add(self, **content: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        if self._begun is None:
            self._begin()
        self._begun.add_event(Event(wall_time=time.time(), **content))
        self._begun.flush()


class MLflow(Tracker):
    """One run in the store that MLflow's environment names (MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME), else its default one.

    It has the id of our run as a tag. Metrics are by round; the settings are its parameters, the status is MLflow's own.
    """

    STATUS: Mapping[Status, str] = {"completed": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}
    MOST: Mapping[str, int] = {"metrics": 1000, "params": 100}
    """Most entries that MLflow takes in one call."""
    PROOF = "failures"
    """A metric that every round has: its history shows which rounds are there."""

    def __init__(self, about: About, last_round: int) -> None:
        # MLflow's own retries would outlast a run's end; and its makers get no telemetry.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow.tracking import MlflowClient

        self._client, tag = MlflowClient(), f"{PROJECT}.run"
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT
        experiment = self._client.get_experiment_by_name(name)
        place = str(experiment.experiment_id if experiment else self._client.create_experiment(name))
        earlier = list(self._client.search_runs([place], f"tags.`{tag}` = '{about.id}'", max_results=1))
        self._running = not earlier
        if earlier:
            self.known = earlier[0].info.run_id
            self.last_round = max((each.step for each in self._client.get_metric_history(self.known, self.PROOF)), default=-1)
            return
        self.known, self.last_round = self._client.create_run(place, run_name=about.name, tags={tag: about.id}).info.run_id, -1
        from mlflow.entities import Param

        self._log("params", [Param(mlflow_name(key), str(value)) for key, value in about.parameters.items()])

    def tell(self, step: int, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        # PROOF last: a round that was interrupted in the middle lacks it, and is reported again.
        ordered = sorted(values.items(), key=lambda item: item[0] == self.PROOF)
        if not self._running:  # it may have been ended earlier
            self._client.update_run(self.known, status="RUNNING")
            self._running = True
        self._log("metrics", [Metric(mlflow_name(name), value, now, step) for name, value in ordered])

    def end(self, status: Status, step: int, scores: Mapping[str, float]) -> None:
        from mlflow.entities import RunTag

        self.tell(step, scores)
        self._client.log_batch(self.known, tags=[RunTag(f"{PROJECT}.status", status)])
        self._client.set_terminated(self.known, self.STATUS[status])

    def _log(self, kind: str, entries: Sequence[Any]) -> None:
        for first in range(0, len(entries), self.MOST[kind]):
            self._client.log_batch(self.known, **{kind: entries[first : first + self.MOST[kind]]})


class Trackio(Tracker):
    """A run in trackio's local store, or where its variables send it (TRACKIO_SPACE_ID, TRACKIO_SERVER_URL, TRACKIO_PROJECT).

    Metrics are by round; the settings are the run's config; the status is the metric `completed`, 1 or 0. trackio stores what
    is reported within half a second, so its store shows which rounds it has.
    """

    def __init__(self, about: About, last_round: int) -> None:
        import trackio
        from trackio.sqlite_storage import SQLiteStorage

        project, self.known = os.environ.get("TRACKIO_PROJECT") or PROJECT, f"{about.name}-{about.id[:8]}"
        self.last_round = last_round
        if not (os.environ.get("TRACKIO_SPACE_ID") or os.environ.get("TRACKIO_SERVER_URL")):
            last = SQLiteStorage.get_max_step_for_run(project, self.known)
            self.last_round = -1 if last is None else last
        # What trackio would measure of this machine does not belong to the run.
        self._run: Any = trackio.init(
            project,
            self.known,
            config=dict(about.parameters),
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def tell(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def end(self, status: Status, step: int, scores: Mapping[str, float]) -> None:
        self._run.log({**scores, "completed": float(status == "completed")}, step=step)

    def close(self) -> None:
        self._run.finish()


Open = Callable[[About, int], Tracker]
"""(the run, the last round that was reported or -1) -> the tracker's run for it, the same however often it is opened."""
TRACKERS: Mapping[str, Open] = {"tensorboard": TensorBoard, "mlflow": MLflow, "trackio": Trackio}


def mlflow_name(name: str) -> str:
    """Return a name that MLflow accepts: letters, digits, and `_-. :/`."""
    return re.sub(r"[^\w\-. :/]", "_", name.replace("+", "p"), flags=re.ASCII)
