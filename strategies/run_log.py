"""The ServerApp's log, which `flwr run . --stream` and `flwr log` show: a line for each event of the run, its scores at the end."""

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedlingua.runs.events import PROGRESS_FILE, Tally, event_line
from fedlingua.runs.folder import RunFolder

SHOWN_ELSEWHERE = ("FEDLINGUA_ENGINE", "FEDLINGUA_SERVICE")
"""Variables of a server that `fedlingua` has started: `fedlingua run` writes the report, and shows the scores itself."""
_log = logging.getLogger("flwr.fedlingua")
"""Below Flower's own, whose lines `flwr log` shows."""


class LoggedFolder(RunFolder):
    """A run folder whose events are lines of the log, too."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._tally = Tally()
        _log.info("run folder: %s", directory)

    def append(self, name: str, record: Mapping[str, Any]) -> None:
        super().append(name, record)
        event = dict(record)
        if name == PROGRESS_FILE and self._tally.add(event) and (line := event_line(event, self._tally)):
            warning = line.removeprefix("warning: ")
            _log.log(logging.INFO if warning == line else logging.WARNING, "%s", warning)


def log_report(run_dir: Path) -> None:
    """Write the report of a completed run and log its scores, by `fedlingua report`: no bundle has what writes pages."""
    if any(name in os.environ for name in SHOWN_ELSEWHERE):
        return
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    command = shutil.which("fedlingua", path=places)
    if command is None:
        _log.info("for scores and a report: `fedlingua report %s`, where fedlingua is installed", run_dir)
        return
    # Flower's engine sets PYTHONPATH to the bundle.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    reported = [command, "report", str(run_dir)]
    done = subprocess.run(
        reported,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    for line in done.stdout.splitlines():
        _log.info("%s", line)
