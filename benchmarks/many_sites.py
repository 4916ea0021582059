"""A simulated federation of many small sites: seconds a site in each phase and the server's memory, from 9 sites to 1,000.

    .venv/bin/python benchmarks/many_sites.py [--sites 9 100 300 1000] [--drawn 32] [--to results.json]

Every site has a few sentences of the phrasebook, made when it is first asked, and trains two to four steps a round for two rounds;
adapters inside language groups, dev loss after each round, no last phase, test of one sentence a site. Each number of sites runs twice: all
sites in each round, and `--drawn` of them (not where there are fewer). Through Flower's engine with the profile `simulation`.

Seconds a site are those of a phase over the sites that it asked; the longest pause is the server's, from the last reply of a phase to the
next messages, over all sites. The server's memory is VmHWM of the process that runs the ServerApp. Wanted: seconds a site within 1.3 times
those of the fewest sites, memory at most 1.2 times theirs plus 100 kB a site. A phase's last time counts, since the first loads libraries;
on a busy machine the seconds say little. A quarter of an hour on two cores; `--sites 9 30` tries it in two minutes.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any

import psutil
import tomli_w
from kept import keep
from measured_run import to_its_end

from fedlingua.common.files import APP_DIR
from fedlingua.desk.cli.attempt import nodes_for
from fedlingua.desk.cli.engine import Engine
from fedlingua.desk.cli.profile import PROFILES_FILE, Profile
from fedlingua.settings.experiment import default_run_config
from fedlingua_demo import phrasebook

MIB = 2**20
WANTED = {"seconds_a_site": 1.3, "memory": 1.2, "kilobytes_a_site": 100}
SETTINGS: dict[str, Any] = {
    "method": "adapter-families",
    "rounds": 2,
    "batch-size": 8,
    "evaluate-every": 1,
    "sample.share": 1.0,
    "whole-steps": False,
    "beam": 1,
    "keep.choose": False,
}


def federation(number: int, folder: Path) -> Path:
    """Write a federation of that many sites, spread over registers and directions, and return its path."""
    kinds = list(product(sorted(phrasebook.REGISTERS), ("de", "es", "pl"), ("fr", "nl", "cs")))
    sites = [
        {
            "name": f"site-{place:04d}",
            "direction": f"{source}-{target}",
            "phrasebook": register,
            "seed": 1 + place,
            "train": 16 + 8 * (place % 3),
            "dev": 2,
            "test": 1,
        }
        for place, (register, source, target) in enumerate(islice(cycle(kinds), number))
    ]
    split = {"key": "many", "train": 0.5, "dev": 0.25, "test": 0.25}
    about = {"name": f"many-{number}", "split": split, "site": sites}
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "many.toml"
    file.write_text(tomli_w.dumps(about), encoding="utf-8")
    return file


class Watched(threading.Thread):
    """Looks every second for the process of an engine that runs the ServerApp, and keeps the most memory that it ever had, in MiB."""

    def __init__(self, home: Path) -> None:
        super().__init__(daemon=True)
        self.home, self.most, self.done = home, 0.0, threading.Event()

    def run(self) -> None:
        while not self.done.wait(1):
            for process in psutil.process_iter():
                try:
                    if "flwr-simulation" in " ".join(process.cmdline()) and process.environ().get("FLWR_HOME") == str(self.home):
                        status = Path(f"/proc/{process.pid}/status").read_text()
                        kilobytes = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
                        self.most = max(self.most, int(kilobytes) * 1024 / MIB)
                except (psutil.Error, OSError, StopIteration):
                    continue


def played(number: int, drawn: int, folder: Path) -> dict[str, Any]:
    """Run one federation through Flower's engine. drawn: sites a round; 0: all."""
    settings = {
        **default_run_config(),
        **SETTINGS,
        "federation": str(federation(number, folder)),
        "sites-per-round": drawn,
        "run-dir": str(folder / "run"),
    }
    home, began = folder / "home", time.monotonic()
    watched = Watched(home)
    watched.start()
    with Engine(APP_DIR, home, Profile.read(APP_DIR / PROFILES_FILE, "simulation")) as engine:
        rounds = to_its_end(engine, settings, nodes_for(number), folder / "run", 10)
    watched.done.set()
    events = [json.loads(line) for line in (folder / "run" / "progress.jsonl").read_text().splitlines()]
    return {
        "sites": number,
        "drawn": drawn or number,
        "seconds": round(time.monotonic() - began, 1),
        "server_mib": round(watched.most, 1),
        "seconds_a_site": of_a_site(events, rounds),
    }


def of_a_site(events: Sequence[Mapping[str, Any]], rounds: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Seconds of each phase over the sites that it asked, the last time. describe reads the text, finish translates test."""
    seconds, most = dict[str, float](), 0
    for place, event in enumerate(events):
        if event["event"] == "phase":
            after = next(later for later in events[place + 1 :] if later["event"] not in ("reply", "site"))
            seconds[event["phase"]], most = round((after["time"] - event["time"]) / event["sites"], 4), max(most, event["sites"])
    pauses = [pause for one in rounds for pause in one["pause_s"].values()]
    return seconds | ({"longest_pause": round(max(pauses) / most, 4)} if pauses else {})


def ratios(figures: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of each federation beside the first: seconds a site in training, and the server's memory over what is wanted at most."""
    first = figures[0]
    return [
        {
            "sites": each["sites"],
            "drawn": each["drawn"],
            "train_a_site": round(each["seconds_a_site"]["train"] / first["seconds_a_site"]["train"], 2),
            "memory_over_wanted": round(
                each["server_mib"] / (WANTED["memory"] * first["server_mib"] + WANTED["kilobytes_a_site"] * each["sites"] / 1000),
                2,
            ),
        }
        for each in figures
    ]


def main() -> None:
    """Print the figures, and keep them where `--to` says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", type=int, nargs="+", default=[9, 100, 300, 1000])
    parser.add_argument("--drawn", type=int, default=32)
    parser.add_argument("--to", type=Path)
    given = parser.parse_args()
    figures = []
    with tempfile.TemporaryDirectory() as place:
        for number in given.sites:
            for drawn in [0, *([given.drawn] if given.drawn < number else [])]:
                figures.append(played(number, drawn, Path(place) / f"{number}-{drawn}"))
                print(json.dumps(figures[-1]), file=sys.stderr, flush=True)
    result = {"benchmark": "many_sites", "runs": figures, "beside_the_first": ratios(figures), "wanted": WANTED}
    keep(result, given.to, "flwr", "ray", "torch")


if __name__ == "__main__":
    main()
