"""A simulated run through the real engine, with the memory that all its processes take."""

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from fedlingua.common.files import APP_DIR
from fedlingua.desk.cli.engine import Engine
from fedlingua.desk.cli.profile import PROFILES_FILE, Profile
from fedlingua.desk.json_values import by_round
from fedlingua.settings.config import Settings

GIB = 2**30
ACTORS = 2
"""Ray actors that work at once, each with a copy of the trained tensors and one mapped backbone."""


@dataclass
class Peak:
    """Most bytes at one look: with what lies in /dev/shm, and of the processes alone then."""

    total: int = 0
    pss: int = 0


@dataclass(frozen=True)
class Measured:
    """What a run took, and what it wrote. seconds: from the start of the engine to its end."""

    peak: Peak
    seconds: float
    actors: int
    scores: dict[str, Any]
    rounds: list[dict[str, Any]]


def run_measured(settings: Settings, sites: int, home: Path) -> Measured:
    """Carry a run out on two actors and read its folder; ends the program with the run's reason when it fails."""
    started, cores = time.monotonic(), os.cpu_count() or ACTORS
    place = replace(Profile.read(APP_DIR / PROFILES_FILE, "simulation"), cpus_per_node=max(1, cores // ACTORS))
    run = Path(settings.run_dir)
    with Engine(APP_DIR, home, place) as engine, watched(home) as peak:
        rounds = to_its_end(engine, settings.flat(), sites, run, 5)
    return Measured(
        peak=peak,
        seconds=time.monotonic() - started,
        actors=cores // place.cpus_per_node,
        scores=json.loads((run / "scores.json").read_text()),
        rounds=rounds,
    )


def to_its_end(engine: Engine, run_config: Mapping[str, Any], nodes: int, run: Path, poll_s: float) -> list[dict[str, Any]]:
    """Carry a run out and return its rounds; ends the program with the run's reason when it fails."""
    run_id = engine.submit(run_config, num_nodes=nodes)
    while not (status := engine.status(run_id)).finished:
        time.sleep(poll_s)
    if status.outcome != "completed":
        raise SystemExit(f"the run failed: {json.loads((run / 'run.json').read_text())['reason']}")
    return list(by_round(map(json.loads, (run / "rounds.jsonl").read_text().splitlines())).values())


@contextmanager
def watched(home: Path) -> Iterator[Peak]:
    """Look every half second at the processes whose FLWR_HOME this is."""
    before, peak, done = psutil.disk_usage("/dev/shm").used, Peak(), threading.Event()

    def sample() -> None:
        while not done.wait(0.5):
            pss, shm = used_bytes(home)
            if pss + shm - before > peak.total:
                peak.total, peak.pss = pss + shm - before, pss

    watcher = threading.Thread(target=sample)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()


def used_bytes(home: Path) -> tuple[int, int]:
    """(PSS of the processes whose FLWR_HOME is this engine's, bytes in /dev/shm)."""
    pss = 0
    for process in psutil.process_iter():
        try:
            if process.environ().get("FLWR_HOME") == str(home):
                pss += process.memory_full_info().pss
        except (psutil.Error, OSError):
            continue
    return pss, psutil.disk_usage("/dev/shm").used
