"""`fedlingua status`: show a run's progress, from its folder alone."""

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from fedlingua.common.terminal import one_line
from fedlingua.desk import units
from fedlingua.desk.cli import options
from fedlingua.desk.cli.output import Answer, Commands, console, example, plain_table, say
from fedlingua.desk.cli.progress import read_events, tally
from fedlingua.desk.units import duration
from fedlingua.runs.events import PROGRESS_FILE, SiteStatus
from fedlingua.runs.folder import RunFolder, run_about

commands = Commands()


@commands.command(epilog=example("fedlingua status runs/demo-adapter-families-2022 --format json"))
def status(run: options.RunArgument) -> Answer:
    folder, about = RunFolder(run), run_about(run)
    alive = about.get("status") == "running" and folder.is_held()
    say(headline(about, alive))
    total, _ = tally(read_events(run / PROGRESS_FILE)[0], folder.read("sites.json") or {})
    sites, waiting = total.sites, total.waiting if alive else ""
    left_s = total.left_s if alive else None
    if words := waiting or (f"about {duration(round(left_s))} left" if left_s else ""):
        say(words)
    headers = ("site", "round", "phase", "last seen", "sent", "failures")
    trouble = ("last trouble",) if any(site.trouble for site in sites.values()) else ()
    table = plain_table(*headers, *trouble, left=("phase", "last trouble"))
    for name, site in sites.items():
        sent, seen = units.data(site.uplink_bytes), last_seen(site, time.time())
        cells = (name, site.round, site.doing, seen, sent, site.failures, *([site.trouble] if trouble else []))
        table.add_row(*map(one_line, cells))
    console().print(table)
    keys = ("name", "status", "rounds", "attempt", "best_round", "reason")
    return {
        **{key: about.get(key) for key in keys},
        "alive": alive,
        "waiting": waiting,
        "left_s": left_s,
        "sites": {name: asdict(sites[name]) for name in sites},
    }


def headline(run: Mapping[str, Any], alive: bool) -> str:
    """Return a line on a run from its run.json. alive: whether a server is at work on it."""
    status = run.get("status")
    state = str(status) if status != "running" or alive else "interrupted (its server is gone; resume it with --resume)"
    rounds = (run.get("config") or {}).get("rounds", "?")
    return one_line(
        f"{run.get('name')}: {state}, round {run.get('rounds')} of {rounds}, attempt {run.get('attempt', 1)}"
        + (f", best round {run['best_round']}" if isinstance(run.get("best_round"), int) else "")
        + (f": {run['reason']}" if run.get("reason") else "")
    )


def last_seen(site: SiteStatus, now: float) -> str:
    return f"{duration(round(max(0.0, now - site.seen)))} ago" if site.seen else "never"
