"""Sites with files of their own compared over messages: the figures of a simulation, a key of theirs, and no sentence on the way."""

import logging

import pytest

from fedlingua.common.errors import RunError
from fedlingua.consent.overlap_key import read_overlap_key
from fedlingua.consent.site_file import SITE_FILE
from fedlingua.corpora.overlap import LEAKS_FILE
from fedlingua.desk.cli.site import make_overlap_key
from fedlingua.exchange import protocol
from fedlingua.exchange.records import message_bytes
from fedlingua.layers.overlap import FILE
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.checks import settings_from
from strategies.server_app import run_federation
from tests.deployed_sites import ROOMY
from tests.in_process import InProcessGrid, checkpoint_bytes, run

CANARY = "zanzibar-quicksilver"
SITES = {"one": "de-en", "two": "fr-en", "three": "nl-en"}
SPLIT = '[split]\nmode = "paper"\ntrain = 0.5\ndev = 0.2\ntest = 0.3\n'
"""Under which sites that do not talk test on what others train on."""


class Machines(InProcessGrid):
    """A node for each folder, whose site file lies in it; keeps error replies, too."""

    def __init__(self, config, folders):
        super().__init__(config, len(folders), tamper=self.listen)
        self.folders, self.errors = folders, []

    def node_config(self, node):
        return {SITE_FILE: str(self.folders[node - 100] / "site.toml")}

    def listen(self, request, reply):
        if reply.has_error():
            self.errors.append(reply)
        return reply


@pytest.fixture
def folders(tmp_path, least_run_config):
    """A folder for each site with its text, its file and the same overlap key."""
    key, backbone = make_overlap_key(tmp_path / "key"), least_run_config["backbone"]
    found = []
    for number, (name, direction) in enumerate(SITES.items()):
        folder = tmp_path / f"machine of {name}"
        folder.mkdir()
        lines = [f"{CANARY} {name} satz {n}\t{CANARY} sentence {n}" for n in range(40 * number, 40 * number + 60)]
        (folder / "corpus.tsv").write_text("\n".join(lines) + "\n")
        (folder / "overlap.key").write_text(f"# shared\n{key.hex()}\n")
        (folder / "site.toml").write_text(
            f'[[site]]\nname = "{name}"\ndirection = "{direction}"\ntsv = "corpus.tsv"\n'
            '[server]\naddress = "server:9092"\ninsecure = true\n'
            f'[node]\noverlap-key = "overlap.key"\n{ROOMY}[backbones]\n"{backbone}" = "{backbone}"\n'
        )
        found.append(folder)
    return found


@pytest.fixture
def config(least_run_config):
    return {**least_run_config, "deadline.phase-s": 30.0, "method": "adapter-fed", "rounds": 1, "overlap": "remove"}


def deploy(config, folders, tmp_path, machines=Machines) -> tuple[RunFolder, Machines]:
    text = "".join(f'[[site]]\nname = "{name}"\ndirection = "{direction}"\n' for name, direction in SITES.items())
    (tmp_path / "server.toml").write_text(SPLIT + text)
    given = {**config, "federation": str(tmp_path / "server.toml"), "run-dir": str(tmp_path / "deployed")}
    settings, folder, grid = settings_from(given), RunFolder(tmp_path / "deployed"), machines(given, folders)
    with folder.held():
        folder.open(settings, 1)
        run_federation(grid, settings, folder)
        folder.close("completed")
    return folder, grid


def simulate(config, folders, tmp_path) -> RunFolder:
    text = SPLIT
    for (name, direction), folder in zip(SITES.items(), folders, strict=True):
        text += f'[[site]]\nname = "{name}"\ndirection = "{direction}"\ntsv = "{folder / "corpus.tsv"}"\n'
    (tmp_path / "simulated.toml").write_text(text)
    return run({**config, "federation": str(tmp_path / "simulated.toml")}, tmp_path / "simulated")[0]


