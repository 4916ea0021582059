"""The commands of docs/guides/deployment.md, run as they stand: one directory for the server, one for each of two sites.

Real processes: a SuperLink, two SuperNodes over gRPC with TLS and keys, and the run; what ends by itself before is run in this process.
Only the server's ports, a site's own name and direction, and the experiment's backbone, rounds, deadlines and quorum are put in the
place of the guide's examples; the hospital reaches the server by its address. Owners consent by typing y. The school is behind a proxy,
which alone can resolve the server's name. In round 1 its ClientApp hangs past its deadline; after the run it loses its power.
"""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from fedlingua.desk.cli.app import app
from fedlingua.desk.cli.progress import read_events
from fedlingua.desk.processes import end, free_port
from fedlingua_demo import phrasebook
from tests.http_proxy import http_proxy
from tests.pages import block

SITES = {"hospital": "de-fr", "school": "pl-sv"}
CHANGES = """
backbone = "demo"
rounds = 2
below-quorum = "fail"
deadline.join-s = 120.0
deadline.phase-s = {train_s}
deadline.keep-s = 600.0
quorum = 0.5
"""
LEAST_DEADLINE_S, STARTS = 45.0, 10
"""Of training, in which a site hangs; or so many times what the server took to start, as the other sites need longer on a busy machine."""
CANARY = "zanzibar-quicksilver-4711"


def commands(who: str) -> list[str]:
    """The lines of the guide's code block that has this title: "server" or "hospital"."""
    return block("docs/guides/deployment.md", f'sh title="{who}"').strip().split("\n")


class Institution:
    """A directory in which one institution gives the guide's commands."""

    def __init__(self, folder: Path, replacements: dict[str, str]) -> None:
        self.folder, self.replacements = folder, replacements
        self.environment: dict[str, str] = {}
        self.consented = False
        self.running: list[subprocess.Popen[bytes]] = []
        folder.mkdir()

    def give(self, command: str, timeout_s: float = 300.0) -> str:
        """Give a command and wait for its end; a `start` goes on in the background, and a `run` is a process of its own."""
        for what, instead in self.replacements.items():
            command = command.replace(what, instead)
        program, *arguments = shlex.split(command)
        assert program == "fedlingua"
        whole = [sys.executable, "-c", "from fedlingua.desk.cli.app import main; main()", *arguments]
        if arguments[1] == "start":
            with (self.folder / "start.log").open("a") as log:
                output = {"stdin": subprocess.PIPE, "stdout": log, "stderr": log}
                started = subprocess.Popen(whole, cwd=self.folder, env=os.environ | self.environment, **output)
            self.running.append(started)
            assert started.stdin is not None
            with contextlib.suppress(BrokenPipeError), started.stdin as typed:
                typed.write(b"y\n" if arguments[0] == "site" and not self.consented else b"")
            self.consented = True
            return ""
        if arguments[0] != "run":
            with contextlib.chdir(self.folder), pytest.MonkeyPatch.context() as here:
                for name, value in self.environment.items():
                    here.setenv(name, value)
                answer = CliRunner().invoke(app, arguments)
            assert answer.exit_code == 0, f"{command}\n{answer.output}\n{answer.exception!r}\n{self.log()}"
            return answer.stdout
        done = subprocess.run(
            whole, cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}\n{self.log()}"
        return done.stdout

    def log(self) -> str:
        file = self.folder / "start.log"
        return file.read_text(errors="replace") if file.is_file() else ""

    def wait_for(self, word: str, timeout_s: float = 300.0, times: int = 1) -> None:
        ends = time.monotonic() + timeout_s
        while self.log().count(word) < times:
            assert time.monotonic() < ends, f"{word!r} is not {times} times in\n{self.log()}"
            time.sleep(0.2)

    def lose_power(self) -> None:
        """Nothing of it gets to say farewell."""
        process = psutil.Process(self.running.pop().pid)
        end([process, *process.children(recursive=True)], 0.0)

    @contextmanager
    def hanging(self, runs: Path) -> Iterator[None]:
        """Freeze all beneath its SuperNode in the training of round 1 until the server calls it late; what it does then comes too late."""
        over = threading.Event()
        thread = threading.Thread(target=self._hang, args=(runs, over))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _hang(self, runs: Path, over: threading.Event) -> None:
        frozen: set[psutil.Process] = set()
        while not over.wait(0.5):
            events = [event for file in runs.glob("*/progress.jsonl") for event in read_events(file)[0]]
            if any(event["event"] == "failure" for event in events):
                break
            if ("phase", "train") in {(event["event"], event.get("phase")) for event in events}:
                # First the SuperExec, which puts another ClientApp in the place of one that is silent; and again, for what it had begun.
                for name in ("flower-superexec", "fedlingua.desk.deployment.worker"):
                    below = psutil.Process(self.running[-1].pid).children(recursive=True)
                    frozen |= {process for process in below if runs_as(name, process) and told_to("suspend", process)}
        for process in frozen:
            told_to("resume", process)

    def stop(self) -> None:
        for process in self.running:
            process.send_signal(signal.SIGTERM)
        for process in self.running:
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                end([psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)], 0.0)


