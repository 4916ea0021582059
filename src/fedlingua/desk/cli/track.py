"""`fedlingua track`: what a run has to tell a tracker and has not told yet, from its folder alone."""

from pathlib import Path
from typing import Any

from rich.console import Console

from fedlingua.common.errors import ConfigError, RunError
from fedlingua.desk.tracking.feed import state_file
from fedlingua.desk.tracking.start import Tracking
from fedlingua.desk.tracking.values import read_object
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.trackers import TRACKERS, check_trackers, tracker_names

END_S = 600
"""For telling a whole run."""


def track_run(run_dir: Path, to: str, console: Console) -> dict[str, Any]:
    """Tell the trackers of `to` (those of the run's `track` where empty) what they do not know yet; what each of them knows now.

    Raises:
        ConfigError: no such tracker, none named, or its package is missing. RunError: no run folder, one of a run that never began, or a
            tracker could not be told.
    """
    folder = RunFolder(run_dir.resolve())
    run = folder.read("run.json")
    if run is None:
        raise RunError(f"{run_dir} is no run folder: it has no run.json; give a folder that a run has made")
    if not run.get("id"):
        raise RunError(
            f"{run_dir}: its run.json says no id, so the run ended before it began; there is nothing to tell, start it anew"
        )
    names = tracker_names(to or str((run.get("config") or {}).get("track", "")))
    if not names:
        raise ConfigError(f"{run_dir}: the run names no tracker; give --to with one or more of {', '.join(TRACKERS)}")
    check_trackers(names)
    said: list[str] = []
    done = Tracking(folder.directory, names, said.append, END_S).close()
    states = {name: read_object(state_file(folder.directory, name)) for name in names}
    told = {
        name: {"run": each.get("known"), "told": each.get("told"), "ended": each.get("ended")} for name, each in states.items()
    }
    if not done:
        raise RunError("; ".join(said) or f"{run_dir}: not all trackers could be told", answer=told)
    for name, each in told.items():
        last = "no round" if each["told"] in (None, -1) else f"round {each['told']}"
        known = f"{name}: {run.get('name')} up to {last}, {each['ended'] or 'still going'}"
        console.print(known, markup=False, highlight=False, soft_wrap=True)
    return told
