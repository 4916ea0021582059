"""`fedlingua site`: set one up, check it, approve a bundle."""

import io
import json
import os
import re
import signal
import sys
import threading
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedlingua.common.errors import ConfigError, DeploymentError, RunError
from fedlingua.common.files import APP_DIR
from fedlingua.consent.approval import approval_hash
from fedlingua.consent.audit import append
from fedlingua.consent.bundle import approvals, approved, bundle_hash
from fedlingua.consent.keys import key_fingerprint
from fedlingua.consent.overlap_key import read_overlap_key
from fedlingua.consent.site_file import read_site_file
from fedlingua.corpora.sites import read_federation
from fedlingua.desk.cli import site as command
from fedlingua.desk.cli.app import app
from fedlingua.desk.deployment.build import build_bundle
from fedlingua.desk.deployment.certificates import make_certificates
from fedlingua.desk.deployment.invitation import approval_of, write_invitation
from fedlingua.desk.deployment.server_file import add_site, init_server
from fedlingua.desk.deployment.service import Service
from fedlingua.desk.deployment.site_setup import make_key
from fedlingua.desk.experiment import read_experiment
from fedlingua.exchange.protocol import SENT_BY_A_SITE
from fedlingua.exchange.trainable import build_trainable
from fedlingua.privacy.roster import members_hash
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Scalar
from tests.deployed_sites import ROOMY
from tests.federations import TWO_SITES


@pytest.fixture
def folder(tmp_path: Path, tiny_run_config: dict[str, Scalar]) -> Path:
    """An insecure site's folder that knows where the tiny backbone lies."""
    arguments = ["--name", "clinic", "--direction", "de-fr", "--server", "127.0.0.1:9092", "--phrasebook", "hospital"]
    made = CliRunner().invoke(
        app, ["site", "init", *arguments, "--sentences", "60", "--to", str(tmp_path / "site"), "--insecure"]
    )
    assert made.exit_code == 0, made.output
    assert str(tmp_path / "site" / "clinic.join.toml") in made.output
    assert "warning: insecure = true" in made.output
    file = tmp_path / "site" / "site.toml"
    known = file.read_text().replace("[backbones]\n", f'[backbones]\ntiny = "{tiny_run_config["backbone"]}"\n')
    file.write_text(known + ROOMY.removeprefix("[limits]"))
    return tmp_path / "site"


@pytest.fixture
def experiment(tmp_path: Path, tiny_run_config: dict[str, Scalar]) -> Path:
    """The tiny run; its backbone goes by a name, as in any run of a deployment."""
    keys = {**tiny_run_config, "backbone": "tiny"}
    file = tmp_path / "tiny.toml"
    file.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items()))
    return file


def checked(folder: Path, experiment: Path, expected: str = "") -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        try:
            command.site_check(folder, experiment, None, expected, knock=False)
        except DeploymentError as error:
            out.write(f"error: {error}\n")
    return out.getvalue()


def test_a_site_with_an_authority_has_a_key_and_needs_no_warning(tmp_path: Path) -> None:
    make_certificates(tmp_path / "certificates", ["a"])
    arguments = ["--name", "clinic", "--direction", "de-fr", "--server", "a:1", "--phrasebook", "hospital"]
    places = ["--to", str(tmp_path / "site"), "--authority", str(tmp_path / "certificates" / "ca.crt")]
    made = CliRunner().invoke(app, ["site", "init", *arguments, *places])
    assert made.exit_code == 0, made.output
    assert read_site_file(tmp_path / "site" / "site.toml").key.is_file()
    assert "warning" not in made.output


def test_without_an_authority_tls_has_to_be_given_up_in_so_many_words(tmp_path: Path) -> None:
    arguments = ["--name", "clinic", "--direction", "de-fr", "--server", "a:1", "--phrasebook", "hospital"]
    refused = CliRunner().invoke(app, ["site", "init", *arguments, "--to", str(tmp_path / "site")])
    assert refused.exit_code == 2
    assert not (tmp_path / "site").exists()


