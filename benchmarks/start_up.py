"""Seconds from `fedlingua run` to the first trained update, beside those from `flwr run` to the first reply of an app that does nothing.

    .venv/bin/python benchmarks/start_up.py [--repeats 3] [--to experiments/results/benchmarks/kept.jsonl:start_up]

Both simulate nine sites with a core each, and nothing of an earlier run still runs: ours is the demo with its backbone made before, the
other an app of two functions that imports flwr alone, in the same environment (no telemetry). The two take turns. Wanted: at most 12 s,
and at most 1.3 times the empty app's. Two minutes on two cores.
"""

import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kept import keep, parser_of
from paired import figures, ratio

from fedlingua.desk.processes import end_marked, flower_environment, program

ROOT = Path(__file__).parents[1]
MARK, SITES, MOST_S = "FEDLINGUA_START_UP", 9, 300.0
WANTED = {"seconds": 12, "over_empty": 1.3}
PROJECT = """[project]
name = "empty"
version = "1.0.0"
[tool.flwr.app]
publisher = "nobody"
[tool.flwr.app.components]
serverapp = "empty:server"
clientapp = "empty:client"
"""
APP = f"""import os
import time
from pathlib import Path
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

server = ServerApp()
client = ClientApp()

@server.main()
def main(grid, context):
    while len(nodes := list(grid.get_node_ids())) < {SITES}:
        time.sleep(0.05)
    asked = [Message(RecordDict(), dst_node_id=node, message_type="train") for node in nodes]
    assert len(list(grid.send_and_receive(asked))) == len(asked)
    Path(os.environ["FLWR_HOME"], "answered").touch()

@client.train()
def train(message, context):
    return Message(RecordDict(), reply_to=message)
"""


@contextmanager
def started(command: list[str], home: Path) -> Iterator[None]:
    """Start a command, and end it with everything that it has started."""
    mark = uuid.uuid4().hex
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, env={**flower_environment(home), MARK: mark}, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            end_marked(MARK, mark, 10.0)
            process.wait()


def seconds_until(file: Path, text: str, log: Path) -> float:
    """Wait until a file has a text in it; ends the program if that takes too long."""
    began = time.monotonic()
    while not (file.is_file() and text in file.read_text(encoding="utf-8")):
        if time.monotonic() - began > MOST_S:
            raise SystemExit(f"no {text!r} in {file} after {MOST_S:g} s:\n{log.read_text(encoding='utf-8')}")
        time.sleep(0.05)
    return time.monotonic() - began


def ours() -> float:
    """Return the seconds to the first update of the demo's sites."""
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        settings = ["--set", "rounds=1", "--set", "keep.choose=false", "--to", str(home / "run")]
        with started([program("fedlingua"), "run", str(ROOT / "experiments" / "demo.toml"), *settings], home):
            return seconds_until(home / "run" / "progress.jsonl", '"event": "reply", "phase": "train"', home / "log")


def empty() -> float:
    """Return the seconds to the replies of the app that does nothing."""
    with tempfile.TemporaryDirectory() as place:
        home, app = Path(place), Path(place) / "app"
        app.mkdir()
        (app / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
        (app / "empty.py").write_text(APP, encoding="utf-8")
        (home / "config.toml").write_text(
            '[superlink]\ndefault = "local"\n[superlink.local]\naddress = ":local:"\n', encoding="utf-8"
        )
        nodes = f"num-supernodes={SITES} client-resources-num-cpus=1"
        with started([program("flwr"), "run", str(app), "--federation-config", nodes], home):
            return seconds_until(home / "answered", "", home / "log")


def main() -> None:
    """Print the figures, and keep them where `--to` says."""
    given = parser_of(__doc__, repeats=3).parse_args()
    seconds = {"ours": list[float](), "empty": list[float]()}
    for _ in range(given.repeats):
        for way, measure in (("ours", ours), ("empty", empty)):
            seconds[way].append(measure())
            print(f"{way}: {seconds[way][-1]:.1f} s", file=sys.stderr, flush=True)
    beside = {"ours_over_empty": ratio(seconds["ours"], seconds["empty"]), "wanted": WANTED}
    keep({"benchmark": "start_up", "sites": SITES, **figures(seconds), **beside}, given.to, "flwr", "ray", "torch")


if __name__ == "__main__":
    main()
