"""Nodes that may not speak for a site, or whose site does not fit the run: refused by name before anything trains."""

from pathlib import Path

import pytest
from flwr.app import ConfigRecord, Error, Message

from fedlingua.common.errors import RunError
from fedlingua.corpora.sites import read_federation
from fedlingua.corpora.split import SPLITS
from fedlingua.desk.deployment.site_setup import make_key
from fedlingua.exchange import protocol
from strategies.rounds.registration import Registry
from tests.in_process import InProcessGrid, rounds, run, run_on


@pytest.fixture
def config(four_sites):
    return {**four_sites, "method": "adapter-fed", "rounds": 1, "quorum": 0.75, "deadline.join-s": 1.0}


def describe(change, site="court"):
    """Change what the court's node says of itself."""

    def tamper(request, reply):
        if request.metadata.message_type == protocol.DESCRIBE and f"{protocol.SITE_PREFIX}{site}" in reply.content:
            change(reply)
        return reply

    return tamper


def said(record, key, value):
    return lambda reply: reply.content.config_records[record].__setitem__(key, value)


COURT = f"{protocol.SITE_PREFIX}court"
CAUSES = {
    "another-backbone": (said(protocol.NODE, "fingerprint", "0" * 64), "has another backbone, tokenizer or tensor set"),
    "other-code": (said(protocol.NODE, "code", "0" * 64), "runs other code"),
    "other-directions": (said(COURT, "directions", ["de-fr"]), r"has the directions \['de-fr'\]; the federation file says"),
    "sizes-left-out": (lambda reply: reply.content.config_records[COURT].pop("train"), "does not tell its train"),
}


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.fault("refused")
def test_a_node_that_does_not_fit_is_refused_by_name(config, tmp_path, cause):
    change, reason = CAUSES[cause]
    # Four nodes, so that the fault is the court's alone.
    folder, _ = run(config, tmp_path / "run", num_nodes=4, tamper=describe(change))
    assert "court" not in folder.read("sites.json")
    assert {failure["site"]: failure["kind"] for failure in rounds(folder)[1]["failures"]} == {"court": "away"}
    with pytest.raises(RunError, match=rf"3 of 4 sites are here and quorum = 1; missing: court \(court: {reason}"):
        run({**config, "quorum": 1.0}, tmp_path / "all", num_nodes=4, tamper=describe(change))


def test_a_question_outlives_the_load_of_the_servers_backbone(config, tmp_path):
    grid = InProcessGrid(config, 4)
    run_on(grid, {**config, "run-dir": str(tmp_path / "run")})
    asked = [message.metadata.ttl for message in grid.sent if message.metadata.message_type == protocol.DESCRIBE]
    assert len(asked) == 4
    assert min(asked) >= 3600 + config["deadline.join-s"]


@pytest.mark.fault("refused")
def test_a_site_that_cannot_describe_itself_is_named(config, tmp_path):
    def broken(request, reply):
        here = f"{protocol.SITE_PREFIX}court" in reply.content
        return Message(Error(100, "CorpusError: the corpus is empty"), reply_to=request) if here else reply

    folder, _ = run(config, tmp_path / "run", num_nodes=4, tamper=broken)
    assert set(folder.read("sites.json")) == {"hospital", "school", "bank"}


@pytest.mark.fault("refused")
def test_a_stranger_is_refused_and_the_run_goes_on(config, tmp_path):
    def stranger(reply):
        reply.content[f"{protocol.SITE_PREFIX}spy"] = reply.content[COURT]

    folder, _ = run(config, tmp_path / "run", tamper=describe(stranger))
    assert set(folder.read("sites.json")) == {"hospital", "court", "school", "bank"}
    assert (
        '"site": "spy", "kind": "foreign", "reason": "is not in the federation file'
        in (folder.directory / "progress.jsonl").read_text()
    )


