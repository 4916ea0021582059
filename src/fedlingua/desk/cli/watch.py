"""`fedlingua watch`: a run as it goes, from its folder alone, whoever runs it and wherever."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, Group, OverflowMethod, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fedlingua.common import units
from fedlingua.common.errors import RunError
from fedlingua.common.terminal import one_line
from fedlingua.desk.cli.progress import PROGRESS_FILE, PlainView, Tally, duration, event_line
from fedlingua.desk.cli.status import SiteStatus, gather_status, headline, read_events
from fedlingua.desk.report.read import Round, read_run
from fedlingua.runs.folder import RunFolder

LOOK_S = 1.0
BUSY_SHARE = 0.1
"""Of the time, at most, that goes into reading a folder that has become large."""
FILES = ("run.json", "sites.json", "rounds.jsonl", PROGRESS_FILE)
SPARKS, PLAIN_SPARKS = "▁▂▃▄▅▆▇█", "_.-=+*%#"
NOTES = 3
Stamp = list[tuple[int, int]]
FIXED_LINES = 4 + 3 + NOTES
"""Above the sites, of their table besides them, and below: of a frame as it is at most."""


@dataclass(frozen=True)
class Picture:
    """A run folder at one moment. alive: a server holds it; written: when its files were last written, seconds since the epoch."""

    run: dict[str, Any]
    rounds: list[Round]
    events: list[dict[str, Any]]
    sites: dict[str, SiteStatus]
    tally: Tally
    alive: bool
    written: float

    @property
    def status(self) -> str:
        return str(self.run.get("status"))

    def broken_off(self, silent_s: float, now: float) -> bool:
        """Whether it says that it is running while no server holds it, and nothing was written for so long."""
        return self.status == "running" and not self.alive and now - self.written > silent_s


def watch_run(run_dir: Path, once: bool, wait: bool, silent_s: float, console: Console, look_s: float = LOOK_S) -> dict[str, Any]:
    """Show a run until it ends: a view that stays on a terminal, elsewhere a line for each round, failure and note; its last state.

    once: show how it stands, and no more. wait: for the folder, where it is not there yet. silent_s: after so long without a word, a run
    whose folder no server holds is broken off.

    Raises:
        RunError: no run folder; or the run failed, was interrupted, or is broken off.
    """
    while wait and not once and not (run_dir / "run.json").is_file():
        time.sleep(look_s)
    stamp = _stamp(run_dir)  # before the look: what is written meanwhile is looked at again
    picture = look(run_dir)
    if once:
        console.print(frame(picture, console, time.time(), silent_s))
    elif console.is_terminal:
        picture = _live(run_dir, picture, stamp, silent_s, console, look_s)
    else:
        picture = _lines(run_dir, picture, stamp, silent_s, console, look_s)
    if picture.broken_off(silent_s, time.time()) and not once:
        raise RunError(
            f"{run_dir}: no server holds the run, and nothing was written for {duration(time.time() - picture.written)}: it is broken "
            f"off; go on with: fedlingua run --resume {run_dir}",
            answer=state(picture),
        )
    if picture.status not in ("running", "completed"):
        ended = "failed" if picture.status == "failed" else f"was {picture.status}"
        raise RunError(f"the run {ended}: {picture.run.get('reason')}", answer=state(picture))
    return state(picture)


def look(run_dir: Path) -> Picture:
    """Read the folder.

    Raises:
        RunError: no run folder.
    """
    folder = RunFolder(run_dir)
    if not (run_dir / "run.json").is_file():
        raise RunError(f"{run_dir} is no run folder: it has no run.json; give a folder that a run has made, or --wait for one")
    read = read_run(run_dir)
    events, tally = read_events(run_dir / PROGRESS_FILE), Tally()
    known = []
    for event in events:
        try:
            if tally.add(event):
                known.append(event)
        except (AttributeError, KeyError, TypeError, ValueError):  # of another version's server
            continue
    written = max((file.stat().st_mtime for name in FILES if (file := run_dir / name).is_file()), default=0.0)
    sites = gather_status(known, [site.name for site in read.sites])
    alive = read.run.get("status") == "running" and folder.is_held()
    return Picture(read.run, read.rounds, known, sites, tally, alive, written)


def state(picture: Picture) -> dict[str, Any]:
    """What a frame tells, as plain values."""
    losses = last_losses(picture.rounds)
    return {
        "name": picture.run.get("name"),
        "status": picture.status,
        "alive": picture.alive,
        "round": picture.run.get("rounds"),
        "rounds": (picture.run.get("config") or {}).get("rounds"),
        "phase": picture.tally.phase,
        "dev_losses": {each.number: each.dev_loss for each in picture.rounds},
        "sites": {
            name: {
                "round": site.round,
                "dev_loss": losses.get(name),
                "uplink_bytes": site.uplink_bytes,
                "failures": site.failures,
            }
            for name, site in picture.sites.items()
        },
    }


def _live(run_dir: Path, picture: Picture, stamp: Stamp, silent_s: float, console: Console, look_s: float) -> Picture:
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:

        def show(seen: Picture) -> None:
            live.update(frame(seen, console, time.time(), silent_s), refresh=True)

        return _follow(run_dir, picture, stamp, silent_s, look_s, show)


def _lines(run_dir: Path, picture: Picture, stamp: Stamp, silent_s: float, console: Console, look_s: float) -> Picture:
    console.print(headline(picture.run, picture.alive), markup=False, highlight=False, soft_wrap=True)
    view, shown = PlainView(console), 0

    def show(seen: Picture) -> None:
        nonlocal shown
        for event in seen.events[shown:]:
            view.show(event)
        shown = len(seen.events)

    return _follow(run_dir, picture, stamp, silent_s, look_s, show)


def _follow(
    run_dir: Path, picture: Picture, seen: Stamp, silent_s: float, look_s: float, show: Callable[[Picture], None]
) -> Picture:
    """Look and show until the run has ended or is broken off. A folder that cannot be read for a moment shows as it was before.

    seen: the folder's stamp from before it was looked at for `picture`.
    """
    pause = look_s
    while True:
        show(picture)
        if picture.status != "running" or picture.broken_off(silent_s, time.time()):
            return picture
        time.sleep(pause)
        if (now := _stamp(run_dir)) != seen or RunFolder(run_dir).is_held() != picture.alive:
            seen, started = now, time.monotonic()
            try:
                picture = look(run_dir)
            except RunError:
                continue  # it is being made anew, or copied here
            pause = max(look_s, (time.monotonic() - started) / BUSY_SHARE)


def _stamp(run_dir: Path) -> Stamp:
    """Other once something has been written."""
    found = [(run_dir / name) for name in FILES]
    return [(file.stat().st_mtime_ns, file.stat().st_size) if file.is_file() else (0, 0) for file in found]


def frame(picture: Picture, console: Console, now: float, silent_s: float) -> RenderableType:
    """The view, no larger than the console."""
    silent = max(0.0, now - picture.written)
    gone = picture.status == "running" and not picture.alive
    # Elsewhere than where its server is nobody sees whether one is at work; then what it writes tells.
    elsewhere = gone and silent <= silent_s
    lines = [headline(picture.run, picture.alive or elsewhere)]
    if elsewhere:
        lines[0] += f" (no server holds its folder here; silent for {duration(silent)})"
    lines += [_work(picture), _loss_line(picture, console), _traffic(picture)]
    room = max(1, console.height - FIXED_LINES)
    # Where there is no ellipsis, what is too long is cut off.
    overflow: OverflowMethod = "crop" if console.options.ascii_only else "ellipsis"
    shown = [Text(one_line(line), no_wrap=True, overflow=overflow) for line in lines if line]
    notes = [event_line(event, picture.tally) for event in picture.events if event["event"] in ("note", "failure", "end")]
    notes = [one_line(note) for note in notes if note][-NOTES:]
    below = [Text(f"- {note}", no_wrap=True, overflow=overflow, style="dim") for note in notes]
    return Group(*shown, *([_table(picture, room, now, overflow)] if picture.sites else []), *below)


def _work(picture: Picture) -> str:
    """What is being done, and how long it will take yet."""
    if picture.status != "running":
        return ""
    tally = picture.tally
    work = f"{tally.phase}: {tally.heard} of {tally.sites} sites" if tally.phase else "starting"
    left = tally.left_s
    return work + (f"; about {duration(left)} left" if left else "")


def _loss_line(picture: Picture, console: Console) -> str:
    """The dev loss over the rounds."""
    losses = [each.dev_loss for each in picture.rounds if each.dev_loss is not None]
    if not losses:
        return ""
    drawn = sparkline(losses, max(8, console.width - 40), PLAIN_SPARKS if console.options.ascii_only else SPARKS)
    best = min(losses)
    return f"dev loss {losses[0]:.4f} {drawn} {losses[-1]:.4f}" + (f", least {best:.4f}" if best < losses[-1] else "")


def _traffic(picture: Picture) -> str:
    """Bytes both ways in the rounds so far, and the threshold of the last one."""
    moved = [(site.uplink_bytes, site.downlink_bytes) for each in picture.rounds for site in each.sites.values()]
    if not moved:
        return ""
    up, down = (sum(one) for one in zip(*moved, strict=True))
    told = f"{units.data(up)} up, {units.data(down)} down"
    threshold = next((each.threshold for each in reversed(picture.rounds) if each.threshold), None)
    if threshold and threshold.theta is not None:
        told += f"; threshold {threshold.theta:.4f}"
    failures = sum(site.failures for site in picture.sites.values())
    return told + (f"; {failures} failures" if failures else "")


def _table(picture: Picture, room: int, now: float, overflow: OverflowMethod) -> Table:
    """A line for each site; where there is no room for all, those with most failures, and then the first."""
    losses, sites = last_losses(picture.rounds), picture.sites
    names = list(sites)
    if len(names) > room:
        chosen = sorted(names, key=lambda name: -sites[name].failures)[: room - 1]
        names = [name for name in names if name in chosen]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("site", no_wrap=True, overflow=overflow, min_width=4, max_width=24)
    for column in ("round", "phase", "loss", "seen", "sent", "failures"):
        table.add_column(column, no_wrap=True, justify="left" if column == "phase" else "right")
    for name in names:
        site, loss = sites[name], losses.get(name)
        seen = f"{duration(max(0.0, now - site.seen))} ago" if site.seen else "never"
        cells = [
            str(site.round),
            one_line(site.phase),
            "" if loss is None else f"{loss:.4f}",
            seen,
            units.data(site.uplink_bytes),
        ]
        # Text, since a site's own words are neither markup nor control characters for this terminal.
        failures = Text(str(site.failures), style="bold red" if site.trouble else "")
        table.add_row(Text(one_line(name)), *map(Text, cells), failures)
    if len(names) < len(sites):
        table.add_row(Text(f"and {len(sites) - len(names)} more", style="dim"))
    return table


def last_losses(rounds: Sequence[Round]) -> dict[str, float]:
    """Each site's newest dev loss, or where none was measured its newest training loss."""
    found: dict[str, float] = {}
    for each in rounds:
        for name, site in each.sites.items():
            if (loss := site.dev_loss if site.dev_loss is not None else site.train_loss) is not None:
                found[name] = loss
    return found


def sparkline(values: Sequence[float], width: int, sparks: str = SPARKS) -> str:
    """Values as bars between their least and their greatest; of more than `width` each bar is the last of its share."""
    count = min(len(values), width)
    drawn = [values[(number + 1) * len(values) // count - 1] for number in range(count)]
    least, most = min(drawn), max(drawn)
    height = len(sparks) - 1
    return "".join(sparks[round((value - least) / (most - least) * height) if most > least else 0] for value in drawn)