def runs_as(name: str, process: psutil.Process) -> bool:
    """Whether this is in its command line."""
    with contextlib.suppress(psutil.Error):
        return any(word.endswith(name) for word in process.cmdline())
    return False


def told_to(what: str, process: psutil.Process) -> bool:
    """Whether it was still there to be told."""
    with contextlib.suppress(psutil.Error):
        getattr(process, what)()
        return True
    return False


def each(sites: dict[str, Institution], command: str) -> dict[str, str]:
    """Every site gives the same command of the guide's; what each was told."""
    return {name: site.give(command) for name, site in sites.items()}


def write_text(site: str, folder: Path) -> None:
    """A site's corpus, with one sentence that must never be seen outside of it, and a letter to translate."""
    source, target = SITES[site].split("-")
    text = phrasebook.register_corpus(site, 150, 5)
    pairs = [f"{left}\t{right}" for left, right in zip(text[source], text[target], strict=True)]
    pairs += [
        f"{CANARY} {number} {left}\t{CANARY} {number} {right}"
        for number, (left, right) in enumerate(zip(text[source][:30], text[target], strict=False))
    ]
    (folder / "corpus.tsv").write_text("\n".join(pairs) + "\n", encoding="utf-8")
    (folder / "letters.txt").write_text("\n".join(text[source][:2]) + "\n", encoding="utf-8")


def pass_on(file: Path, to: Path, instead: tuple[str, str] = ("", "")) -> None:
    to.write_text(file.read_text().replace(*instead) if instead[0] else file.read_text())


