"""`fedlingua watch`: follow any run, from its folder alone."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console, Group, OverflowMethod, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text
from typer import Argument, Option

from fedlingua.common.errors import RunError
from fedlingua.common.terminal import one_line
from fedlingua.desk import units
from fedlingua.desk.cli.completion import run_folders
from fedlingua.desk.cli.output import Answer, Commands, console, example, say
from fedlingua.desk.cli.progress import PlainView, read_events, tally
from fedlingua.desk.cli.status import headline, last_seen
from fedlingua.desk.report.read import Round, read_run
from fedlingua.desk.units import duration
from fedlingua.runs.events import PROGRESS_FILE, Event, Tally, event_line
from fedlingua.runs.folder import RunFolder

commands = Commands()
LOOK_S = 1.0
BUSY_SHARE = 0.1
"""Largest share of the time that is spent on reading a large folder."""
FILES = ("run.json", "sites.json", "rounds.jsonl", PROGRESS_FILE)
SPARKS, PLAIN_SPARKS = "▁▂▃▄▅▆▇█", "_.-=+*%#"
NOTES = 3
FIXED_LINES = 4 + 3 + NOTES
"""Most lines of a frame besides the sites: above their table, of the table itself, and below it."""


@commands.command(epilog=example("fedlingua watch runs/demo-adapter-families-2022 --once"))
def watch(
    run: Annotated[Path, Argument(help="Run folder; it may be on a shared disk.", shell_complete=run_folders)],
    once: Annotated[bool, Option("--once", help="Show the current state once.")] = False,
    wait: Annotated[bool, Option("--wait", help="Wait until the folder exists.")] = False,
    silence: Annotated[
        float, Option(metavar="S", help="Seconds without news after which a run without a server counts as interrupted.")
    ] = 60.0,
) -> Answer:
    """On a terminal the view stays; elsewhere it is a line for each round, failure and note."""
    while wait and not once and not (run / "run.json").is_file():
        time.sleep(LOOK_S)
    screen, first = console(), look(run)
    snapshot = first
    if once:
        screen.print(frame(snapshot, screen, time.time(), silence))
    elif screen.is_terminal:
        with Live(console=screen, auto_refresh=False, vertical_overflow="crop") as live:
            for snapshot in _follow(run, first, silence):
                live.update(frame(snapshot, screen, time.time(), silence), refresh=True)
    else:
        say(headline(snapshot.run, snapshot.alive))
        view, shown = PlainView(screen), 0
        for snapshot in _follow(run, first, silence):
            for event in snapshot.events[shown:]:
                view.show(event)
            shown = len(snapshot.events)
    if snapshot.broken_off(silence, time.time()) and not once:
        raise RunError(
            f"{run}: no server holds the run, and nothing was written for {duration(round(time.time() - snapshot.written))}: it was "
            f"interrupted; resume it with: fedlingua run --resume {run}",
            answer=snapshot.answer(),
        )
    if snapshot.status not in ("running", "completed"):
        ended = "failed" if snapshot.status == "failed" else f"was {snapshot.status}"
        raise RunError(f"the run {ended}: {snapshot.run.get('reason')}", answer=snapshot.answer())
    return snapshot.answer()


@dataclass(frozen=True)
class Snapshot:
    """A run folder at one moment. alive: a server holds it. written: when its files were last written, seconds since the epoch.

    stamp: time and size of its files, from before they were read, so that what is written meanwhile is read again.
    """

    run: dict[str, Any]
    rounds: list[Round]
    events: list[Event]
    tally: Tally
    alive: bool
    written: float
    stamp: list[tuple[int, int]]

    @property
    def status(self) -> str:
        return str(self.run.get("status"))

    def broken_off(self, silent_s: float, now: float) -> bool:
        """Return whether the run claims to be running though no server holds it and nothing was written for over `silent_s`."""
        return self.status == "running" and not self.alive and now - self.written > silent_s

    def losses(self) -> dict[str, float]:
        """Return each site's newest dev loss, or its newest training loss if no dev loss was measured."""
        figures = [figures for each in self.rounds for figures in each.sites.items()]
        trained = {name: site.train_loss for name, site in figures if site.train_loss is not None}
        return trained | {name: site.dev_loss for name, site in figures if site.dev_loss is not None}

    def answer(self) -> dict[str, Any]:
        losses = self.losses()
        return {
            "name": self.run.get("name"),
            "status": self.status,
            "alive": self.alive,
            "round": self.run.get("rounds"),
            "rounds": (self.run.get("config") or {}).get("rounds"),
            "phase": self.tally.phase,
            "waiting": self.tally.waiting,
            "left_s": self.tally.left_s if self.status == "running" else None,
            "dev_losses": {each.number: each.dev_loss for each in self.rounds},
            "sites": {
                name: {
                    "round": site.round,
                    "phase": site.doing,
                    "dev_loss": losses.get(name),
                    "uplink_bytes": site.uplink_bytes,
                    "failures": site.failures,
                }
                for name, site in self.tally.sites.items()
            },
        }


def look(run_dir: Path) -> Snapshot:
    """Read the folder; raise RunError if it is no run folder."""
    if not (run_dir / "run.json").is_file():
        raise RunError(f"{run_dir} is not a run folder: it has no run.json; give a folder that a run has made, or --wait for one")
    stamp = _stamp(run_dir)
    read = read_run(run_dir)
    total, events = tally(read_events(run_dir / PROGRESS_FILE)[0], [site.name for site in read.sites])
    alive = read.run.get("status") == "running" and RunFolder(run_dir).is_held()
    return Snapshot(read.run, read.rounds, events, total, alive, max(stamp)[0] / 1e9, stamp)


