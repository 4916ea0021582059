"""TensorBoard: event files in the run folder, so that `tensorboard --logdir runs` shows every run by its name.

Written with tensorboard's own writer and messages; torch's SummaryWriter is the same at seven times the memory.
"""

import time
from collections.abc import Mapping

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from fedlingua.desk.tracking.tracker import About, Status, Tracker

FOLDER = "tensorboard"


def open_run(about: About, told: int) -> Tracker:
    """A writer that goes on after round `told`: readers forget what a killed one may have written beyond it; anew where no file is left."""
    return TensorBoard(about, told if any((about.folder / FOLDER).glob("events.*")) else -1)


class TensorBoard:
    """Scalars by round; the settings and the status are there for TensorBoard's HParams page. Its file is begun once there is something to
    tell."""

    def __init__(self, about: About, told: int) -> None:
        self.known, self.told = FOLDER, told
        self._run = about
        self._begun: EventFileWriter | None = None

    @property
    def _writer(self) -> EventFileWriter:
        if self._begun is None:
            self._begun = EventFileWriter(str(self._run.folder / FOLDER))
            start = SessionLog(status=SessionLog.START)
            self._begun.add_event(Event(wall_time=time.time(), step=self.told + 1, session_log=start))
            if self.told < 0:
                self._tell_settings()
        return self._begun

    def _tell_settings(self) -> None:
        settings = plugin_data_pb2.SessionStartInfo(group_name=self._run.name, start_time_secs=time.time())
        for key, value in self._run.parameters.items():
            field = "bool_value" if isinstance(value, bool) else "string_value" if isinstance(value, str) else "number_value"
            setattr(settings.hparams[key], field, value)
        self._about(metadata.SESSION_START_INFO_TAG, plugin_data_pb2.HParamsPluginData(session_start_info=settings))

    def tell(self, step: int, values: Mapping[str, float]) -> None:
        summary = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()])
        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))
        self._writer.flush()

    def end(self, status: Status, step: int, scores: Mapping[str, float]) -> None:
        self.tell(step, scores)
        result = api_pb2.STATUS_SUCCESS if status == "completed" else api_pb2.STATUS_FAILURE
        ended = plugin_data_pb2.SessionEndInfo(status=result, end_time_secs=time.time())
        self._about(metadata.SESSION_END_INFO_TAG, plugin_data_pb2.HParamsPluginData(session_end_info=ended))

    def close(self) -> None:
        if self._begun:
            self._begun.close()

    def _about(self, tag: str, content: plugin_data_pb2.HParamsPluginData) -> None:
        value = Summary.Value(tag=tag, metadata=metadata.create_summary_metadata(content))
        self._writer.add_event(Event(wall_time=time.time(), summary=Summary(value=[value])))
        self._writer.flush()