def test_a_site_that_is_ready_is_told_so_with_all_that_it_will_send(folder: Path, experiment: Path) -> None:
    text = checked(folder, experiment)
    assert "wrong" not in text
    assert "error" not in text.replace("an error's reason", "")
    for what in ("corpora", "backbone", "memory", "disk", "certificate"):
        mark = "note" if what == "corpora" else "ok  "  # without the server's rules their split may be another
        assert f"{mark}  {what}: " in text
    assert "approved: none yet" in text
    listed = text.partition("all that this site will ever send under these settings:\n")[2].splitlines()
    *listed, seen, hidden = listed
    assert seen.startswith("the server sees of this site: its update of every round")
    assert hidden.startswith("the server does not see: sentences")
    # All but a signature, the two phases of a threshold, the two of a comparison, the three of a secure sum; and an error's words.
    assert len(listed) == len(SENT_BY_A_SITE) - 8 + 1
    tensors = build_trainable(settings_from({**json_keys(experiment), "backbone": tiny(folder)})).tensor_set
    assert f"{len(tensors.specs)} tensors, {tensors.num_parameters} numbers of 4 bytes" in listed[1]
    assert listed[-1] == "  - an error's reason; where it could quote text, its type alone"


def test_a_comparison_of_the_sites_text_is_listed_and_needs_the_sites_key(folder: Path, experiment: Path) -> None:
    experiment.write_text(experiment.read_text().replace('overlap = "off"', 'overlap = "remove"'))
    without = checked(folder, experiment)
    assert "wrong overlap key: the run compares the sites' text" in without
    made = CliRunner().invoke(app, ["site", "overlap-key", str(folder / "overlap.key")])
    assert made.exit_code == 0, made.output
    (told,) = re.findall("check ([0-9a-f]{16})", made.output)
    assert (folder / "overlap.key").stat().st_mode & 0o077 == 0
    assert read_overlap_key(folder / "overlap.key").hex() not in made.output
    file = folder / "site.toml"
    file.write_text(file.read_text().replace("[node]\n", '[node]\noverlap-key = "overlap.key"\n'))
    text = checked(folder, experiment)
    assert f"ok    overlap key: {told}, which has to be the same at every site" in text
    assert "a hash of 64 bits" in text.partition("will ever send")[2]
    assert "a sentence that another site trains on" in text.partition("will ever send")[2]
    (folder / "overlap.key").chmod(0o644)
    assert "wrong overlap key: " in checked(folder, experiment)
    again = CliRunner().invoke(app, ["site", "overlap-key", str(folder / "overlap.key")])
    assert isinstance(again.exception, ConfigError)
    assert told in CliRunner().invoke(app, ["site", "overlap-key", str(folder / "overlap.key"), "--show"]).output


def json_keys(experiment: Path) -> dict[str, Scalar]:
    return {key: json.loads(value) for key, _, value in (line.partition(" = ") for line in experiment.read_text().splitlines())}


def tiny(folder: Path) -> str:
    return str(read_site_file(folder / "site.toml").backbones["tiny"])


def test_a_site_that_is_not_ready_fails_after_all_of_its_findings(folder: Path, experiment: Path) -> None:
    text = checked(folder, experiment, expected="00000000")
    assert "wrong backbone: " in text
    assert "ok    certificate: " in text
    assert "  - each round: the tensors that travel;" in text
    assert text.endswith("error: 1 of the checks above failed; the site is not ready\n")


def test_check_by_the_command_ends_with_a_failure(folder: Path, experiment: Path) -> None:
    arguments = ["site", "check", str(folder), "--experiment", str(experiment), "--no-knock", "--expect", "00000000"]
    done = CliRunner().invoke(app, arguments)
    assert isinstance(done.exception, DeploymentError)
    good = CliRunner().invoke(app, arguments[:-2])
    assert good.exit_code == 0, good.output


def test_brackets_in_what_is_told_are_no_markup(folder: Path, experiment: Path) -> None:
    assert "[red]site" in checked(folder.rename(folder.with_name("[red]site")), experiment)


