"""The bytes that a run counts beside those that go through its sockets, over whole deployed runs.

    .venv/bin/python benchmarks/transport.py [--run metasend-g] [--rounds N] [--to FILE]

A server and three sites as `make deploy-demo` has them (processes of their own, gRPC with TLS, nodes known by their keys), each site
behind a forwarder that counts what passes. Counted is what the run folder says (traffic.json): every message, as serialized. On the wire
is everything from the run's submission to its end: the messages, what frames and encrypts them, the transport's requests for them, its
polling and heartbeats, and the app's bundle, which a node fetches once a run. What passes while there is nothing to do is measured before
the runs; the bundle's size is that of its file. Backbone: an M2M-100 of 6 M random parameters, with adapters of 16 MB, half of mBART-50's:
a run of smaller tensors has more of the transport beside them.

Ends with an error where a run's counts and its messages on the wire (without the bundle and what passes while nothing is done) differ by
more than 2 % in either way. Takes about ten minutes on two cores.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tomli_w
from forwarder import DOWN, UP, Forwarder
from kept import KEPT, write

from fedlingua.common.files import APP_DIR
from fedlingua.consent.bundle import bundle_hash
from fedlingua.consent.site_file import read_site_file
from fedlingua.desk import units
from fedlingua.desk.deployment.build import build_bundle
from fedlingua.desk.deployment.site_setup import approve
from fedlingua.desk.pretraining.build import build_model, build_tokenizer
from fedlingua.desk.pretraining.settings import ModelSize
from fedlingua.desk.processes import free_port, over_grpc
from fedlingua_demo import phrasebook

sys.path.insert(0, str(APP_DIR / "deploy"))
from demo import SITES, fedlingua, say, service, wait_for

WANTED = 0.02
"""How far the messages on the wire, framed and encrypted, may be from the count, as a share of it."""
IDLE_S = 60.0
TRIES = 4
"""Of a run that is broken off: on a machine that others keep busy, Flower may take a server that gets no turn for a dead one."""
RUNS: dict[str, dict[str, Any]] = {
    "adapter-families": {"method": "adapter-families"},
    "adapter-families, float32": {"method": "adapter-families", "send.code": "none"},
    "adapter-families, metasend-l": {"method": "adapter-families", "send.rule": "metasend-l"},
    "metasend-g": {"method": "metasend-g"},
}
"""Name -> what it differs in: adapters at four bits, uncoded, what a learned threshold takes of them, and of the full model."""
SHORT = {"beam": 1, "max-decode-tokens": 8, "max-tokens": 64, "meta.batches": 4, "adapter.dim": 512}
"""What the sites do with their text is not measured."""
SENTENCES = 60
LIMITS = {
    "settings": "within-limits",
    "tensor-sets": [],
    "max-adapter-dim": SHORT["adapter.dim"],
    "min-train": 1,
    "min-dev": 1,
    "min-test": 1,
    "min-steps": 1,
    "min-batch": 1,
}
"""Of a site, as loose as its little text needs."""
SIZE = ModelSize(d_model=256, encoder_layers=3, decoder_layers=3, heads=4, ffn_dim=1024, vocab_size=2000, max_positions=128)
RESULT = Path(f"{KEPT}:transport")
COUNTED = {UP: "uplink_bytes", DOWN: "downlink_bytes"}
HEAD = ("run", "up: counted", "on the wire", "ratio", "of messages", "down: counted", "on the wire", "ratio", "of messages")


@dataclass(frozen=True)
class Wire:
    """What passes while nothing is done, bytes a second of all sites by way, and the app's bundle, in bytes."""

    idle: Mapping[str, float]
    bundle: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", choices=RUNS, action="append", help="only this one; again for each")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--to", type=Path, help=f"where the figures go; default, of all runs: {RESULT.name}, and a table beside it"
    )
    options = parser.parse_args()
    to = options.to or (RESULT if not options.run else None)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is ended on the way out
    folder = Path(tempfile.mkdtemp(prefix="fedlingua-transport-"))
    try:
        result = measured(folder, options.run or list(RUNS), options.rounds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(result, indent=2), table(result), sep="\n\n")
    if to:
        to.parent.mkdir(parents=True, exist_ok=True)
        write(to, result)
        to.with_name("transport.md").write_text(table(result), encoding="utf-8")
    if result["farthest"] > WANTED:
        raise SystemExit(f"counts and wire differ by {result['farthest']:.2%}; wanted at most {WANTED:.0%}")


