"""A simulated run of 2,000 tiny rounds: what grows with the rounds of memory, open files and files on disk.

    .venv/bin/python benchmarks/many_rounds.py [--rounds 2000] [--to results.json]

Two sites of a few sentences of the phrasebook train one step of the demo backbone's adapters a round, through Flower's engine with the
profile `simulation`; dev loss after every tenth round, no last phase. After a tenth of the rounds, when everything is loaded, after half
and before the last: resident memory of the process that runs the ServerApp and of all processes together, their open files and sockets,
and the files in the run folder; besides, the seconds of a round at the start and at the end. Wanted: at the end no more open files and no
more files than after a tenth, and at most 5 % more memory. Half an hour on two slow cores; `--rounds 60` tries it in two minutes.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil
from kept import keep
from many_sites import MIB, SETTINGS, federation
from measured_run import to_its_end

from fedlingua.common.files import APP_DIR
from fedlingua.desk.cli.engine import Engine
from fedlingua.desk.cli.profile import PROFILES_FILE, Profile
from fedlingua.settings.experiment import default_run_config

SITES, LOOKS = 2, (0.1, 0.5, 1.0)
WANTED = {"memory": 1.05, "open_files": 0, "files": 0}


def look(home: Path, run: Path) -> dict[str, float]:
    """Return what an engine's processes hold now; the server's is that with the most memory among those that run the ServerApp."""
    server = memory = open_files = 0.0
    for process in psutil.process_iter():
        try:
            if process.environ().get("FLWR_HOME") != str(home):
                continue
            resident = process.memory_info().rss / MIB
            memory, open_files = memory + resident, open_files + process.num_fds()
            if "flwr-simulation" in " ".join(process.cmdline()):
                server = max(server, resident)
        except (psutil.Error, OSError):
            continue
    files = sum(1 for file in run.rglob("*") if file.is_file())
    return {"server_mib": round(server, 1), "all_mib": round(memory, 1), "open_files": int(open_files), "files": files}


class Looks(threading.Thread):
    """Looks at the processes after each share of the rounds in LOOKS; the last look is just before the last round."""

    def __init__(self, home: Path, run: Path, rounds: int) -> None:
        super().__init__(daemon=True)
        self.home, self.folder, self.rounds, self.done = home, run, rounds, threading.Event()
        self.found: list[dict[str, float]] = []

    def run(self) -> None:
        for share in LOOKS:
            wanted = min(self.rounds - 2, int(share * self.rounds))
            while (number := self.number()) < wanted and not self.done.wait(0.2):
                continue
            self.found.append({"round": number, **look(self.home, self.folder)})

    def number(self) -> int:
        """Return how many rounds have ended."""
        file = self.folder / "rounds.jsonl"
        return file.read_bytes().count(b"\n") - 1 if file.is_file() else 0


def grown(looks: list[dict[str, float]]) -> dict[str, float]:
    """Return the last look beside the first: memory as a ratio, files as a difference."""
    first, last = looks[0], looks[-1]
    ratios = {key: round(last[key] / first[key], 3) for key in ("server_mib", "all_mib")}
    return ratios | {key: last[key] - first[key] for key in ("open_files", "files")}


def main() -> None:
    """Print the figures, and keep them where `--to` says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--to", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        own: dict[str, Any] = {
            "federation": str(federation(SITES, folder)),
            "method": "adapter-fed",
            "rounds": given.rounds,
            "evaluate-every": 10,
            "learning-rate": 1e-5,
            "run-dir": str(folder / "run"),
        }
        looks = Looks(folder / "home", folder / "run", given.rounds)
        looks.start()
        began = time.monotonic()
        with Engine(APP_DIR, folder / "home", Profile.read(APP_DIR / PROFILES_FILE, "simulation")) as engine:
            rounds = to_its_end(engine, {**default_run_config(), **SETTINGS, **own}, SITES, folder / "run", 0.5)
        looks.done.set()
        looks.join()
        seconds = round(time.monotonic() - began, 1)
    print(json.dumps(looks.found), file=sys.stderr)
    tenth = max(1, given.rounds // 10)
    pace = {
        "seconds_a_round_of_the_first_tenth": sum(one["seconds"] for one in rounds[1 : 1 + tenth]) / tenth,
        "seconds_a_round_of_the_last_tenth": sum(one["seconds"] for one in rounds[-tenth:]) / tenth,
    }
    figures = {"rounds": given.rounds, "seconds": seconds, "looks": looks.found, "grown": grown(looks.found)}
    figures |= {key: round(value, 3) for key, value in pace.items()}
    keep({"benchmark": "many_rounds", **figures, "wanted": WANTED}, given.to, "flwr", "ray", "torch")


if __name__ == "__main__":
    main()
