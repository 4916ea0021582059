"""Sites that fail, fall silent, go or come late, and what the run does when too few are left."""

import time

import pytest
from flwr.app import Error, Message

from fedlingua.common.errors import RunError
from fedlingua.exchange import protocol
from fedlingua.exchange.records import message_bytes
from tests.in_process import InProcessGrid, checkpoint_bytes, failing, rounds, run, run_on

SITE = "court"


# --- Sites that fail, fall silent, or go ---


@pytest.mark.fault("refused")
def test_a_site_that_raises_is_named_and_the_others_go_on(config, tmp_path):
    folder, _ = run(config, tmp_path / "fault", tamper=failing(SITE, protocol.TRAIN, 1))
    wanted = {"site": SITE, "phase": "train", "kind": "failed", "reason": "the disk is full"}
    assert rounds(folder)[1]["failures"] == [wanted]
    assert rounds(folder)[2]["failures"] == []
    assert SITE in folder.read("scores.json")["sites"]


def silent_in_training(request, reply):
    task = request.content.config_records.get(protocol.TASK, {})
    return None if task.get("site") == SITE and request.metadata.message_type == protocol.TRAIN else reply


@pytest.mark.fault("refused")
def test_a_silent_site_is_late_and_costs_the_deadline_once(config, tmp_path):
    started = time.monotonic()
    deadlines = {"deadline.phase-s": 1.5}
    folder, _ = run({**config, "rounds": 3, **deadlines}, tmp_path / "late", tamper=silent_in_training)
    seconds = [record["seconds"] for record in rounds(folder)]
    assert time.monotonic() - started >= 3.0
    assert seconds[1] >= 3.0  # what measures the base before it trains has the time for both
    reasons = [[(f["phase"], f["kind"], f["reason"]) for f in record["failures"]] for record in rounds(folder)]
    owes = "still owes the reply to an earlier message, so it is not asked"
    assert reasons[1] == [("train", "late", "no reply within 3 s, though its node is connected")]
    # Who is not asked costs no time.
    assert reasons[2] == reasons[3][:1] == [("train", "late", owes)]


class Slow(InProcessGrid):
    """The court's reply to round 1, or an error, arrives while round 2 is at work."""

    error = False

    def pull_messages(self, message_ids):
        asked = set(message_ids)
        trained = sum(m.metadata.message_type == protocol.TRAIN for m in self.sent)
        for number, _reply in list(self.late.items()):
            if number in asked and trained > 4:
                self.replies[number] = self.late.pop(number)
        return super().pull_messages(asked)

    def push_messages(self, messages):
        messages = list(messages)
        ids = super().push_messages(messages)
        for number, message in zip(ids, messages, strict=True):
            task = message.content.config_records.get(protocol.TASK, {})
            if message.metadata.message_type == protocol.TRAIN and task["site"] == SITE and task["round"] == 1:
                reply = self.replies.pop(number)
                self.late[number] = Message(Error(100, "stopped after 1 minutes"), reply_to=message) if self.error else reply
        return ids


@pytest.mark.parametrize("error", [False, True])
@pytest.mark.fault("refused")
def test_a_late_reply_does_not_count_and_its_site_is_back(config, tmp_path, error):
    config = {**config, "rounds": 3, "deadline.phase-s": 1.0, "run-dir": str(tmp_path / "slow")}
    grid = Slow(config, 2)
    grid.late, grid.error = {}, error
    folder = run_on(grid, config)
    assert [sorted({f["phase"] for f in record["failures"]}) for record in rounds(folder)] == [
        [],
        ["train"],
        ["train"],
        [],
    ]
    said = "site court is back; its late reply does not count" + (": stopped after 1 minutes" if error else "")
    assert said in (folder.directory / "progress.jsonl").read_text()
    # A late update's bytes have crossed, too.
    updates = [reply for reply in grid.received if reply.metadata.message_type == protocol.TRAIN]
    counted = sum(moved["train"]["uplink_bytes"] for moved in folder.read("traffic.json").values())
    assert error or counted == sum(map(message_bytes, updates))
    # Round 2 is made without the court, although its reply to round 1 came meanwhile.
    assert set(rounds(folder)[2]["sites"]["court"]["seconds"]) == {"evaluate"}
    assert SITE not in rounds(folder)[1]["sites"]  # nor did it measure round 1


class Leaving(InProcessGrid):
    """Node 101 (court and bank) goes while it trains in round 1, and is back in round 3."""

    def get_node_ids(self):
        trained = sum(m.metadata.message_type == protocol.TRAIN for m in self.sent)
        return [100] if 4 <= trained < 6 else [100, 101]


