"""`fedlingua serve` under 16 clients for a minute, beside sentences translated one by one: sentences a second, waiting times, memory.

    python benchmarks/serving.py --run runs/demo [--seconds 60] [--clients 16] [--sentences 60] [--to results.json]

Every client asks for one sentence after another, of any site of the run; another one sends bad requests all the while, and has to be
told what is wrong with each. Every answer is held against what `fedlingua translate` makes of the sentence by itself. One by one is timed
before and after, in this process, on the same two cores; the server is a process of its own and shares them with its clients. Where other
work shares the cores, the wall clock counts that too; a process's own time on a core does not, so that decides. Memory is
the server's resident set, looked at every second: growth is from the second third's median to the last one's.
"""

import argparse
import contextlib
import http.client
import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import torch
from kept import keep

from fedlingua.desk.translating.decoding import Decoding
from fedlingua.desk.translating.models import RunModels
from fedlingua.desk.translating.site_translations import read_site_translations
from fedlingua.desk.translating.translator import Translator

WANTED_RATIOS, MOST_GROWTH_MIB = {"one_site": 2.0, "all_sites": 1.0}, 8.0
"""Sentences a core's second over one by one, and what the server may take more of memory; else the benchmark ends with an error. Requests
for different sites cannot go together, so that those of nine leave batches of three or so."""
CORES = frozenset({0, 1})
BAD: tuple[tuple[bytes, tuple[int, ...]], ...] = (
    (b"{", (422,)),
    (b'{"sentences": ["a"]}', (422,)),
    (b'{"site": "nobody", "sentences": ["a"]}', (404,)),
    (b'{"source": "de", "target": "xx", "sentences": ["a"]}', (404,)),
    (json.dumps({"site": "nobody", "sentences": ["a" * 3000]}).encode(), (404, 422)),
    (b"0" * 10_000_000, (413,)),
)
"""Body, and the statuses of which one is right."""


