"""`make deploy-demo`: three sites across processes on this machine, over TLS with authenticated nodes, and what may not join does not.

A SuperLink and three SuperNodes run as they would on four machines: each in a directory of its own with a FLWR_HOME of its own. The
ServerApp is killed in the middle and the run resumed. What each site ends with is compared, byte for byte, with a simulation of the
same sites and seed.
"""

import argparse
import hashlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import tomli_w

from fedlingua.consent.site_file import SiteFile, read_site_file
from fedlingua.desk.deployment.programs import supernode_command
from fedlingua.desk.deployment.service import Service, last_words
from fedlingua.desk.deployment.site_setup import make_key
from fedlingua.desk.experiment import parse_override
from fedlingua.desk.json_values import by_round
from fedlingua.desk.processes import flower_environment, free_port, over_grpc

APP = Path(__file__).resolve().parents[1]
EXPERIMENT = APP / "experiments" / "deployment" / "demo.toml"
SITES = {"hospital": "de-fr", "court": "nl-es", "school": "pl-sv"}
SENTENCES = 240
LIMITS = "min-dev = 15\nmin-test = 15\n"
"""Of sites with 240 sentences, which the defaults call too few to answer on. [limits] is the last table that `site init` writes."""
HANG_DEADLINE_S = 30.0
COMMAND = [sys.executable, "-c", "from fedlingua.desk.cli.app import main; main()"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="write the figures to this JSON file")
    parser.add_argument("--hang", action="store_true", help="also freeze a site in the middle of a round, and time the round")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="another key of the run, as send.rule=metasend-l"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is ended on the way out
    folder = Path(tempfile.mkdtemp(prefix="fedlingua-deploy-"))
    transport = "gRPC" if over_grpc() else "HTTP"
    say(f"flwr {version('flwr')}, {transport} with TLS; everything lies in {folder}")
    try:
        figures = demonstrate(folder, options.hang, options.set)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    figures |= {"flwr": version("flwr"), "transport": transport}
    if options.keep:
        options.keep.parent.mkdir(parents=True, exist_ok=True)
        options.keep.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    say("all as it has to be")


def demonstrate(folder: Path, hang: bool, changes: list[str]) -> dict[str, Any]:
    """The whole story; raises where something is not as it has to be. changes: key=value, of the experiment."""
    experiment = folder / "experiment.toml"
    experiment.write_text(tomli_w.dumps(read_toml(EXPERIMENT) | dict(map(parse_override, changes))), encoding="utf-8")
    set_up(folder, experiment)
    figures: dict[str, Any] = {}
    with ExitStack() as stack:
        stack.enter_context(service(folder, "server", "start", "server"))
        wait_for(folder / "server.log", "serving")
        show_refusals(folder)
        say("a site checks itself; it may join, by the same way that the two before were refused")
        known = ("--experiment", str(experiment), "--federation", "server/federation.toml")
        fedlingua(folder, "site", "check", "hospital", *known)
        for site in SITES:
            stack.enter_context(service(folder, "site", "start", site))
        run_and_kill(folder, experiment)
        started = time.monotonic()
        say("the run is resumed")
        fedlingua(folder, "run", "--resume", "run", "--server", "server")
        say(f"resumed and finished in {time.monotonic() - started:.0f} s")
        fedlingua(folder, "status", "run")
        show_logs(folder)
        if hang:
            figures["hanging"] = freeze_a_site(folder, experiment)
    say("the same sites and seed, simulated")
    fedlingua(folder, "run", str(experiment), "--to", "simulated", "--set", f"federation={simulated_federation(folder)}")
    return compare(folder) | figures


def set_up(folder: Path, experiment: Path) -> None:
    """A server's folder and three sites', as their people would make them, who have approved the experiment."""
    fleet, control = free_port(), free_port()
    addresses = ("--fleet", f"127.0.0.1:{fleet}", "--control", f"127.0.0.1:{control}")
    fedlingua(folder, "server", "init", "--to", "server", "--name", "three-sites", "--host", "127.0.0.1", *addresses)
    server = read_toml(folder / "server" / "server.toml")["fleet"]
    for site, direction in SITES.items():
        corpus = ("--phrasebook", site, "--sentences", str(SENTENCES), "--authority", "server/certificates/ca.crt")
        fedlingua(folder, "site", "init", "--to", site, "--name", site, "--direction", direction, "--server", server, *corpus)
        with (folder / site / "site.toml").open("a", encoding="utf-8") as file:
            file.write(LIMITS)
    fedlingua(folder, "server", "add", "server", *(f"{site}/{site}.join.toml" for site in SITES))
    approve(folder, experiment)