def lost_in_round_1(request, reply):
    task = request.content.config_records.get(protocol.TASK, {})
    if request.metadata.message_type == protocol.TRAIN and task["round"] == 1 and task["site"] in (SITE, "bank"):
        return Message(Error(5, "Node Unavailable"), reply_to=request)
    return reply


@pytest.mark.fault("refused")
def test_a_lost_node_is_dead_then_away_then_back(config, tmp_path):
    config = {**config, "rounds": 3, "run-dir": str(tmp_path / "lost")}
    folder = run_on(Leaving(config, 2, tamper=lost_in_round_1), config)
    kinds = [{(f["site"], f["phase"]): f["kind"] for f in record["failures"]} for record in rounds(folder)]
    assert kinds[1] == {(SITE, "train"): "dead", ("bank", "train"): "dead"}
    assert kinds[2] == {(SITE, "train"): "away", ("bank", "train"): "away"}
    assert kinds[3] == {}
    assert set(rounds(folder)[3]["sites"]) == {"hospital", SITE, "school", "bank"}


# --- Too few ---


def all_but(site, phase=protocol.TRAIN, number=1):
    def tamper(request, reply):
        task = request.content.config_records.get(protocol.TASK, {})
        if request.metadata.message_type == phase and task["round"] == number and task["site"] != site:
            return Message(Error(1, "the disk is full"), reply_to=request)
        return reply

    return tamper


@pytest.mark.fault("stopped")
def test_a_lone_survivor_is_not_taken_for_the_whole(config, tmp_path):
    with pytest.raises(
        RunError, match=r"round 1, train: [01] of 4 sites answered well, quorum = 0\.5 needs 2; missing: .*court: the disk"
    ):
        run(config, tmp_path / "lone", tamper=all_but("bank"))


@pytest.mark.fault("stopped")
def test_all_weights_zero_stop_the_run(config, tmp_path):
    def zero(request, reply):
        if request.metadata.message_type == protocol.TRAIN:
            reply.content.metric_records[protocol.METRICS]["num_examples"] = 0
        return reply

    with pytest.raises(RunError, match="hospital: bad reply: num_examples = 0; wanted a whole number, at least 1"):
        run(config, tmp_path / "zero", tamper=zero)


@pytest.mark.fault("resumed")
def test_go_on_skips_a_round_below_the_quorum(config, tmp_path, record_property):
    folder, _ = run({**config, "rounds": 3, "below-quorum": "go-on"}, tmp_path / "on", tamper=all_but("bank", number=2))
    shorter, _ = run({**config, "rounds": 1}, tmp_path / "shorter")
    losses = [record["dev_loss"] for record in rounds(folder)]
    record_property("rounds_lost", 4 - len(losses))
    assert losses[2] is None
    assert losses[1] == rounds(shorter)[1]["dev_loss"]
    assert losses[3] is not None
    second = folder.directory / "checkpoints" / "0002"
    assert {file.name: file.read_bytes() for file in second.glob("*.safetensors")} == checkpoint_bytes(shorter)


class Working(InProcessGrid):
    """A training takes a second; the court's fails at once in round 2, and node 101 is away for the first half second of round 3."""

    def __init__(self, *given):
        super().__init__(*given)
        self.ready, self.fails, self.away_until = {}, True, None

    def push_messages(self, messages):
        messages = list(messages)
        ids = super().push_messages(messages)
        for number, message in zip(ids, messages, strict=True):
            task = message.content.config_records.get(protocol.TASK, {})
            if message.metadata.message_type != protocol.TRAIN:
                continue
            if self.fails and (task["site"], task["round"]) == (SITE, 2):
                self.replies[number] = Message(Error(100, "the disk is full"), reply_to=message)
                self.away_until = time.monotonic() + 1.5
            else:
                self.ready[number] = time.monotonic() + 1.0
        return ids

    def pull_messages(self, message_ids):
        return super().pull_messages([number for number in message_ids if self.ready.get(number, 0) <= time.monotonic()])

    def get_node_ids(self):
        is_away = self.away_until is not None and self.away_until - 0.5 < time.monotonic() < self.away_until
        return [100] if is_away else [100, 101]


@pytest.mark.fault("resumed")
def test_a_skipped_round_does_not_cost_the_next_ones(config, tmp_path, monkeypatch):
    """The sites that still train when one fails are waited for, and so is a node that is away for a moment."""
    monkeypatch.setattr("strategies.rounds.phases.WAIT_PAUSE_S", 0.05)
    config = {**config, "quorum": 1.0, "below-quorum": "go-on", "rounds": 4, "run-dir": str(tmp_path / "on")}
    lines = rounds(run_on(Working(config, 2), config))
    assert [line["dev_loss"] is None for line in lines] == [False, False, True, False, False]
    assert {failure["kind"] for failure in lines[2]["failures"]} <= {"failed", "away"}
    assert {failure["kind"] for failure in lines[3]["failures"]} <= {"away"}