def measured(folder: Path, runs: list[str], rounds: int) -> dict[str, Any]:
    """All runs, one after the other, on the same server and sites."""
    fleet = free_port()
    with ExitStack() as stack:
        forwarders = {site: stack.enter_context(Forwarder(fleet)) for site in SITES}
        bundle = set_up(folder, fleet, {site: forwarder.port for site, forwarder in forwarders.items()})
        stack.enter_context(service(folder, "server", "start", "server"))
        wait_for(folder / "server.log", "serving")
        for site in SITES:
            stack.enter_context(service(folder, "site", "start", site))
        wire = Wire(idle(forwarders), bundle)
        found = {name: one_run(folder, f"run-{number}", RUNS[name], rounds, forwarders, wire) for number, name in enumerate(runs)}
    ratios = [way["ratio_of_messages"] for run in found.values() for way in (run[UP], run[DOWN])]
    return {
        "transport": f"{'gRPC' if over_grpc() else 'HTTP'} with TLS",
        "sites": len(SITES),
        "rounds": rounds,
        "bundle_bytes": bundle,
        "idle_bytes_a_second_and_site": {way: round(rate / len(SITES), 1) for way, rate in wire.idle.items()},
        "runs": found,
        "farthest": round(max(abs(ratio - 1) for ratio in ratios), 5),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "versions": {"flwr": version("flwr")},
    }


def set_up(folder: Path, fleet: int, ports: Mapping[str, int]) -> int:
    """The server's folder, the backbone and the sites', each of which knows its forwarder as the server; size of the bundle they run."""
    corpus = [sentence for lines in phrasebook.base_corpus(300, 1).values() for sentence in lines]
    build_model(SIZE, build_tokenizer(corpus, phrasebook.LANGUAGES, SIZE.vocab_size, folder / "backbone"), 1).save_pretrained(
        folder / "backbone"
    )
    addresses = ("--fleet", f"127.0.0.1:{fleet}", "--control", f"127.0.0.1:{free_port()}")
    fedlingua(folder, "server", "init", "--to", "server", "--name", "transport", "--host", "127.0.0.1", *addresses)
    bundle = build_bundle(APP_DIR)
    for site, direction in SITES.items():
        text = ("--phrasebook", site, "--sentences", str(SENTENCES), "--authority", "server/certificates/ca.crt")
        known = ("--name", site, "--direction", direction, "--server", f"127.0.0.1:{ports[site]}")
        fedlingua(folder, "site", "init", "--to", site, *known, *text)
        with (folder / site / "site.toml").open("a", encoding="utf-8") as file:
            file.write(tomli_w.dumps({"limits": LIMITS, "backbones": {str(folder / "backbone"): str(folder / "backbone")}}))
        approve(read_site_file(folder / site / "site.toml").approvals, bundle_hash(bundle))
    fedlingua(folder, "server", "add", "server", *(f"{site}/{site}.join.toml" for site in SITES))
    return len(bundle)


def idle(forwarders: Mapping[str, Forwarder]) -> dict[str, float]:
    """Bytes a second of all sites, by way, while they wait for something to do."""
    ends = time.monotonic() + 120
    while not all(forwarder.moved[DOWN] > 1000 for forwarder in forwarders.values()):
        if time.monotonic() > ends:
            raise SystemExit("a site has not joined within two minutes")
        time.sleep(0.5)
    time.sleep(10)  # until all have said hello
    say(f"nothing to do, for {IDLE_S:g} s")
    before = {site: forwarder.moved for site, forwarder in forwarders.items()}
    time.sleep(IDLE_S)
    passed = [difference(forwarder.moved, before[site]) for site, forwarder in forwarders.items()]
    return {way: sum(one[way] for one in passed) / IDLE_S for way in (UP, DOWN)}


def one_run(
    folder: Path, name: str, keys: Mapping[str, Any], rounds: int, forwarders: Mapping[str, Forwarder], wire: Wire
) -> dict[str, Any]:
    """What a run counted and what passed meanwhile; of one that is broken off, the next try from its start."""
    for number in range(1, TRIES):
        try:
            return whole_run(folder, f"{name}-{number}", keys, rounds, forwarders, wire)
        except subprocess.CalledProcessError:
            file = folder / f"{name}-{number}" / "run.json"
            run = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
            if run.get("status") == "failed":
                raise SystemExit(f"the run failed: {run['reason']}") from None
            say(f"the run was broken off; try {number + 1} of {TRIES}")
            time.sleep(60)  # until the sites are done with it
    return whole_run(folder, f"{name}-{TRIES}", keys, rounds, forwarders, wire)