def approve(folder: Path, experiment: Path, *changes: str) -> None:
    """At every site; who sits there reads what is shown and says yes."""
    for site in SITES:
        what = ("--experiment", str(experiment), "--federation", "server/federation.toml", *changes)
        fedlingua(folder, "site", "approve", "--site", site, "--yes", *what)


def show_logs(folder: Path) -> None:
    """Every site's audit log, which has to be whole, with a line for each message of the run."""
    for site in SITES:
        fedlingua(folder, "site", "log", site)
        lines = [json.loads(line) for line in (folder / site / "state" / "audit.jsonl").read_text().split("\n")[:-1]]
        kinds = {line["asked"] for line in lines}
        if not {"query.describe", "evaluate", "evaluate.finish"} <= kinds or any(line["refused"] for line in lines):
            raise SystemExit(f"the log of {site} has {', '.join(sorted(kinds))}, and refused what it should not")


def show_refusals(folder: Path) -> None:
    """A node without TLS and a node with a key that nobody entered do not get in."""
    site = read_site_file(folder / "hospital" / "site.toml")
    make_key(folder / "stranger.key")
    for who, node in {
        "a plain-text node": replace(site, insecure=True),
        "a node with an unregistered key": replace(site, key=folder / "stranger.key"),
    }.items():
        joined, log = try_to_join(node, folder)
        if joined:
            raise SystemExit(f"{who} was let in:\n{log}")
        say(f"{who} is refused: {last_words(log)}")


def try_to_join(site: SiteFile, folder: Path) -> tuple[bool, str]:
    """Whether a SuperNode gets an id within two tries, and what it printed."""
    home = Path(tempfile.mkdtemp(dir=folder))
    command = supernode_command(site, free_port(), max_retries=1)
    with Service("a SuperNode", command, flower_environment(home), home, home / "log") as supernode:
        ends = time.monotonic() + 60
        while not supernode.ended and "SuperNode ID" not in supernode.printed() and time.monotonic() < ends:
            time.sleep(0.2)
        return "SuperNode ID" in supernode.printed(), supernode.printed()


def run_and_kill(folder: Path, experiment: Path) -> None:
    """Start the run and kill -9 the ServerApp once round 1 is whole."""
    say("the run starts")
    with (folder / "run.log").open("w") as log:
        command = [*COMMAND, "run", str(experiment), "--server", "server", "--to", "run"]
        running = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + 600
        while len(rounds(folder / "run")) < 2:
            if running.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the run did not get through round 1:\n{(folder / 'run.log').read_text()}")
            time.sleep(0.1)
        server_app = [
            process
            for process in psutil.process_iter()
            if "flwr-serverapp" in cmdline(process) and str(folder) in environment(process)
        ]
        for process in server_app:
            process.send_signal(signal.SIGKILL)
        running.wait(timeout=120)
    pids = ", ".join(str(process.pid) for process in server_app)
    say(f"kill -9 of the ServerApp (pid {pids}) after round {rounds(folder / 'run')[-1]['round']}")
    print("  " + (folder / "run.log").read_text().strip().replace("\n", "\n  "))


def freeze_a_site(folder: Path, experiment: Path) -> dict[str, float]:
    """Stop every process of one site at the beginning of round 1, and see what the round costs the others."""
    deadline_s = 2 * HANG_DEADLINE_S  # the request to train also measures the base, and has the time of both phases
    say(f"the school's processes are frozen when round 1 begins; deadline {deadline_s:g} s")
    changes = {"rounds": 1, "quorum": 0.6, "deadline.phase-s": HANG_DEADLINE_S}
    given = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    approve(folder, experiment, "--set", "rounds=1")
    command = [*COMMAND, "run", str(experiment), "--server", "server", "--to", "hanging", *given]
    running = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not rounds(folder / "hanging") and time.monotonic() < deadline:
        time.sleep(0.1)
    frozen = [process for process in psutil.process_iter() if str(folder / "school") in environment(process)]
    for process in frozen:
        process.suspend()
    try:
        running.wait(timeout=600)
    finally:
        for process in frozen:
            process.resume()
    record = rounds(folder / "hanging")[1]
    training, kinds = record["phase_s"]["train"], {failure["kind"] for failure in record["failures"]}
    told = f"{len(frozen)} frozen processes ({', '.join(sorted(kinds))})"
    say(f"round 1 with {told}: training {training:.1f} s, round {record['seconds']:.1f} s")
    return {
        "deadline_s": deadline_s,
        "training_s": training,
        "round_s": record["seconds"],
        "ratio": training / deadline_s,
    }


