"""Peak memory of the server in a deployed run of a full model: the ServerApp's with 12 sites beside that with 3.

    .venv/bin/python benchmarks/server_memory.py [--to results.json] [--small]

A SuperLink, two SuperNodes that host the sites between them, and the ServerApp run as processes on loopback, without TLS, which the
ServerApp has no part in. `model-fed` for one round on an M2M-100 of 60 million parameters with random weights, so every site's update is
a quarter of a gigabyte. Measured is VmHWM of the `flwr-serverapp` process, as the kernel counts it. `--small` takes a model of half a
million parameters, to try the benchmark itself. Needs 10 GB of memory, 20 GB of disk and a quarter of an hour on two cores.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import psutil
import tomli_w
from kept import write

from deploy.demo import COMMAND, cmdline, environment, fedlingua, say, service, wait_for
from fedlingua.common.files import APP_DIR
from fedlingua.desk.deployment.server_file import read_server_file
from fedlingua.desk.pretraining.build import build_model, build_tokenizer
from fedlingua.desk.pretraining.settings import ModelSize
from fedlingua.desk.processes import free_port
from fedlingua_demo import phrasebook

MIB = 2**20
WANTED_RATIO = 1.2
SITES = (3, 12)
NODES = 2
EXPERIMENT = APP_DIR / "experiments" / "deployment" / "demo.toml"
DIRECTIONS = ("de-fr", "nl-es", "pl-sv", "cs-de", "sv-it", "fr-pl")
FULL = ModelSize(d_model=512, encoder_layers=6, decoder_layers=6, heads=8, ffn_dim=3200, vocab_size=1000)
SMALL = ModelSize(d_model=64, vocab_size=1000)


def make_backbone(directory: Path, size: ModelSize) -> None:
    """An M2M-100 with random weights and a vocabulary of the phrasebook's."""
    text = phrasebook.base_corpus(1000, 1)
    tokenizer = build_tokenizer(
        [line for lines in text.values() for line in lines], phrasebook.LANGUAGES, size.vocab_size, directory
    )
    build_model(size, tokenizer, seed=1).save_pretrained(directory)


@dataclass
class Peaks:
    """Of one process, as long as it lives; in MiB. hwm: the kernel's own peak; anonymous: without mapped files, sampled; phases: of RSS."""

    hwm: float = 0.0
    anonymous: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)

    def look(self, pid: int, phase: str) -> None:
        try:
            lines = Path(f"/proc/{pid}/status").read_text().split("\n")
        except OSError:
            return
        values = {line.partition(":")[0]: line.split()[1] for line in lines if line.startswith(("VmHWM", "VmRSS", "RssAnon"))}
        if len(values) == 3:  # none of them in a process that has just ended
            self.hwm = max(self.hwm, int(values["VmHWM"]) * 1024 / MIB)
            self.anonymous = max(self.anonymous, int(values["RssAnon"]) * 1024 / MIB)
            self.phases[phase] = max(self.phases.get(phase, 0.0), int(values["VmRSS"]) * 1024 / MIB)


def deploy(folder: Path, backbone: Path, sites: int) -> None:
    """A server's folder and its nodes', as their people would make them; a node speaks for several sites."""
    addresses = ("--fleet", f"127.0.0.1:{free_port()}", "--control", f"127.0.0.1:{free_port()}")
    fedlingua(folder, "server", "init", "--to", "server", "--name", "memory", "--host", "127.0.0.1", *addresses, "--insecure")
    server = read_server_file(folder / "server")
    entries = [
        {"name": f"{register}{number}", "direction": direction, "phrasebook": register, "sentences": 40}
        for number, (register, direction) in enumerate(
            islice(zip(cycle(phrasebook.REGISTERS), cycle(DIRECTIONS), strict=False), sites)
        )
    ]
    split = {"mode": "shared-side", "key": "memory", "train": 0.6, "dev": 0.2, "test": 0.2}
    known = [{key: entry[key] for key in ("name", "direction")} for entry in entries]
    server.federation.write_text(tomli_w.dumps({"name": "memory", "site": known, "split": split}), encoding="utf-8")
    for node in range(NODES):
        home = folder / f"node{node}"
        home.mkdir()
        told = {
            "site": entries[node::NODES],
            "server": {"address": server.fleet, "insecure": True},
            "backbones": {str(backbone): str(backbone)},
        }
        (home / "site.toml").write_text(tomli_w.dumps(told), encoding="utf-8")
        fedlingua(folder, "site", "approve", "--site", str(home))