def whole_run(
    folder: Path, name: str, keys: Mapping[str, Any], rounds: int, forwarders: Mapping[str, Forwarder], wire: Wire
) -> dict[str, Any]:
    """One try. Raises CalledProcessError where the run does not come to its end."""
    experiment = folder / f"{name}.toml"
    changes = {
        **SHORT,
        **keys,
        "rounds": rounds,
        "backbone": str(folder / "backbone"),
        "deadline.phase-s": 1200.0,
        "deadline.join-s": 300.0,
    }
    experiment.write_text(tomli_w.dumps(changes), encoding="utf-8")
    before, started = {site: forwarder.moved for site, forwarder in forwarders.items()}, time.monotonic()
    fedlingua(folder, "run", str(experiment), "--server", "server", "--to", name)
    seconds = time.monotonic() - started
    passed = {site: difference(forwarder.moved, before[site]) for site, forwarder in forwarders.items()}
    traffic = json.loads((folder / name / "traffic.json").read_text(encoding="utf-8"))
    counted = {site: {way: sum(moved[COUNTED[way]] for moved in traffic[site].values()) for way in (UP, DOWN)} for site in SITES}
    kinds = list(dict.fromkeys(kind for moved in traffic.values() for kind in moved))
    return {
        "seconds": round(seconds, 1),
        "exchanged_parameters": json.loads((folder / name / "run.json").read_text(encoding="utf-8"))["exchanged_parameters"],
        **{way: figures(way, counted, passed, wire, seconds) for way in (UP, DOWN)},
        "counted_by_kind": {
            kind: {way: sum(moved.get(kind, {}).get(COUNTED[way], 0) for moved in traffic.values()) for way in (UP, DOWN)}
            for kind in kinds
        },
    }


def figures(way: str, counted: Mapping[str, Any], passed: Mapping[str, Any], wire: Wire, seconds: float) -> dict[str, Any]:
    """One way of a run, all sites together. Ratios are to what was counted: of all that passed, and of the messages, without the bundle
    and what passes in the same time while nothing is done."""
    count, moved = (sum(one[way] for one in of_site.values()) for of_site in (counted, passed))
    bundle = wire.bundle * len(passed) if way == DOWN else 0
    return {
        "counted_bytes": count,
        "wire_bytes": moved,
        "ratio": round(moved / count, 5),
        "ratio_of_messages": round((moved - bundle - wire.idle[way] * seconds) / count, 5),
        "ratio_by_site": {site: round(one[way] / counted[site][way], 5) for site, one in passed.items()},
    }


def difference(now: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    return {way: now[way] - before[way] for way in now}


def table(result: Mapping[str, Any]) -> str:
    """The figures for people, as Markdown."""
    rows = [HEAD, ["---", *["---:"] * (len(HEAD) - 1)]]
    for name, run in result["runs"].items():
        cells = [name]
        for way in (UP, DOWN):
            told = run[way]
            cells += [units.data(told["counted_bytes"]), units.data(told["wire_bytes"])]
            cells += [f"{told['ratio']:.4f}", f"{told['ratio_of_messages']:.4f}"]
        rows.append(cells)
    rates, flower = result["idle_bytes_a_second_and_site"], result["versions"]["flwr"]
    words = (
        f"{result['sites']} sites, {result['rounds']} rounds, {result['transport']}, flwr {flower}. Counted: every message of the run, "
        "roll call to delivery, as serialized. On the wire: all that passed between the sites and the server from the run's submission "
        "to its end, with frames, encryption, requests, polling, heartbeats and the app's bundle "
        f"({units.data(result['bundle_bytes'])} a site, once); of messages: without the bundle and what passes anyhow. A site that has "
        f"nothing to do says {rates[UP]:.0f} B/s and hears {rates[DOWN]:.0f} B/s; the runs took "
        f"{', '.join(units.duration(run['seconds']) for run in result['runs'].values())}."
    )
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"# What is counted, and what goes through the sockets\n\n{lines}\n\n{words}\n"


if __name__ == "__main__":
    main()