def _follow(run_dir: Path, snapshot: Snapshot, silent_s: float) -> Iterator[Snapshot]:
    """Yield snapshots until the run ends or is interrupted. If the folder cannot be read for a moment, the last view stays."""
    pause = LOOK_S
    while True:
        yield snapshot
        if snapshot.status != "running" or snapshot.broken_off(silent_s, time.time()):
            return
        time.sleep(pause)
        if _stamp(run_dir) != snapshot.stamp or RunFolder(run_dir).is_held() != snapshot.alive:
            started = time.monotonic()
            try:
                snapshot = look(run_dir)
            except RunError:
                continue  # it is being made anew, or copied here
            pause = max(LOOK_S, (time.monotonic() - started) / BUSY_SHARE)


def _stamp(run_dir: Path) -> list[tuple[int, int]]:
    """Return time and size of the run's files, which change once something has been written."""
    files = [run_dir / name for name in FILES]
    return [(file.stat().st_mtime_ns, file.stat().st_size) if file.is_file() else (0, 0) for file in files]


def frame(snapshot: Snapshot, screen: Console, now: float, silent_s: float) -> RenderableType:
    """Return the view, which fits the console."""
    silent = max(0.0, now - snapshot.written)
    # On another machine than the server's its lock cannot be seen; there, recent writes show that it is at work.
    elsewhere = snapshot.status == "running" and not snapshot.alive and silent <= silent_s
    lines = [headline(snapshot.run, snapshot.alive or elsewhere)]
    if elsewhere:
        lines[0] += f" (no server holds its folder here; silent for {duration(round(silent))})"
    total = snapshot.tally
    if snapshot.status == "running":
        work = f"{total.phase}: {total.answered} of {total.asked} sites" if total.phase else "starting"
        lines.append((total.waiting or work) + (f"; about {duration(round(total.left_s))} left" if total.left_s else ""))
    lines += [_loss_line(snapshot, screen), _traffic(snapshot)]
    # Where there is no ellipsis, what is too long is cut off.
    overflow: OverflowMethod = "crop" if screen.options.ascii_only else "ellipsis"
    notes = [event_line(event, total) for event in snapshot.events if event["event"] in ("note", "failure", "end")]
    above = [Text(one_line(line), no_wrap=True, overflow=overflow) for line in lines if line]
    below = [Text(f"- {note}", no_wrap=True, overflow=overflow, style="dim") for note in notes if note][-NOTES:]
    room = max(1, screen.height - FIXED_LINES)
    return Group(*above, *([_table(snapshot, room, now, overflow)] if total.sites else []), *below)


def _loss_line(snapshot: Snapshot, screen: Console) -> str:
    """Return a line with the dev loss over the rounds."""
    losses = [each.dev_loss for each in snapshot.rounds if each.dev_loss is not None]
    if not losses:
        return ""
    drawn = sparkline(losses, max(8, screen.width - 40), PLAIN_SPARKS if screen.options.ascii_only else SPARKS)
    best = min(losses)
    return f"dev loss {losses[0]:.4f} {drawn} {losses[-1]:.4f}" + (f", least {best:.4f}" if best < losses[-1] else "")


def _traffic(snapshot: Snapshot) -> str:
    """Return a line with the bytes both ways in the rounds so far, the newest threshold, and the number of failures."""
    sites = [site for each in snapshot.rounds for site in each.sites.values()]
    if not sites:
        return ""
    up, down = (units.data(sum(getattr(site, f"{way}link_bytes") for site in sites)) for way in ("up", "down"))
    threshold = next((each.threshold for each in reversed(snapshot.rounds) if each.threshold), {})
    learned = f"; threshold {threshold['theta']:.4f}" if "theta" in threshold else ""
    failures = sum(site.failures for site in snapshot.tally.sites.values())
    return f"{up} up, {down} down{learned}" + (f"; {failures} failures" if failures else "")


def _table(snapshot: Snapshot, room: int, now: float, overflow: OverflowMethod) -> Table:
    """Return a line for each site; where there is no room for all, those with most failures, and then the first."""
    losses, sites = snapshot.losses(), snapshot.tally.sites
    names = list(sites)
    if len(names) > room:
        chosen = sorted(names, key=lambda name: -sites[name].failures)[: room - 1]
        names = [name for name in names if name in chosen]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("site", no_wrap=True, overflow=overflow, min_width=4, max_width=24)
    for column in ("round", "phase", "loss", "seen", "sent", "failures"):
        if column == "phase":
            table.add_column(column, no_wrap=True, overflow=overflow, max_width=28)
        else:
            table.add_column(column, no_wrap=True, justify="right")
    for name in names:
        site, loss = sites[name], losses.get(name)
        shown = "" if loss is None else f"{loss:.4f}"
        words = (name, str(site.round), site.doing, shown, last_seen(site, now), units.data(site.uplink_bytes))
        # Text, since a site's own words are neither markup nor control characters for this terminal.
        table.add_row(*map(Text, map(one_line, words)), Text(str(site.failures), style="bold red" if site.trouble else ""))
    if len(names) < len(sites):
        table.add_row(Text(f"and {len(sites) - len(names)} more", style="dim"))
    return table


def sparkline(values: Sequence[float], width: int, sparks: str = SPARKS) -> str:
    """Return values as bars, scaled from the smallest to the largest; if there are more than `width`, each bar is the last of its share."""
    count = min(len(values), width)
    drawn = [values[(number + 1) * len(values) // count - 1] for number in range(count)]
    least, most = min(drawn), max(drawn)
    height = len(sparks) - 1
    return "".join(sparks[round((value - least) / (most - least) * height) if most > least else 0] for value in drawn)