def test_approvals_are_shown_by_their_beginning_with_their_notes(folder: Path, experiment: Path) -> None:
    (folder / "approved.txt").write_text(f"{'ab' * 32}  # 2026-11-28 bundle\x1b[0m\n{'cd' * 32}\n")
    listed = checked(folder, experiment).partition("approved: 2 in ")[2].splitlines()[1:3]
    assert [line.strip() for line in listed] == ["- abababababab  2026-11-28 bundle", "- cdcdcdcdcdcd"]


def test_approve_takes_a_hash_or_this_checkouts_bundle(folder: Path) -> None:
    given = CliRunner().invoke(app, ["site", "approve", "ab" * 32, "--site", str(folder)])
    assert given.exit_code == 0, given.output
    mine = CliRunner().invoke(app, ["site", "approve", "--site", str(folder)])
    assert mine.exit_code == 0, mine.output
    assert approved(folder / "approved.txt") == {"ab" * 32, bundle_hash(build_bundle(APP_DIR))}
    again = CliRunner().invoke(app, ["site", "approve", "ab" * 32, "--site", str(folder)])
    assert ": approved already in" in again.output
    given_note, made_note = (note.partition(" ")[2] for note in approvals(folder / "approved.txt").values())
    assert (given_note, made_note) == ("bundle: given by its hash", f"bundle: made of {APP_DIR}")


def test_secure_sums_are_approved_with_the_sites_that_take_part(folder: Path, experiment: Path, tmp_path: Path) -> None:
    lines = {site: make_key(tmp_path / f"{site}.key") for site in ("hospital", "court")}
    keyed = re.sub(r'name = "(hospital|court)"', lambda found: f'{found[0]}\npublic-key = "{lines[found[1]]}"', TWO_SITES)
    (tmp_path / "federation.toml").write_text(keyed)
    files = ["--experiment", str(experiment), "--federation", str(tmp_path / "federation.toml")]
    arguments = ["site", "approve", "ab" * 32, "--site", str(folder), *files, "--set", "privacy.sum=secure", "--format", "json"]
    agreed = CliRunner().invoke(app, arguments, input="y\n")
    assert agreed.exit_code == 0, agreed.output
    told = json.loads(agreed.stdout)
    assert told["roster"] == members_hash(lines)
    notes = approvals(folder / "approved.txt")
    assert notes[told["roster"]].endswith(" roster: federation.toml, hospital, court")
    for site, line in lines.items():
        assert f"secure sums with {site}, key {key_fingerprint(line)}" in " ".join(agreed.stderr.split())


def test_an_experiment_is_approved_once_it_has_been_read(folder: Path, experiment: Path, tmp_path: Path) -> None:
    (tmp_path / "federation.toml").write_text(TWO_SITES)
    arguments = ["site", "approve", "ab" * 32, "--site", str(folder), "--experiment", str(experiment)]
    without = CliRunner().invoke(app, arguments)
    assert without.exit_code == 2
    assert "needs --federation" in without.output
    arguments += ["--federation", str(tmp_path / "federation.toml"), "--set", "rounds=7"]
    declined = CliRunner().invoke(app, arguments, input="n\n")
    assert declined.exit_code == 1
    assert not (folder / "approved.txt").exists()
    shown = " ".join(declined.output.split())
    for words in (
        "trains adapters of tiny",
        "optimizer steps on ",
        "at most 7 rounds, each of 1 pass over its training text",
        "tensors, ",
        "numbers of 4 bytes",
        "on test at the end: BLEU, chrF",
    ):
        assert words in shown
    agreed = CliRunner().invoke(app, [*arguments, "--format", "json"], input="y\n")
    assert agreed.exit_code == 0, agreed.output
    told = json.loads(agreed.stdout)
    settings = read_experiment(experiment, {"rounds": 7})
    run = approval_hash("ab" * 32, settings, read_federation(tmp_path / "federation.toml", Path()).rules)
    assert told == {"bundle": "ab" * 32, "run": run, "new": True}
    notes = approvals(folder / "approved.txt")
    assert set(notes) == {"ab" * 32, run}
    does = "adapter-families, 7 rounds, privacy.sum = plain, under bundle abababababab"
    assert notes[run].endswith(f" run: tiny.toml --set rounds=7, {does}")


