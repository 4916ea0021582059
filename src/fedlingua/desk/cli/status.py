"""`fedlingua status`: how far a run is, from its folder alone."""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedlingua.common import units
from fedlingua.common.terminal import one_line
from fedlingua.desk.cli.progress import PROGRESS_FILE, duration
from fedlingua.runs.folder import RunFolder, run_about


@dataclass
class SiteStatus:
    """What the run has heard of one site. seen: seconds since the epoch, 0 for never; uplink_bytes: in all rounds so far."""

    round: int = 0
    phase: str = ""
    seen: float = 0.0
    uplink_bytes: int = 0
    failures: int = 0
    trouble: str = ""


def show_status(run_dir: Path, console: Console) -> dict[str, Any]:
    """Print the run's state and a line for each site; returns both.

    Raises:
        RunError: no run folder.
    """
    folder = RunFolder(run_dir)
    run = run_about(run_dir)
    alive = run.get("status") == "running" and folder.is_held()
    console.print(headline(run, alive), markup=False, highlight=False, soft_wrap=True)
    sites = gather_status(read_events(run_dir / PROGRESS_FILE), folder.read("sites.json") or {})
    table = Table("site", "round", "phase", "last seen", "sent", "failures", "last trouble")
    for name, site in sites.items():
        ago = f"{duration(max(0.0, time.time() - site.seen))} ago" if site.seen else "never"
        sent = units.data(site.uplink_bytes)
        told = map(one_line, (name, site.round, site.phase, ago, sent, site.failures, site.trouble))
        table.add_row(*map(Text, told))  # a site's own words are no markup
    console.print(table)
    said = {key: run.get(key) for key in ("name", "status", "rounds", "attempt", "best_round", "reason")}
    return {**said, "alive": alive, "sites": {name: asdict(site) for name, site in sites.items()}}


def headline(run: Mapping[str, Any], alive: bool) -> str:
    """What a run.json says of the run, in a line; alive: whether a server is at work on it."""
    status = run.get("status")
    state = str(status) if status != "running" or alive else "broken off (its server is gone; --resume goes on)"
    rounds = (run.get("config") or {}).get("rounds", "?")
    return one_line(
        f"{run.get('name')}: {state}, round {run.get('rounds')} of {rounds}, attempt {run.get('attempt', 1)}"
        + (f", best round {run['best_round']}" if isinstance(run.get("best_round"), int) else "")
        + (f": {run['reason']}" if run.get("reason") else "")
    )


def gather_status(events: Iterable[Mapping[str, Any]], known: Iterable[str]) -> dict[str, SiteStatus]:
    """Each site's status: those of sites.json first, then others that were heard of."""
    sites: dict[str, SiteStatus] = {name: SiteStatus() for name in known}
    for event in events:
        if event.get("event") not in ("reply", "failure"):
            continue
        site = sites.setdefault(str(event["site"]), SiteStatus())
        site.round, site.phase = int(event["round"]), str(event["phase"])
        if event["event"] == "reply":
            site.seen = float(event["time"])
            site.uplink_bytes += int(event.get("uplink_bytes") or 0) if event["phase"] in ("train", "send") else 0
            site.trouble = ""
        else:
            site.failures += 1
            site.trouble = f"{event.get('kind', '')}: {event['reason']}"
    return sites


def read_events(file: Path) -> list[dict[str, Any]]:
    """The whole lines of a run's progress; a line that was broken off is left out."""
    events = []
    for line in file.read_bytes().split(b"\n") if file.is_file() else []:  # it may end inside a letter
        try:
            event = json.loads(line)
        except ValueError:
            continue
        events.append(event)
    return events