def test_across_machines_as_in_a_simulation(config, folders, tmp_path):
    deployed, _ = deploy(config, folders, tmp_path)
    simulated = simulate(config, folders, tmp_path)
    found = deployed.read(FILE)
    assert found == simulated.read(FILE)
    assert sum(site["leaks"]["test"] for site in found["sites"].values()) > 5
    assert checkpoint_bytes(deployed) == checkpoint_bytes(simulated)
    assert deployed.read("scores.json")["sites"] == simulated.read("scores.json")["sites"]
    assert [site["accounts"] for site in deployed.read("sites.json").values()] == [
        site["accounts"] for site in simulated.read("sites.json").values()
    ]
    identity = deployed.read("run.json")["id"]
    for folder, name in zip(folders, SITES, strict=True):
        assert (folder / "state" / "runs" / identity / name / LEAKS_FILE).is_file()
    assert not list(deployed.directory.rglob(LEAKS_FILE))


@pytest.mark.parametrize("overlap", ["report", "remove"])
def test_no_sentence_and_no_key_is_seen_outside_and_what_is_sent_is_small_and_counted(config, folders, tmp_path, caplog, overlap):
    caplog.set_level(logging.DEBUG)
    deployed, grid = deploy({**config, "overlap": overlap}, folders, tmp_path)
    messages = "".join(f"{message.content}{message.metadata}" for message in [*grid.sent, *grid.received])
    files = [path.read_bytes() for path in deployed.directory.rglob("*") if path.is_file()]
    seen = messages + caplog.text + "".join(content.decode("utf-8", "replace") for content in files)
    key = read_overlap_key(folders[0] / "overlap.key")
    assert CANARY not in seen
    assert key.hex() not in seen
    assert not any(key in content for content in files)
    replies = [message for message in grid.received if message.metadata.message_type == protocol.DIGESTS]
    assert len(replies) == 3
    traffic = deployed.read("traffic.json")
    assert sum(map(message_bytes, replies)) == sum(traffic[site]["digests"]["uplink_bytes"] for site in SITES)
    # Nothing but rows of 64 bits, and the two records that every such reply has.
    for reply in replies:
        assert set(reply.content) == {protocol.TASK, protocol.KEY, protocol.ARRAYS}
        assert {array.dtype for array in reply.content.array_records[protocol.ARRAYS].values()} == {"uint64"}


def test_another_key_changes_every_hash_and_no_figure(config, folders, tmp_path):
    _, before = deploy({**config, "overlap": "report"}, folders, tmp_path)
    (tmp_path / "deployed").rename(tmp_path / "first")
    key = make_overlap_key(tmp_path / "another")
    for folder in folders:
        (folder / "overlap.key").write_text(key.hex())
    second, after = deploy({**config, "overlap": "report"}, folders, tmp_path)
    assert second.read(FILE) == RunFolder(tmp_path / "first").read(FILE)
    rows = [
        {
            array.data
            for message in grid.received
            if message.metadata.message_type == protocol.DIGESTS
            for array in arrays_of(message)
        }
        for grid in (before, after)
    ]
    assert not rows[0] & rows[1]


def arrays_of(message):
    return message.content.array_records[protocol.ARRAYS].values()


def test_a_site_with_another_key_ends_the_run_with_both_checks(config, folders, tmp_path):
    (folders[1] / "overlap.key").write_text("ab" * 32)
    with pytest.raises(RunError, match=r"2 different overlap keys .*(two; .*one, three|one, three; .*two).*the same file"):
        deploy(config, folders, tmp_path)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "two: ExchangeError: overlap = 'remove' compares the sites' text .* this site's file names none"),
        ("abab", "two: ConfigError; the site's log has the rest"),
    ],
)
def test_a_site_without_a_key_takes_no_part_and_tells_no_place(config, folders, tmp_path, caplog, content, told):
    if content is None:
        file = folders[1] / "site.toml"
        file.write_text(file.read_text().replace('overlap-key = "overlap.key"\n', ""))
    else:
        (folders[1] / "overlap.key").write_text(content)
    with pytest.raises(RunError, match=told) as refused:
        deploy(config, folders, tmp_path)
    assert str(tmp_path) not in str(refused.value)
    assert "wanted one line of 64 hexadecimal digits" in caplog.text or content is None


def test_a_key_that_was_changed_in_the_middle_of_a_run_is_noticed(config, folders, tmp_path):
    class Changing(Machines):
        def push_messages(self, messages):
            messages = list(messages)
            if any(message.metadata.message_type == protocol.TRAIN for message in messages):
                (self.folders[2] / "overlap.key").write_text("cd" * 32)
            return super().push_messages(messages)

    with pytest.raises(RunError, match="three: ExchangeError: this site's overlap key differs from the one"):
        deploy(config, folders, tmp_path, Changing)