def test_settings_beyond_the_sites_limits_are_not_even_shown(folder: Path, experiment: Path, tmp_path: Path) -> None:
    (tmp_path / "federation.toml").write_text(TWO_SITES)
    arguments = ["site", "approve", "--yes", "--site", str(folder), "--experiment", str(experiment), "--set", "beam=99"]
    beyond = CliRunner().invoke(app, [*arguments, "--federation", str(tmp_path / "federation.toml")])
    assert "[limits] max-beam" in str(beyond.exception)
    assert not (folder / "approved.txt").exists()


def test_the_log_is_shown_and_the_first_broken_line_is_an_error(folder: Path) -> None:
    for number in range(3):
        entry = {
            "run": "7a",
            "site": "hospital",
            "asked": "train",
            "round": str(number),
            "sentences": {"train": 220},
            "tensors": 96,
        }
        append(folder / "state", {**entry, "bytes": 34_500, "refused": "[red]no\x1b[0m" if number else ""})
    shown = CliRunner().invoke(app, ["site", "log", str(folder)], env={"COLUMNS": "80"})
    assert shown.exit_code == 0, shown.output
    assert "3 lines, whole; hash of the last" in shown.output
    assert "hospital, round 0, train: 220 train sentences, 96 tensors; 34.50 kB sent" in shown.output
    assert "hospital, round 2, train: refused: [red]no\n" in shown.output
    assert shown.output.count("run 7a\n") == 1
    told = json.loads(CliRunner().invoke(app, ["site", "log", str(folder), "--last", "1", "--format", "json"]).stdout)
    assert ([line["line"] for line in told["lines"]], told["number"], told["broken"]) == ([3], 3, None)
    log = folder / "state" / "audit.jsonl"
    log.write_text(log.read_text().replace('"round": "1"', '"round": "7"'))
    broken = CliRunner().invoke(app, ["site", "log", str(folder)])
    assert isinstance(broken.exception, DeploymentError)
    assert "line 2 has been changed" in str(broken.exception)


def test_a_description_is_shown_under_the_run_that_it_belongs_to(folder: Path) -> None:
    for run, flower_run in (("", 1), ("one", 1), ("", 2), ("two", 2), ("", 3)):
        asked = "train" if run else "query.describe"
        append(folder / "state", {"run": run, "flower_run": str(flower_run), "asked": asked, "refused": "no" * (flower_run == 3)})
    shown = CliRunner().invoke(app, ["site", "log", str(folder)]).output
    headings = [line for line in shown.splitlines() if re.match("run|Flower run", line)]
    assert headings == ["run one", "run two", "Flower run 3"]
    assert CliRunner().invoke(app, ["site", "log", str(folder), "--last", "1"]).output.startswith("Flower run 3\n")


# Ends with Flower's words as often as the file `refusals` has lines, then says that it joined and waits.
SUPERNODE = """
import sys, time
refused = open("refusals").read().split()
if refused:
    open("refusals", "w").write(" ".join(refused[1:]))
    print("Failed to initialize the connection to the SuperLink.\\n" + refused[0].replace("_", " "))
    raise SystemExit(1)
open("joined", "w").write("yes")
time.sleep(60)
"""
ONLINE, UNKNOWN = "[code:_2004]_Failed_to_activate_SuperNode.", "[code:_1]_unauthenticated"


