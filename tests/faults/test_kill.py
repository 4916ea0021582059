"""kill -9 of the real process that the ServerApp runs in, at seeded moments, and the run goes on to the same bytes.

A simulation's ServerApp lives in `flwr-simulation`, a process of its own beneath a real SuperLink; deploy/demo.py does the same to the
`flwr-serverapp` of a deployment, and the gate kills one run of the command with all its processes, in tests/fedlingua/desk/cli/test_run.py.
"""

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from fedlingua.common.files import APP_DIR
from fedlingua.desk.cli.engine import MARK, Engine
from fedlingua.desk.cli.profile import PROFILES_FILE, Profile
from fedlingua.desk.processes import end
from fedlingua.runs.folder import RunFolder
from tests.in_process import checkpoint_bytes, rounds

ROUNDS = 4
"""Of the runs that are killed twenty times."""
Moment = Callable[[RunFolder], bool]


class Simulation:
    """One engine, and runs of the same settings in it."""

    def __init__(self, engine: Engine, config: dict) -> None:
        self.engine, self.config = engine, config

    def start(self, folder: RunFolder) -> str:
        return self.engine.submit(
            {**self.config, "run-dir": str(folder.directory), "resume": self.has_begun(folder)}, num_nodes=2
        )

    def has_begun(self, folder: RunFolder) -> bool:
        return (folder.directory / "run.json").is_file()

    def finish(self, folder: RunFolder) -> float:
        """A whole run, or what is left of one; seconds from its first event to its end."""
        run_id = self.start(folder)
        ends = time.monotonic() + 300
        while not (status := self.engine.status(run_id)).finished:
            assert time.monotonic() < ends, self.engine.log_tail(run_id)
            time.sleep(0.5)
        assert status.outcome == "completed", self.engine.log_tail(run_id)
        return float(folder.read("run.json")["seconds"])

    def kill(self, folder: RunFolder, moment: Moment) -> bool:
        """Start or go on, and kill -9 at the moment; False where the run was over before."""
        run_id = self.start(folder)
        victim = self.server_app(run_id)
        while not moment(folder):
            if not victim.is_running() or victim.status() == psutil.STATUS_ZOMBIE or self.is_over(folder):
                self.engine.status(run_id)
                return False
        victim.send_signal(signal.SIGKILL)
        # What Ray keeps running for a driver that is gone would slow the next attempt down.
        executors = psutil.Process(self.engine._superlink.pid).children()
        end([process for executor in executors for process in executor.children(recursive=True)], 1.0)
        return True

    def is_over(self, folder: RunFolder) -> bool:
        return (folder.read("run.json") or {}).get("status") == "completed"

    def server_app(self, run_id: str) -> psutil.Process:
        ends = time.monotonic() + 60
        while time.monotonic() < ends:
            for process in psutil.process_iter():
                try:
                    words = process.cmdline()
                    if (
                        any(word.endswith("flwr-simulation") for word in words)
                        and process.environ().get(MARK) == self.engine._mark
                    ):
                        return process
                except (psutil.Error, OSError):
                    continue
            time.sleep(0.05)
        raise AssertionError(f"no flwr-simulation\n{self.engine.log_tail(run_id)}")


def after(seconds: float) -> Moment:
    """So long after the attempt's first event."""
    began: list[float] = []

    def moment(folder: RunFolder) -> bool:
        if not began and folder.checkpoints.directory.parent.joinpath("progress.jsonl").is_file():
            began.append(time.monotonic())
        time.sleep(0.005)
        return bool(began) and time.monotonic() - began[0] >= seconds

    return moment


def while_a_checkpoint_is_written(number: int) -> Moment:
    return lambda folder: (folder.checkpoints.directory / f".{number:04d}.writing").is_dir()


@pytest.fixture
def simulation(four_sites, tmp_path):
    # Every attempt starts its clients anew, each with torch to load: on a slow machine that is more than a test's usual deadline.
    config = {**four_sites, "method": "adapter-families", "rounds": ROUNDS, "deadline.join-s": 180.0}
    with Engine(APP_DIR, tmp_path / "home", Profile.read(APP_DIR / PROFILES_FILE, "simulation")) as engine:
        yield Simulation(engine, config)


def check(folder: RunFolder, unbroken: RunFolder) -> int:
    """The bytes are those of the unbroken run; how many whole rounds were made again (at most one a kill is allowed)."""
    assert checkpoint_bytes(folder) == checkpoint_bytes(unbroken)
    for site in ("hospital", "court", "school", "bank"):
        adapter = Path("sites") / site / "adapter" / "adapter.safetensors"
        assert (folder.directory / adapter).read_bytes() == (unbroken.directory / adapter).read_bytes()
    assert [(r["round"], r["dev_loss"]) for r in rounds(folder)] == [(r["round"], r["dev_loss"]) for r in rounds(unbroken)]
    events = [line for line in (folder.directory / "progress.jsonl").read_text().split("\n") if '"event": "round"' in line]
    return len(events) - len(rounds(folder))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_twenty_kills_uniform_over_the_run_end_in_the_same_bytes(simulation, tmp_path):
    """Each in a run of its own; at least three inside the writing of a checkpoint, told by what is left of it.

    A moment that comes after the run's end is drawn again, over the shorter time that this run took.
    """
    unbroken = RunFolder(tmp_path / "unbroken")
    seconds = simulation.finish(unbroken)
    chance = random.Random(2022)
    kills = inside = again = 0
    for number in range(60):
        while_writing = inside < 3 and kills % 4 == 3
        moment = while_a_checkpoint_is_written(chance.randint(0, ROUNDS)) if while_writing else after(chance.uniform(0, seconds))
        folder = RunFolder(tmp_path / f"killed-{number}")
        if not simulation.kill(folder, moment):
            seconds = min(seconds, float(folder.read("run.json")["seconds"] or seconds))
            continue
        kills += 1
        inside += bool(list(folder.checkpoints.directory.glob("*.writing")))
        simulation.finish(folder)
        made_again = check(folder, unbroken)
        assert made_again <= 1
        again += made_again
        print(f"kill {kills}: {made_again} round made again, {inside} inside the writing of a checkpoint so far", flush=True)
        if kills >= 20 and inside >= 3:
            break
    assert kills >= 20
    assert inside >= 3
    print(f"{kills} of {kills} ended in the same bytes; {inside} inside the writing of a checkpoint, {again} rounds made again")