@pytest.fixture(scope="module")
def outside():
    """What the school reaches the outside through."""
    with http_proxy({}) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def deployment(tmp_path_factory, outside):
    """The institutions after all of the guide's commands: the server, and the sites by name."""
    folder = tmp_path_factory.mktemp("deployment")
    fleet, control = free_port(), free_port()
    changed = tuple(line.split(" = ")[0] for line in CHANGES.strip().splitlines())
    guides = block("docs/guides/deployment.md", 'toml title="experiment.toml"').splitlines()
    lines = "\n".join(line for line in guides if not line.startswith(changed))
    server = Institution(folder / "server", {"court.join.toml ": ""})
    sites = {name: Institution(folder / name, {"hospital": name, "de-fr": way}) for name, way in SITES.items()}
    init, start, run = commands("server")
    own_init, own_start, translate = commands("hospital")
    outside.there = {f"server.example.org:{fleet}": f"127.0.0.1:{fleet}"}
    sites["school"].environment = {"https_proxy": outside.url}
    experiment = server.folder / "server" / "experiment.toml"
    try:
        server.give(init)
        file = server.folder / "server" / "server.toml"
        file.write_text(
            file.read_text().replace("0.0.0.0:9092", f"127.0.0.1:{fleet}").replace("127.0.0.1:9093", f"127.0.0.1:{control}")
        )
        experiment.write_text(lines + CHANGES.format(train_s=LEAST_DEADLINE_S))
        for name, site in sites.items():
            write_text(name, site.folder)
            site.give(own_init)
            with (site.folder / "site" / "site.toml").open("a") as of_site:
                of_site.write("min-dev = 10\nmin-test = 10\n")  # in [limits]; fewer than an institution has
            pass_on(site.folder / "site" / f"{name}.join.toml", server.folder / f"{name}.join.toml")
        began = time.monotonic()
        server.give(start)
        server.wait_for("serving")
        server.deadline_s = max(LEAST_DEADLINE_S, round(STARTS * (time.monotonic() - began), 1))
        experiment.write_text(lines + CHANGES.format(train_s=server.deadline_s))  # which needs no approval
        for name, site in sites.items():
            server.wait_for(f"site {name} may join")
            by_address = ("server.example.org", "127.0.0.1") if name == "hospital" else ("", "")
            pass_on(server.folder / "server" / "invitation.toml", site.folder / "site" / "invitation.toml", by_address)
        each(sites, own_start)
        for site in sites.values():
            site.wait_for("SuperNode ID")
        with sites["school"].hanging(server.folder / "server" / "runs"):
            server.printed = server.give(run, timeout_s=1200)
        letters, logs = each(sites, translate), each(sites, "fedlingua site log")
        sites["school"].lose_power()
        sites["school"].give(own_start)
        sites["school"].wait_for("SuperNode ID", times=2)
    finally:
        for institution in (*sites.values(), server):
            institution.stop()
    server.letters, server.logs = letters, logs
    return server, sites


def test_three_institutions_give_twelve_commands_and_pass_four_files_on():
    """A join file of each site's, and the invitation; nothing else is copied in `deployment`."""
    given = commands("server") + 3 * commands("hospital")
    assert len(given) <= 12
    assert all(command.startswith("fedlingua ") for command in given)


@pytest.mark.timeout(1800)
def test_the_guides_commands_lead_to_a_finished_run(deployment):
    server, _ = deployment
    (run,) = (each for each in (server.folder / "server" / "runs").iterdir() if each.is_dir())
    assert json.loads((run / "run.json").read_text())["status"] == "completed"
    assert set(json.loads((run / "scores.json").read_text())["sites"]) == set(SITES)


def test_a_site_that_hangs_past_its_deadline_is_named_and_the_run_goes_on_without_it(deployment):
    server, sites = deployment
    (run,) = (each for each in (server.folder / "server" / "runs").iterdir() if each.is_dir())
    lines = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [0, 1, 2]
    late = next(failure for failure in lines[1]["failures"] if failure["phase"] == "train")
    assert (late["site"], late["kind"]) == ("school", "late")
    # What measures the base before it trains has the time for both.
    assert late["reason"] == f"no reply within {2 * server.deadline_s:g} s, though its node is connected"
    assert "hospital" not in {failure["site"] for line in lines for failure in line["failures"]}
    assert lines[1]["phase_s"]["train"] >= server.deadline_s
    assert "site school is back; its late reply does not count" in (run / "progress.jsonl").read_text()
    assert "site school, round 1, train: done" in sites["school"].log()


def test_every_site_translates_on_its_own_afterwards(deployment):
    server, sites = deployment
    assert set(server.letters) == set(sites)
    for letters in server.letters.values():
        lines = letters.rstrip("\n").split("\n")
        assert len(lines) == 2
        assert all(lines)