def started(folder: Path, refusals: list[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """What `site start` says whose SuperNode is refused in these ways one after another; a SIGTERM ends it once it joined."""
    site = read_site_file(folder / "site.toml")
    (site.home).mkdir(parents=True, exist_ok=True)
    (site.home / "refusals").write_text(" ".join(refusals))
    monkeypatch.setattr(command, "supernode_command", lambda *_: [sys.executable, "-c", SUPERNODE])
    monkeypatch.setattr(command, "AGAIN_S", 0.1)
    done = threading.Event()

    def stop() -> None:
        while not (site.home / "joined").exists():
            if done.wait(0.05):
                return
        os.kill(os.getpid(), signal.SIGTERM)

    stopper = threading.Thread(target=stop)
    stopper.start()
    try:
        with redirect_stdout(io.StringIO()) as out:
            command.site_start(folder)
    finally:
        done.set()
        stopper.join()
    return out.getvalue()


def test_a_site_that_is_believed_to_be_there_tries_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = started(folder, [ONLINE, ONLINE], monkeypatch)
    assert told.count("believes that this site is there already") == 2
    assert told.endswith("site stopped\n")


def test_a_supernode_whose_command_was_killed_is_ended_before_the_next_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site = read_site_file(folder / "site.toml")
    site.state.mkdir(exist_ok=True)
    waiting = [sys.executable, "-c", "import time; time.sleep(60)"]
    with Service("the SuperNode", waiting, os.environ, site.home, locked=site.state) as earlier:
        assert started(folder, [], monkeypatch).endswith("site stopped\n")
        assert earlier.ended
    assert "the SuperNode: ending an earlier one" in capsys.readouterr().err


def test_a_site_that_is_refused_for_another_reason_ends_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeploymentError, match="the SuperNode has ended"):
        started(folder, [UNKNOWN, ONLINE], monkeypatch)
    assert (read_site_file(folder / "site.toml").home / "refusals").read_text() == ONLINE


def test_a_key_that_somebody_else_uses_is_an_error_in_the_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "FORGOTTEN_S", 0.0)
    with pytest.raises(DeploymentError, match="the SuperNode has ended"):
        started(folder, [ONLINE, ONLINE], monkeypatch)


def test_a_site_that_runs_already_is_not_started_twice(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = read_site_file(folder / "site.toml").state
    with RunFolder(state).held(), pytest.raises(RunError, match=f"{state}: this site is already running here; end the other"):
        started(folder, [], monkeypatch)
    assert not (folder / "flower" / "joined").exists()
    assert started(folder, [], monkeypatch).endswith("site stopped\n")


@pytest.mark.parametrize("insecure", [True, False])
def test_secure_sums_without_keys_are_for_an_insecure_site(
    insecure: bool, folder: Path, experiment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There nothing could be compared with what the owners say; with TLS, every site has to have a key."""
    (tmp_path / "federation.toml").write_text(TWO_SITES)
    if not insecure:
        toml = (folder / "site.toml").read_text().replace("insecure = true", "insecure = false")
        (folder / "site.toml").write_text(toml)
    files = ["--experiment", str(experiment), "--federation", str(tmp_path / "federation.toml"), "--yes"]
    made = CliRunner().invoke(app, ["site", "approve", "ab" * 32, "--site", str(folder), *files, "--set", "privacy.sum=secure"])
    if insecure:
        assert made.exit_code == 0, made.output
    else:
        assert "secure sums need the node key of every site; hospital, court has no public-key" in str(made.exception)


def test_a_site_that_is_invited_starts_once_its_owner_has_read_and_consented(
    folder: Path, experiment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = init_server(tmp_path / "server", "north", [], "127.0.0.1:9092", "127.0.0.1:9093", insecure=True)
    server.experiment.write_text(experiment.read_text())
    add_site(server, folder / "clinic.join.toml")
    write_invitation(server)[0].rename(folder / "invitation.toml")
    declined = CliRunner().invoke(app, ["site", "start", str(folder)], input="n\n")
    assert declined.exit_code == 1
    shown = " ".join(declined.output.split())
    assert shown.index("ok corpora: ") < shown.index("trains adapters of tiny") < shown.index("May this run here?")
    assert not (folder / "approved.txt").exists()
    assert not (folder / "flower").exists()
    monkeypatch.setattr(command, "confirm", lambda *_, **__: True)
    assert "May this run" not in started(folder, [], monkeypatch)
    hashes = approval_of(server.experiment, server.federation)
    assert approved(folder / "approved.txt") == set(hashes.values())
    (folder / "flower" / "joined").unlink()
    monkeypatch.setattr(command, "confirm", lambda *_, **__: pytest.fail("it asks again"))
    assert started(folder, [], monkeypatch).endswith("site stopped\n")
    server.experiment.write_text(experiment.read_text().replace("rounds = ", "rounds = 1"))
    write_invitation(server)[0].rename(folder / "invitation.toml")
    with pytest.raises(pytest.fail.Exception, match="it asks again"):  # a changed run is another
        command.site_start(folder)