def measure(folder: Path, backbone: Path, sites: int) -> dict[str, Any]:
    """One run with so many sites."""
    folder.mkdir()
    deploy(folder, backbone, sites)
    changes = {
        "method": "model-fed",
        "backbone": str(backbone),
        "rounds": 1,
        "batch-size": 4,
        "accumulation": 1,
        "learning-rate": 5e-5,
        "max-tokens": 32,
        "beam": 1,
        "max-decode-tokens": 4,
        "deadline.phase-s": 3600.0,
    }
    given = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    peaks, done, started = Peaks(), threading.Event(), time.monotonic()

    def watch() -> None:
        while not done.wait(0.2):
            for process in psutil.process_iter():
                if "flwr-serverapp" in cmdline(process) and str(folder) in environment(process):
                    peaks.look(process.pid, phase_of(folder / "run"))

    with ExitStack() as stack:
        stack.enter_context(service(folder, "server", "start", "server"))
        wait_for(folder / "server.log", "serving")
        for node in range(NODES):
            stack.enter_context(service(folder, "site", "start", f"node{node}"))
        watcher = threading.Thread(target=watch)
        watcher.start()
        stack.callback(watcher.join)
        stack.callback(done.set)
        subprocess.run(
            [*COMMAND, "run", str(EXPERIMENT), "--server", "server", "--to", "run", *given],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            check=True,
        )
    run = json.loads((folder / "run" / "run.json").read_text())
    rounds = [json.loads(line) for line in (folder / "run" / "rounds.jsonl").read_text().split("\n")[:-1]]
    assert run["status"] == "completed"
    assert len(rounds[1]["sites"]) == sites
    return {
        "sites": sites,
        "peak_mib": round(peaks.hwm, 1),
        "peak_anonymous_mib": round(peaks.anonymous, 1),
        "peak_rss_mib_by_phase": {phase: round(peak, 1) for phase, peak in peaks.phases.items()},
        "exchanged_parameters": run["exchanged_parameters"],
        "seconds": round(time.monotonic() - started, 1),
    }


def phase_of(run: Path) -> str:
    """Where the run is, by its own progress."""
    file = run / "progress.jsonl"
    lines = file.read_text(encoding="utf-8").split("\n")[:-1] if file.is_file() else []
    events = [json.loads(line) for line in lines if line]
    phases = [f"{event['phase']} {event['round']}" for event in events if event["event"] == "phase"]
    return phases[-1] if phases else "start"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, help="also write the figures as JSON")
    parser.add_argument("--small", action="store_true", help="a small model, to try the benchmark itself")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is ended on the way out
    folder = Path(tempfile.mkdtemp(prefix="fedlingua-memory-"))
    try:
        # In a process of its own, so that making it takes no memory from what is measured.
        size = SMALL if options.small else FULL
        maker = multiprocessing.get_context("spawn").Process(target=make_backbone, args=(folder / "backbone", size))
        maker.start()
        try:
            maker.join()
        finally:
            maker.kill()
            maker.join()
        runs = {}
        for sites in SITES:
            runs[sites] = measure(folder / f"sites{sites}", folder / "backbone", sites)
            say(f"{sites} sites: {json.dumps(runs[sites])}")
            shutil.rmtree(folder / f"sites{sites}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    few, many = (runs[sites] for sites in SITES)
    result = {
        "runs": list(runs.values()),
        "ratio": round(many["peak_mib"] / few["peak_mib"], 3),
        "ratio_anonymous": round(many["peak_anonymous_mib"] / few["peak_anonymous_mib"], 3),
        "wanted_ratio": WANTED_RATIO,
        "nodes": NODES,
        "versions": {name: version(name) for name in ("flwr", "torch", "numpy")},
        "load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(result, indent=2))
    if options.to:
        write(options.to, result)
    if not options.small and result["ratio"] > WANTED_RATIO:
        raise SystemExit(f"{SITES[1]} sites take {result['ratio']} x the memory of {SITES[0]}; wanted {WANTED_RATIO} x or less")


if __name__ == "__main__":
    main()