@pytest.mark.fault("stopped")
def test_one_name_on_two_nodes_without_keys_stops_the_run(config, tmp_path):
    def twice(reply):
        hospital = ConfigRecord({**reply.content.config_records[COURT], "directions": ["de-fr"]})
        reply.content[f"{protocol.SITE_PREFIX}hospital"] = hospital

    with pytest.raises(RunError, match="hospital: is hosted by a second node; a name belongs to one node"):
        run(config, tmp_path / "run", num_nodes=4, tamper=describe(twice))


@pytest.mark.fault("stopped")
def test_nobody_there_stops_the_run(config, tmp_path):
    class Deserted(InProcessGrid):
        def get_node_ids(self):
            return []

    config = {**config, "run-dir": str(tmp_path / "run")}
    with pytest.raises(RunError, match=r"0 of 4 sites are here .*no node hosts them after 1 s; start the sites' SuperNodes"):
        run_on(Deserted(config, 2), config)


class Authenticated(InProcessGrid):
    """One node a site, each with the key that the SuperLink knows it by."""

    def __init__(self, config, keys):
        super().__init__(config, 4)
        self.public_keys = {100 + number: key.split()[1].encode() and key.encode() for number, key in enumerate(keys)}


def with_keys(config, tmp_path, keys):
    """The four sites' federation file, with the public key of each."""
    text = (tmp_path / "four.toml").read_text()
    for site, key in zip(("hospital", "court", "school", "bank"), keys, strict=True):
        text = text.replace(f'name = "{site}"\n', f'name = "{site}"\npublic-key = "{key}"\n')
    (tmp_path / "keys.toml").write_text(text)
    assert len(read_federation(tmp_path / "keys.toml", tmp_path).sites) == 4
    return {**config, "federation": str(tmp_path / "keys.toml"), "run-dir": str(tmp_path / "run")}


@pytest.mark.fault("refused")
def test_a_name_belongs_to_one_key(config, tmp_path):
    keys = [make_key(tmp_path / f"{number}.key").strip() for number in range(5)]
    config = with_keys(config, tmp_path, keys[:4])
    folder = run_on(Authenticated(config, [keys[0], keys[4], keys[2], keys[3]]), config)
    assert set(folder.read("sites.json")) == {"hospital", "school", "bank"}
    assert (
        '"site": "court", "kind": "foreign", "reason": "speaks with another key'
        in (folder.directory / "progress.jsonl").read_text()
    )


def test_with_the_right_keys_all_are_here(config, tmp_path):
    keys = [make_key(tmp_path / f"{number}.key").strip() for number in range(4)]
    config = with_keys(config, tmp_path, keys)
    folder = run_on(Authenticated(config, keys), config)
    assert set(folder.read("sites.json")) == {"hospital", "court", "school", "bank"}


class LateBank(InProcessGrid):
    """The bank's node connects once round 1 has been trained."""

    def get_node_ids(self):
        late = any(m.metadata.message_type == protocol.TRAIN for m in self.sent)
        return [100, 101, 102, 103] if late else [100, 101, 102]


@pytest.mark.fault("resumed")
def test_a_site_that_comes_late_takes_its_place(config, tmp_path):
    config = {**config, "rounds": 2, "run-dir": str(tmp_path / "run")}
    folder = run_on(LateBank(config, 4), config)
    assert [sorted({f["site"] for f in record["failures"]}) for record in rounds(folder)] == [[], ["bank"], []]
    assert ["bank" in record["sites"] for record in rounds(folder)] == [False, True, True]
    assert set(folder.read("sites.json")) == {"hospital", "court", "school", "bank"}
    assert "bank" in folder.read("scores.json")["sites"]


class Changed(InProcessGrid):
    """The court's node goes in round 1 and comes back with another backbone."""

    def get_node_ids(self):
        trained = sum(m.metadata.message_type == protocol.TRAIN for m in self.sent)
        return [100, 102, 103] if 0 < trained < 7 else [100, 101, 102, 103]