def test_an_owner_reads_what_will_be_sent_before_anything_runs(deployment):
    _, sites = deployment
    for name, site in sites.items():
        shown, consented, after = site.log().partition("May this run here? [y/N]: ")
        assert consented
        assert f"{name} ({SITES[name]}): read 180, kept 180" in shown
        assert "wrong" not in shown
        assert re.search(r"64 tensors, 86592 numbers as 4bit, about 43\.30 kB at most", shown)
        assert f"site {name} joins" not in shown
        assert "May this run here?" not in after  # when it is started again


def test_nothing_of_flowers_access_log_is_in_the_servers(deployment):
    server, _ = deployment
    log = (server.folder / "server" / "server.log").read_text()
    assert "Fleet.ActivateNode" in log
    assert "uvicorn.access" not in log
    assert "\x1b" not in log + server.log()


def test_a_site_behind_a_proxy_is_checked_and_works_through_it(deployment, outside):
    _, sites = deployment
    (address,) = outside.there
    through = f"{address} through the proxy {outside.url.removeprefix('http://')} (https_proxy)"
    assert f"{through} speaks TLS" in " ".join(sites["school"].log().split())
    assert f"site school joins {through}" in sites["school"].log()
    assert set(outside.asked) == {address}  # and none of its processes' on loopback
    assert "proxy" not in sites["hospital"].log()


def test_every_message_stands_in_the_sites_log(deployment):
    server, sites = deployment
    for name, told in server.logs.items():
        assert "lines, whole" in told
        lines = [json.loads(line) for line in (sites[name].folder / "site" / "state" / "audit.jsonl").read_text().splitlines()]
        kinds = [line["asked"] for line in lines]
        assert (kinds[0], kinds[-1]) == ("query.describe", "evaluate.finish")
        if name == "hospital":
            assert kinds[1:-1] == ["train, measure round 0", "train, measure round 1", "evaluate"]
        else:  # it is not asked while it owes a reply
            assert set() < {*kinds[1:-1]} <= {"train, measure round 0", "train, measure round 1", "evaluate"}
        assert not any(line["refused"] for line in lines)
        trained = [line for line in lines if line["asked"].startswith("train")]
        assert {(line["tensors"], 86592 * 0.4 < line["bytes"] < 86592 * 0.6) for line in trained} == {
            (64, True)
        }  # four bits each


def test_no_sentence_leaves_its_site(deployment):
    """The planted sentence stands in the sites' own folders, and nowhere that another party can see or a log is kept."""
    server, sites = deployment
    own = [file for site in sites.values() for file in site.folder.rglob("*") if file.is_file() and CANARY in read(file)]
    kinds = {file.name for file in own}
    assert kinds <= {"corpus.tsv", "translations.tsv"}
    assert "corpus.tsv" in kinds
    seen = [file for file in server.folder.rglob("*") if file.is_file() and CANARY in read(file)]
    assert seen == []
    assert CANARY not in server.printed


def test_the_logs_say_site_and_round(deployment):
    _, sites = deployment
    for name, site in sites.items():
        assert f"site {name}, round 1, train: done" in site.log()
        last = "2, evaluate" if name == "hospital" else r"\d, evaluate.finish"  # the other may still owe a reply
        assert re.search(rf"site {name}, round {last}: done", site.log())


def test_a_site_that_lost_its_power_is_back_by_itself(deployment):
    _, sites = deployment
    log = sites["school"].log()
    assert log.count("SuperNode ID") == 2
    assert "believes that this site is there already" in log.partition("SuperNode ID")[2].partition("SuperNode ID")[0]
    assert "believes that" not in sites["hospital"].log()


def test_nothing_is_left_running(deployment):
    server, _ = deployment
    left = []
    for process in psutil.process_iter():
        try:
            if str(server.folder.parent) in " ".join([*process.cmdline(), process.environ().get("FLWR_HOME", "")]):
                left.append(process.cmdline())
        except (psutil.Error, OSError):
            continue
    assert left == []


def read(file: Path) -> str:
    return file.read_bytes().decode("utf-8", "replace")
