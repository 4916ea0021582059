"""One attempt of a run: handed to an engine, watched, and closed so that its folder says how it ended."""

from fedlingua.corpora.sites import Federation
from fedlingua.desk.cli.engine import Engine, RunStatus
from fedlingua.desk.cli.progress import PROGRESS_FILE, PlainView, Watch
from fedlingua.desk.tracking.start import Tracking
from fedlingua.runs.folder import RunFolder, git_revision
from fedlingua.settings.config import Settings
from fedlingua.settings.trackers import tracker_names

STOPPED = "stopped by the user"


def num_nodes(settings: Settings, federation: Federation, asked: int | None) -> int:
    """Nodes of a simulation: as asked for, else one for each site; the one site of a centralized method needs one."""
    return 1 if settings.how.pooled else asked or len(federation.sites)


class Attempt:
    """A run that an engine has taken. log: the last lines of its log, where the run itself could not say why it failed."""

    def __init__(self, engine: Engine, settings: Settings, folder: RunFolder, num_nodes: int, view: PlainView) -> None:
        self.folder = folder
        self.log = ""
        self._engine, self._revision = engine, git_revision()
        events = folder.directory / PROGRESS_FILE
        before = events.stat().st_size if events.is_file() else 0
        self._run_id = engine.submit({**settings.flat(), "run-dir": str(folder.directory)}, num_nodes)
        self._tracking = Tracking(folder.directory, tracker_names(settings.track), view.note)
        self.watch = Watch(folder.directory, lambda: engine.status(self._run_id), view, skip=before)

    def end(self, status: RunStatus) -> str:
        """See that run.json says how the run ended; why it failed, or "" of a completed one."""
        self.keep_revision()
        if status.outcome == "completed":
            return ""
        if not (self.folder.read("run.json") or {}).get("reason"):
            self.log = self._engine.log_tail(run_id=self._run_id)
        # The server may have died before it could say so itself.
        close_run(self.folder, "failed", status.details or "the run ended without a reason; the last lines of its log were shown")
        return str((self.folder.read("run.json") or {}).get("reason"))

    def interrupt(self) -> None:
        """Say in run.json that the user stopped the run; its engine has ended."""
        close_run(self.folder, "interrupted", STOPPED)
        self.keep_revision()

    def close(self) -> None:
        """Tell the trackers how the run ended; after run.json says so."""
        self._tracking.close()

    def keep_revision(self) -> None:
        """Enter the checkout's revision at the start: the server ran from an unpacked bundle, which is no checkout."""
        if self.folder.read("run.json"):
            self.folder.update(git_revision=self._revision)


def close_run(folder: RunFolder, status: str, reason: str) -> None:
    """Set the status of a run whose server is gone, unless the server has set its last one itself."""
    run = folder.read("run.json") or {"name": folder.directory.name}
    # Of a run that is being stopped, the server may still say that it failed: who stopped it knows better.
    if run.get("status") != "completed" and (status == "interrupted" or run.get("status") != "failed"):
        folder.write("run.json", run)
        folder.close(status, reason)