@pytest.mark.fault("refused")
def test_a_node_that_comes_back_with_another_backbone_is_not_used(config, tmp_path):
    asked = []

    def other_backbone(request, reply):
        if request.metadata.message_type == protocol.DESCRIBE and COURT in reply.content:
            asked.append(reply)
            if len(asked) > 1:
                reply.content.config_records[protocol.NODE]["fingerprint"] = "0" * 64
        return reply

    config = {**config, "rounds": 3, "run-dir": str(tmp_path / "run")}
    grid = Changed(config, 4, tamper=other_backbone)
    folder = run_on(grid, config)
    assert len(asked) == 2
    told = [m.content.config_records[protocol.TASK] for m in grid.sent if m.metadata.message_type == protocol.TRAIN]
    assert [task["round"] for task in told if task["site"] == "court"] == [1]
    refused = [f for record in rounds(folder) for f in record["failures"] if f["kind"] == "refused"]
    assert [(f["site"], "another backbone" in f["reason"]) for f in refused] == [("court", True)]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (said(COURT, "directions", 5), "has the directions 5"),
        (said(COURT, "dropped", [1, 2]), "two lists of one length"),
        (said(COURT, "read", b"0"), "wanted a count"),
        (said(COURT, "train", 10**12), "do not add up"),
        (said(COURT, "note", "x" * 2_000_000), "more than 1000000 bytes"),
    ],
    ids=["directions", "reasons", "bytes", "too-many", "too-long"],
)
@pytest.mark.fault("refused")
def test_what_a_node_tells_of_its_site_has_to_make_sense(config, tmp_path, change, reason):
    folder, _ = run(config, tmp_path / "run", num_nodes=4, tamper=describe(change))
    assert "court" not in folder.read("sites.json")
    assert reason in (folder.directory / "progress.jsonl").read_text()


@pytest.mark.fault("resumed")
def test_a_node_without_a_key_that_restarts_is_taken_back(config, tmp_path):
    """It comes under another id while the server still takes the old one for connected, and is refused until that is gone."""

    class Restarted(InProcessGrid):
        def get_node_ids(self):
            told = tmp_path / "run" / "progress.jsonl"
            gone = told.is_file() and "is hosted by a second node" in told.read_text()
            trains = any(message.metadata.message_type == protocol.TRAIN for message in self.sent)
            return [100, *([] if gone else [101]), 102, 103, *([104] if trains else [])]

        def node_config(self, node):
            return super().node_config(101 if node == 104 else node)

    config = {**config, "run-dir": str(tmp_path / "run"), "rounds": 3}
    folder = run_on(Restarted(config, 4), config)
    lines = rounds(folder)
    assert [failure["site"] for failure in lines[2]["failures"]] == ["court"]
    assert set(lines[3]["sites"]) == {"hospital", "court", "school", "bank"}
    assert lines[3]["failures"] == []


def test_sizes_are_compared_once_all_sites_are_here(config, tmp_path):
    """By the first three sites the third would be a thousand times too large."""
    registry = Registry(read_federation(Path(config["federation"]), tmp_path), "", "")
    sizes = {"hospital": 1, "court": 1, "school": 2000, "bank": 2000}
    for node, (site, size) in enumerate(list(sizes.items())[:3]):
        registry.nodes[site], registry.about[site] = node, dict.fromkeys(SPLITS, size)
        registry._asked[node] = ""
    assert registry.refresh(Grid3(), 1.0) == ({"hospital", "court", "school"}, [])
    registry.nodes["bank"], registry.about["bank"] = 0, dict.fromkeys(SPLITS, 2000)
    assert registry.refresh(Grid3(), 1.0)[1] == []
    registry.about["bank"] = dict.fromkeys(SPLITS, 1)
    assert [failure.site for failure in registry.refresh(Grid3(), 1.0)[1]] == ["school"]


class Grid3:
    def get_node_ids(self):
        return [0, 1, 2]
