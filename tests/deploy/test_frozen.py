"""A site whose lid is closed: all its processes are frozen while it trains, for less and for more than Flower waits for heartbeats.

Ten minutes were tried by hand, with `FREEZES_S = (30.0, 90.0, 600.0)`.
"""

import json
import threading
import time
from pathlib import Path

import psutil
import pytest

from fedlingua.desk.cli.progress import read_events
from fedlingua.desk.processes import free_port
from tests.deploy.test_guide import SITES, Institution, commands, each, pass_on, told_to, write_text

FREEZES_S = (30.0, 90.0)
"""In the training of round 1, 2, and so on."""
EXPERIMENT = f'backbone = "demo"\nrounds = {len(FREEZES_S) + 1}\nkeep.choose = false\nbeam = 1\n'


def freeze(site: Institution, runs: Path, over: threading.Event) -> None:
    """Stop all processes of a site, in each of these rounds soon after its training has begun."""
    for number, seconds in enumerate(FREEZES_S, start=1):
        while not over.wait(0.3):
            events = [event for file in runs.glob("*/progress.jsonl") for event in read_events(file)[0]]
            if any((event["event"], event.get("phase"), event.get("round")) == ("phase", "train", number) for event in events):
                break
        time.sleep(2.0)
        top = psutil.Process(site.running[0].pid)
        frozen = [each for each in (top, *top.children(recursive=True)) if told_to("suspend", each)]
        over.wait(seconds)
        for process in frozen:
            told_to("resume", process)


@pytest.mark.slow  # minutes of waiting, by its nature
@pytest.mark.timeout(1800)
def test_a_site_that_was_frozen_is_asked_again_and_misses_no_round(tmp_path: Path) -> None:
    fleet, control = free_port(), free_port()
    server = Institution(tmp_path / "server", {"court.join.toml ": ""})
    sites = {name: Institution(tmp_path / name, {"hospital": name, "de-fr": way}) for name, way in SITES.items()}
    init, start, run = commands("server")
    own_init, own_start, _ = commands("hospital")
    over = threading.Event()
    thread = threading.Thread(target=freeze, args=(sites["school"], server.folder / "server" / "runs", over))
    try:
        server.give(init)
        file = server.folder / "server" / "server.toml"
        file.write_text(file.read_text().replace("0.0.0.0:9092", f"127.0.0.1:{fleet}").replace(":9093", f":{control}"))
        (server.folder / "server" / "experiment.toml").write_text(EXPERIMENT)
        for name, site in sites.items():
            write_text(name, site.folder)
            site.give(own_init)
            with (site.folder / "site" / "site.toml").open("a") as of_site:
                of_site.write("min-dev = 10\nmin-test = 10\n")
            pass_on(site.folder / "site" / f"{name}.join.toml", server.folder / f"{name}.join.toml")
        server.give(start)
        server.wait_for("serving")
        invitation = server.folder / "server" / "invitation.toml"
        for name, site in sites.items():
            server.wait_for(f"site {name} may join")
            pass_on(invitation, site.folder / "site" / "invitation.toml", ("server.example.org", "127.0.0.1"))
        each(sites, own_start)
        for site in sites.values():
            site.wait_for("SuperNode ID")
        thread.start()
        server.give(run, timeout_s=1500)
    finally:
        over.set()
        if thread.ident:
            thread.join()
        for institution in (*sites.values(), server):
            institution.stop()
    (folder,) = (server.folder / "server" / "runs").iterdir()
    about = json.loads((folder / "run.json").read_text())
    assert (about["status"], about["config"]["below-quorum"]) == ("completed", "wait")
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    assert [set(line["sites"]) for line in lines[1:]] == [set(SITES)] * (len(FREEZES_S) + 1)
    # For half a minute nobody misses a heartbeat; after two of them the node is lost with its task, then away, and is asked again.
    assert lines[1]["failures"] == []
    assert [failure["kind"] for failure in lines[2]["failures"] if failure["site"] == "school"] == ["dead", "away"]
    notes = [event["text"] for event in read_events(folder / "progress.jsonl")[0] if event["event"] == "note"]
    assert notes.count("round 2, train: waiting for sites, 1 of 2 are good") == 1
    scores = json.loads(next(sites["school"].folder.glob("site/state/runs/*/school/scores-school.json")).read_text())
    assert scores["school"]["sentences"] > 0
    assert "site school, test: BLEU " in sites["school"].log()
