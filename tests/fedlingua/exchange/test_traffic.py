"""All that crosses is counted: every message out and every reply in, by site and kind, over the whole run."""

from collections import Counter

import pytest
from flwr.app import ConfigRecord, Error, Message, RecordDict

from fedlingua.common.errors import RunError
from fedlingua.corpora.rules import TextRules
from fedlingua.exchange import protocol
from fedlingua.exchange.records import message_bytes
from fedlingua.exchange.traffic import CountedGrid, Traffic
from tests.in_process import InProcessGrid, failing, rounds, run, run_on


@pytest.fixture
def config(four_sites):
    return {**four_sites, "rounds": 2, "meta.batches": 2, "meta.batch-size": 2}


def by_hand(live):
    """(kind, way) -> bytes of what a grid has seen go by."""
    found = Counter()
    for way, messages in (("downlink_bytes", live.sent), ("uplink_bytes", live.received)):
        for message in messages:
            found[message.metadata.message_type.rpartition(".")[2], way] += message_bytes(message)
    return found


def by_kind(told):
    """The same of what a run has counted, over all sites."""
    found = Counter()
    for kinds in told.values():
        for kind, moved in kinds.items():
            found.update({(kind, way): moved[way] for way in ("uplink_bytes", "downlink_bytes")})
    return found


@pytest.mark.parametrize(
    ("keys", "kinds"),
    [
        ({"method": "adapter-families"}, {"describe", "train", "evaluate", "finish"}),
        ({"method": "adapter-gradients"}, {"describe", "signature", "train", "evaluate", "finish"}),
        ({"method": "metasend-g", "learning-rate": 1e-3}, {"describe", "probe", "send", "evaluate", "finish"}),
        ({"method": "base"}, {"describe", "evaluate", "finish"}),
    ],
    ids=["families", "gradients", "metasend", "base"],
)
def test_nothing_that_was_said_is_missing_in_the_runs_traffic(config, tmp_path, keys, kinds):
    folder, live = run({**config, **keys}, tmp_path / "run")
    told = folder.read("traffic.json")
    assert by_kind(told) == by_hand(live)
    assert {kind for kind, _ in by_hand(live)} == kinds
    for site, moved in told.items():
        mine = sum(message_bytes(m) for m in live.sent if m.content.config_records.get("task", {}).get("site") == site)
        assert sum(counts["downlink_bytes"] for kind, counts in moved.items() if kind != "describe") == mine


def test_what_a_node_says_of_itself_is_its_first_sites(config, tmp_path):
    folder, live = run({**config, "method": "base"}, tmp_path / "run", num_nodes=2)
    told, nodes = folder.read("traffic.json"), folder.read("sites.json")
    firsts = {next(site for site, about in nodes.items() if about["node"] == node) for node in (0, 1)}
    assert {site for site, moved in told.items() if "describe" in moved} == firsts
    assert by_kind(told)["describe", "uplink_bytes"] == by_hand(live)["describe", "uplink_bytes"]


def test_a_rounds_bytes_are_its_own(config, tmp_path):
    folder, _ = run({**config, "method": "adapter-fed", "send.rule": "metasend-l"}, tmp_path / "run")
    lines, whole = rounds(folder), folder.read("traffic.json")
    for site, moved in whole.items():
        for kind in ("probe", "send", "evaluate"):
            assert sum(line["bytes"][site].get(kind, {}).get("uplink_bytes", 0) for line in lines) == moved[kind]["uplink_bytes"]
        for line in lines[1:]:
            of_round = line["bytes"][site]
            for way in ("uplink_bytes", "downlink_bytes"):
                assert line["sites"][site][way] == sum(of_round[kind][way] for kind in ("probe", "send", "evaluate"))


def test_a_refused_reply_and_an_error_have_crossed_too(config, tmp_path):
    seen = []

    def tamper(request, reply):
        site, kind = request.content.get("task", {}).get("site"), request.metadata.message_type
        if kind == protocol.TRAIN and site == "court":
            reply.content[protocol.METRICS]["steps"] = -1
        if kind == protocol.TRAIN and site == "hospital":
            reply = Message(Error(100, "the disk is full"), reply_to=request)
        if kind == protocol.TRAIN:
            seen.append(message_bytes(reply))
        return reply

    folder, _ = run({**config, "method": "adapter-fed", "rounds": 1, "quorum": 0.5}, tmp_path / "run", tamper=tamper)
    assert len(rounds(folder)[1]["failures"]) == 2
    assert by_kind(folder.read("traffic.json"))["train", "uplink_bytes"] == sum(seen)


def test_a_resumed_run_goes_on_counting(config, tmp_path):
    config = {**config, "method": "adapter-fed", "run-dir": str(tmp_path / "run")}
    first = InProcessGrid(config, 2, tamper=failing("court", protocol.EVALUATE, 2))
    with pytest.raises(RunError, match="the disk is full"):
        run_on(first, config)
    second = InProcessGrid(config, 2)
    folder = run_on(second, {**config, "resume": True})
    # The errors went up, too, though the grid does not keep them: the site was asked once more.
    errors = [message_bytes(Message(Error(1, "the disk is full"), reply_to=message)) for message in first.sent if _lost(message)]
    assert len(errors) == 2
    assert by_kind(folder.read("traffic.json")) == by_hand(first) + by_hand(second) + Counter(
        {("evaluate", "uplink_bytes"): sum(errors)}
    )


def _lost(message):
    task = message.content.config_records.get("task", {})
    return (message.metadata.message_type, task.get("site"), task.get("round")) == (protocol.EVALUATE, "court", 2)


def test_a_counted_grid_is_the_grid_and_its_own_send_and_receive_counts(config):
    live = InProcessGrid({**config, "method": "adapter-fed"}, 2)
    live.set_run("this one")
    traffic = Traffic()
    grid = CountedGrid(live, traffic)
    assert (list(grid.get_node_ids()), list(grid.get_nodes()), grid.run) == ([100, 101], live.get_nodes(), "this one")
    content = RecordDict({protocol.RULES: ConfigRecord(TextRules().flat())})
    ask = Message(content, dst_node_id=100, message_type=protocol.DESCRIBE, group_id="0", ttl=60.0)
    (reply,) = grid.send_and_receive([ask])
    moved = {"uplink_bytes": message_bytes(reply), "downlink_bytes": message_bytes(ask)}
    assert traffic.as_json() == {"others": {"describe": moved}}  # the node speaks for nobody