@pytest.mark.fault("resumed")
def test_wait_asks_again_until_the_sites_are_back(config, tmp_path, monkeypatch):
    monkeypatch.setattr("strategies.rounds.phases.WAIT_PAUSE_S", 0.01)
    times = {"failed": 0}

    def twice(request, reply):
        task = request.content.config_records.get(protocol.TASK, {})
        if request.metadata.message_type == protocol.TRAIN and task["site"] != "bank" and times["failed"] < 15:
            times["failed"] += 1
            return Message(Error(1, "the disk is full"), reply_to=request)
        return reply

    folder, _ = run({**config, "quorum": 1.0, "below-quorum": "wait"}, tmp_path / "wait", tamper=twice)
    assert times["failed"] == 15  # no site is set aside for an error
    assert checkpoint_bytes(folder) == checkpoint_bytes(run(config, tmp_path / "whole")[0])


@pytest.mark.fault("stopped")
def test_waiting_has_an_end(config, tmp_path, monkeypatch):
    monkeypatch.setattr("strategies.rounds.phases.WAIT_PAUSE_S", 0.01)
    config = {**config, "below-quorum": "wait", "wait-s": 0.05}
    with pytest.raises(RunError, match="court: the disk is full"):
        run(config, tmp_path / "wait", tamper=all_but("bank"))


@pytest.mark.fault("stopped")
def test_nobody_is_waited_for_once_too_many_are_set_aside(config, tmp_path, monkeypatch):
    monkeypatch.setattr("strategies.rounds.phases.WAIT_PAUSE_S", 0.01)

    def lies(request, reply):
        if request.metadata.message_type == protocol.TRAIN and request.content[protocol.TASK]["site"] == SITE:
            reply.content[protocol.METRICS]["steps"] = -1
        return reply

    with pytest.raises(RunError, match=r"court: set aside after 3 refused replies \(robust\.max-bad-replies\)|court: bad reply"):
        run({**config, "quorum": 1.0, "below-quorum": "wait"}, tmp_path / "aside", tamper=lies)


class Trickling(InProcessGrid):
    """Every training reply is ready only some looks after the last one, and the bank is away for the first of them."""

    looks = 0

    def get_node_ids(self):
        return [100, 101, 102] if self.looks < 4 else [100, 101, 102, 103]

    def pull_messages(self, message_ids):
        (number,) = message_ids
        message = next(m for m in self.sent if m.object_id == number)
        if message.metadata.message_type == protocol.TRAIN:
            self.looks += 1
            self.age[number] = self.age.get(number, 0) + 1
            if self.age[number] < 3:
                return []
        return super().pull_messages([number])


@pytest.mark.fault("resumed")
def test_waiting_hears_everybody_out(config, tmp_path, monkeypatch):
    """Sites that take longer than the pause between two questions are not asked anew before they could answer."""
    monkeypatch.setattr("strategies.rounds.phases.WAIT_PAUSE_S", 0.01)
    config = {
        **config,
        "quorum": 1.0,
        "below-quorum": "wait",
        "rounds": 1,
        "run-dir": str(tmp_path / "wait"),
        "deadline.join-s": 0.5,
    }
    grid = Trickling(config, 4)
    grid.age, grid.looks = {}, 9  # all are here for the roll call
    original = grid.push_messages

    def push(messages):
        messages = list(messages)
        if messages[0].metadata.message_type == protocol.TRAIN and not grid.age:
            grid.looks = 0
        return original(messages)

    grid.push_messages = push
    folder = run_on(grid, config)
    trained = [m.content.config_records[protocol.TASK]["site"] for m in grid.sent if m.metadata.message_type == protocol.TRAIN]
    assert sorted(trained) == ["bank", SITE, "hospital", "school"]  # each once
    assert checkpoint_bytes(folder) == checkpoint_bytes(run({**config, "below-quorum": "fail"}, tmp_path / "whole")[0])


@pytest.mark.fault("resumed")
def test_going_on_takes_the_scores_that_there_are(config, tmp_path):
    """At the end a site that is away does not cost the others their scores."""

    class WithoutTheBank(InProcessGrid):
        def get_node_ids(self):
            evaluated = sum(m.metadata.message_type == protocol.EVALUATE for m in self.sent)
            return [100, 101, 102] if evaluated >= 4 else [100, 101, 102, 103]

    config = {**config, "quorum": 1.0, "below-quorum": "go-on", "rounds": 1, "run-dir": str(tmp_path / "on")}
    folder = run_on(WithoutTheBank(config, 4), config)
    assert set(folder.read("scores.json")["sites"]) == {"hospital", SITE, "school"}
    assert [failure["kind"] for failure in folder.read("run.json")["failures_at_the_end"]] == ["away"]
