"""One attempt of a run: submitted to an engine, watched, and closed so that its run folder says how it ended."""

import os
from functools import partial

from fedlingua.corpora.sites import Federation
from fedlingua.desk.cli.engine import Engine, RunStatus
from fedlingua.desk.cli.progress import PlainView, Watch
from fedlingua.desk.plugged import plugged
from fedlingua.runs.events import PROGRESS_FILE
from fedlingua.runs.folder import RunFolder, git_revision
from fedlingua.settings.config import Settings
from fedlingua.settings.trackers import tracker_names

STOPPED = "stopped by the user"
RAY_IS_LATE = "The current node timed out during startup"
"""Ray's words if its own programs did not start in time. Some of their limits are fixed, and the second start finds its files in memory."""
RAY_TRIES = 2
NODES_APART = 64
"""Most sites of a simulation that have a node each."""


def nodes_for(sites: int) -> int:
    """Return the number of simulated nodes: one for each site; a larger federation's sites share two for each core, at least eight.

    Ten times a second Flower's engine looks through all messages for each node, and hands each node one message.
    """
    return sites if sites <= NODES_APART else min(NODES_APART, max(8, 2 * (os.cpu_count() or 1)))


class Attempt:
    """A run that was submitted to an engine. log: the last lines of its log, if the run itself gave no reason for its failure.

    Args:
        nodes: Number of simulated nodes; None: as in `nodes_for`. A centralized method, which has one site, always gets one.
    """

    def __init__(
        self, engine: Engine, settings: Settings, federation: Federation, folder: RunFolder, nodes: int | None, view: PlainView
    ) -> None:
        self.folder = folder
        self.log = ""
        self._engine, self._revision = engine, git_revision()
        events = folder.directory / PROGRESS_FILE
        before = events.stat().st_size if events.is_file() else 0
        num_nodes = 1 if settings.how.pooled else nodes or nodes_for(len(federation.sites))
        self._submit = partial(engine.submit, {**settings.flat(), "run-dir": str(folder.directory)}, num_nodes)
        self._run_id, self._tries, self._resumes = self._submit(), 1, settings.resume
        trackers = tracker_names(settings.track)
        self._tracking = plugged("tracking")(folder.directory, trackers, view.note) if trackers else None
        self.watch = Watch(folder.directory, self._status, view, skip=before)

    def _status(self) -> RunStatus:
        """Return the run's status; start it again if Ray did not start, so that no site was asked anything."""
        status = self._engine.status(self._run_id)
        if status.outcome != "failed" or self._tries == RAY_TRIES or RAY_IS_LATE not in self._engine.log_tail(self._run_id):
            return status
        self.watch.view.note("Ray, which simulates the sites, did not start in time; it is started again")
        if not self._resumes:
            (self.folder.directory / "run.json").unlink(missing_ok=True)
        self._run_id, self._tries = self._submit(), self._tries + 1
        return RunStatus("pending", "")

    def end(self, status: RunStatus) -> str:
        """Record in run.json how the run ended; return why it failed, or "" if it completed."""
        if status.outcome == "completed":
            return ""
        if not (self.folder.read("run.json") or {}).get("reason"):
            self.log = self._engine.log_tail(self._run_id)
        if status.outcome == "stopped":
            close_run(self.folder, "interrupted", STOPPED)
        else:  # the server may have died before it could record that itself
            why = status.details or "the run ended without a reason; the last lines of its log were shown"
            if RAY_IS_LATE in self.log:
                self.log = ""
                why = f"Ray, which simulates the sites, did not start in {self._tries} tries: this machine is too busy; "
                why += "end what else runs on it, and start the run again"
            close_run(self.folder, "failed", why)
        return str((self.folder.read("run.json") or {}).get("reason"))

    def close(self) -> None:
        """Record the revision that the run began with, and report its end to the trackers. Call this once run.json records the end."""
        if self.folder.read("run.json"):  # the server ran from an unpacked bundle, which is no checkout
            self.folder.update(git_revision=self._revision)
        if self._tracking:
            self._tracking.close()


def close_run(folder: RunFolder, status: str, reason: str) -> None:
    """Set the status of a run whose server is gone, unless the server has set a final one itself."""
    run = folder.read("run.json") or {"name": folder.directory.name}
    # The server of a run that is being stopped may still record a failure; "interrupted" replaces it.
    if run.get("status") != "completed" and (status == "interrupted" or run.get("status") != "failed"):
        folder.write("run.json", run)
        folder.close(status, reason)