@dataclass
class Heard:
    """What the clients were answered. seconds: of each request."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    other_text: int = 0
    bad: int = 0
    bad_answered_otherwise: int = 0


@contextmanager
def served(run: Path, threads: int) -> Iterator[tuple[str, psutil.Process]]:
    """A server of its own process, ended by SIGTERM; its address."""
    command = [
        sys.executable,
        "-c",
        "from fedlingua.desk.cli.app import main; main()",
        "serve",
        "--run",
        str(run),
        "--port",
        "0",
        "--threads",
        str(threads),
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        if not line.startswith("http://"):
            raise SystemExit(f"no server: {line}{process.stderr.read()}")
        address = line.partition(": ")[0]
        _ask(address, "GET", "/health", b"")  # answered once the model is there
        yield address, psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        if process.wait(30) != 0:
            raise SystemExit(f"the server ended with {process.returncode}; wanted 0")


def _ask(address: str, method: str, path: str, body: bytes) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=90)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def client(address: str, wanted: Mapping[tuple[str, str], str], seed: int, ends: float, heard: Heard) -> None:
    """One sentence after another over one connection, until time is up."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=90)
    rng, texts = random.Random(seed), sorted(wanted)
    while time.monotonic() < ends:
        site, sentence = rng.choice(texts)
        body = json.dumps({"site": site, "sentences": [sentence]}).encode()
        started = time.monotonic()
        try:
            connection.request("POST", "/v1/translate", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            found = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            heard.failures[type(error).__name__] += 1
            connection.close()
            continue
        heard.statuses[answer.status] += 1
        heard.seconds.append(time.monotonic() - started)
        if answer.status == 200 and found["translations"] != [wanted[site, sentence]]:
            heard.other_text += 1
    connection.close()


def pest(address: str, ends: float, heard: Heard) -> None:
    """Bad requests, each over a connection of its own, twice a second."""
    for body, right in itertools.cycle(BAD):
        if time.monotonic() > ends:
            return
        try:
            status, _ = _ask(address, "POST", "/v1/translate", body)
        except (OSError, http.client.HTTPException) as error:
            heard.failures[f"bad request: {type(error).__name__}"] += 1
            status = 0
        heard.bad += 1
        heard.bad_answered_otherwise += status not in right
        time.sleep(0.5)


def under_load(
    address: str, process: psutil.Process, wanted: Mapping[tuple[str, str], str], clients: int, seconds: float
) -> dict[str, Any]:
    """All clients at once for so long."""
    heard, started = Heard(), time.monotonic()
    before, core = json.loads(_ask(address, "GET", "/health", b"")[1]), _core_s(process)
    ends = started + seconds
    threads = [threading.Thread(target=client, args=(address, wanted, number, ends, heard)) for number in range(clients)]
    threads.append(threading.Thread(target=pest, args=(address, ends, heard)))
    for thread in threads:
        thread.start()
    memory = []
    while time.monotonic() < ends:
        pin(process)
        memory.append(process.memory_info().rss / 2**20)
        time.sleep(min(1.0, seconds / 12))
    for thread in threads:
        thread.join()
    taken = time.monotonic() - started
    after, core = json.loads(_ask(address, "GET", "/health", b"")[1]), _core_s(process) - core
    found = figures(heard, taken)
    return {
        **found,
        "sentences_a_core_second": round(found["sentences"] / core, 1),
        **growth(memory),
        "sentences_a_batch": _share(after, before, "sentences", "batches"),
    }


def pin(process: psutil.Process) -> None:
    """Keep this process and the server, with all their threads, on the first cores, whatever else moves them."""
    for one in (psutil.Process(), process):
        for thread in one.threads():
            with contextlib.suppress(OSError):  # it has ended
                os.sched_setaffinity(thread.id, CORES)


def _core_s(process: psutil.Process) -> float:
    """Seconds that a process has had on a core."""
    times = process.cpu_times()
    return float(times.user + times.system)


def _share(after: Mapping[str, int], before: Mapping[str, int], above: str, below: str) -> float:
    return round((after[above] - before[above]) / max(1, after[below] - before[below]), 2)


def figures(heard: Heard, taken: float) -> dict[str, Any]:
    """What was heard in `taken` seconds: one sentence a request."""
    marks = statistics.quantiles(heard.seconds, n=100)
    return {
        "sentences": heard.statuses[200],
        "sentences_a_second": round(heard.statuses[200] / taken, 1),
        "request_s": {"median": round(marks[49], 3), "95": round(marks[94], 3), "99": round(marks[98], 3)},
        "statuses": {str(status): number for status, number in sorted(heard.statuses.items())},
        "failures": dict(heard.failures),
        "other_text": heard.other_text,
        "bad_requests": heard.bad,
        "bad_requests_answered_otherwise": heard.bad_answered_otherwise,
    }


def growth(memory: list[float]) -> dict[str, Any]:
    """Of a server's resident set in MiB, from looks at equal distances."""
    third = max(1, len(memory) // 3)
    first, last = statistics.median(memory[third : 2 * third] or memory), statistics.median(memory[-third:])
    return {"memory_mib": {"second_third": round(first, 1), "last_third": round(last, 1), "growth": round(last - first, 1)}}


def one_by_one(
    translators: Mapping[str, Translator], texts: list[tuple[str, str]]
) -> tuple[dict[tuple[str, str], str], float, float]:
    """(translations, seconds, of them on a core)"""
    pin(psutil.Process())
    started, core = time.monotonic(), time.process_time()
    found = {(site, sentence): translators[site].translate([sentence])[0] for site, sentence in texts}
    return found, time.monotonic() - started, time.process_time() - core


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="a finished run of the demo, in simulation")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--sentences", type=int, default=60, help="of each site")
    parser.add_argument("--to", type=Path, help="write the figures here as JSON")
    parser.add_argument("--threads", type=int, default=1, help="of torch, in either process")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    run = RunModels(chosen.run)
    texts = [
        (site, sentence)
        for site, kept in read_site_translations(chosen.run).items()
        for sentence in kept.hypothesis.sources[: chosen.sentences]
    ]
    translators = {site: Translator(run.of_site(site), Decoding(most=1)) for site in run.sites}
    one_by_one(translators, texts[:20])  # warms up
    wanted, before, core_before = one_by_one(translators, texts)
    with served(chosen.run, chosen.threads) as (address, process):
        under_load(address, process, wanted, chosen.clients, min(10.0, chosen.seconds / 4))  # warms up
        load = under_load(address, process, wanted, chosen.clients, chosen.seconds)
        first = texts[0][0]
        own = {key: translation for key, translation in wanted.items() if key[0] == first}
        one_site = under_load(address, process, own, chosen.clients, chosen.seconds / 3)
    _, after, core_after = one_by_one(translators, texts)
    alone = [round(len(texts) / taken, 1) for taken in (before, after)]
    rate, core_rate = (2 * len(texts) / taken for taken in (before + after, core_before + core_after))
    result = {
        "run": {
            "method": run.settings.method,
            "backbone": run.settings.backbone,
            "beam": run.settings.beam,
            "sites": len(run.sites),
        },
        "clients": chosen.clients,
        "seconds": chosen.seconds,
        "one_by_one": {
            "sentences_a_second": {"before": alone[0], "after": alone[1]},
            "sentences_a_core_second": round(core_rate, 1),
        },
        "served": load,
        "served_of_one_site": one_site,
        "served_over_one_by_one": {
            name: {
                "wall": round(phase["sentences_a_second"] / rate, 2),
                "core": round(phase["sentences_a_core_second"] / core_rate, 2),
            }
            for name, phase in (("all_sites", load), ("one_site", one_site))
        },
        "wanted_ratios": WANTED_RATIOS,
        "usable_cores": len(CORES),
        "threads": chosen.threads,
        "load": round(os.getloadavg()[0], 1),
    }
    keep(result, chosen.to, "torch", "transformers", "fastapi", "uvicorn")
    for what, phase in (("all sites", load), ("one site", one_site)):
        faults = {
            "failures": phase["failures"],
            "statuses": {status: number for status, number in phase["statuses"].items() if status != "200"},
            "other_text": phase["other_text"],
            "bad_requests_answered_otherwise": phase["bad_requests_answered_otherwise"],
        }
        if any(faults.values()):
            raise SystemExit(f"{what}: {faults}; wanted none")
        if phase["memory_mib"]["growth"] > MOST_GROWTH_MIB:
            raise SystemExit(f"{what}: the server grew by {phase['memory_mib']['growth']} MiB; wanted at most {MOST_GROWTH_MIB}")
    for name, wanted_ratio in WANTED_RATIOS.items():
        if (found := result["served_over_one_by_one"][name]["core"]) < wanted_ratio:
            raise SystemExit(f"{name}: served over one by one is {found}; wanted {wanted_ratio}")


if __name__ == "__main__":
    main()