def simulated_federation(folder: Path) -> Path:
    """The server's federation file, with each site's corpus from the site's own file and without keys."""
    federation = read_toml(folder / "server" / "federation.toml")
    federation["site"] = [read_toml(folder / site / "site.toml")["site"][0] for site in SITES]
    file = folder / "simulated.toml"
    file.write_text(tomli_w.dumps(federation), encoding="utf-8")
    return file


def compare(folder: Path) -> dict[str, Any]:
    """Delivered models and scores of both ways, the first by hash; figures of the deployed rounds.

    Private training draws its noise from the system, so two such runs differ and are not compared.
    """
    about = json.loads((folder / "run" / "run.json").read_text())
    run_id, private, hashes = about["id"], about["config"]["dp.epsilon"] > 0, dict[str, bool]()
    for site in SITES:
        deployed = digest(folder / site / "state" / "runs" / run_id / site)
        simulated = digest(folder / "simulated" / "sites" / site)
        word = "equal" if deployed == simulated else "other noise" if private else "DIFFERENT"
        say(f"{site}: delivered {deployed[:16]}, simulated {simulated[:16]}: {word}")
        hashes[site] = deployed == simulated
    scores = [json.loads((folder / run / "scores.json").read_text())["sites"] for run in ("run", "simulated")]
    equal = all(hashes.values()) and scores[0] == scores[1]
    if not equal and not private:
        raise SystemExit("the deployed run and the simulation differ")
    say("tensors and scores are equal" if equal else "each private run has noise of its own, so the two are not compared")
    pauses = [pause for record in rounds(folder / "run") for pause in record["pause_s"].values()]
    say(f"last reply in to next messages out: at most {max(pauses):.2f} s over {len(pauses)} phases")
    trained = [record for record in rounds(folder / "run") if record["round"]]
    return {
        "sites": len(SITES),
        "rounds": len(trained),
        "equal_to_simulation": equal,
        "pause_s_max": max(pauses),
        "round_seconds": [record["seconds"] for record in trained],
        "messages_per_site_and_round": messages_per_site_and_round(folder / "run"),
        "uplink_bytes": {site: entry["uplink_bytes"] for site, entry in trained[-1]["sites"].items()},
    }


def messages_per_site_and_round(run: Path) -> dict[str, float]:
    """phase -> messages that a site answered in a training round, from the run's own progress."""
    events = [json.loads(line) for line in (run / "progress.jsonl").read_text().split("\n")[:-1] if line]
    replies = [event for event in events if event["event"] == "reply" and event["round"] > 0 and event["phase"] != "finish"]
    made = {(event["site"], event["round"]) for event in replies}
    phases = sorted({event["phase"] for event in replies})
    return {phase: sum(event["phase"] == phase for event in replies) / len(made) for phase in phases}


@contextmanager
def service(folder: Path, *arguments: str) -> Iterator[None]:
    """`fedlingua server start` or `site start`, ended by SIGTERM as a service manager would."""
    with (folder / f"{arguments[-1]}.log").open("w") as log:
        process = subprocess.Popen([*COMMAND, *arguments], cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(timeout=60)


def fedlingua(folder: Path, *arguments: str) -> None:
    print(f"$ fedlingua {' '.join(arguments)}", flush=True)
    subprocess.run([*COMMAND, *arguments], cwd=folder, stdin=subprocess.DEVNULL, check=True)


def wait_for(log: Path, word: str, timeout_s: float = 120.0) -> None:
    ends = time.monotonic() + timeout_s
    while word not in log.read_text():
        if time.monotonic() > ends:
            raise SystemExit(f"{log.name} does not say {word!r} after {timeout_s:g} s:\n{log.read_text()}")
        time.sleep(0.2)


def cmdline(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def environment(process: psutil.Process) -> str:
    try:
        return process.environ().get("FLWR_HOME", "")
    except psutil.Error:
        return ""


def rounds(run: Path) -> list[dict[str, Any]]:
    file = run / "rounds.jsonl"
    return list(by_round(map(json.loads, file.read_text().split("\n")[:-1])).values()) if file.is_file() else []


def digest(delivered: Path) -> str:
    """Hash a site's adapter and, of an ensemble, the second model."""
    files = (delivered / "adapter" / "adapter.safetensors", delivered / "second.safetensors")
    return hashlib.sha256(b"".join(file.read_bytes() for file in files if file.is_file())).hexdigest()


def read_toml(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text(encoding="utf-8"))


def say(text: str) -> None:
    print(f"== {text}", flush=True)


if __name__ == "__main__":
    main()
