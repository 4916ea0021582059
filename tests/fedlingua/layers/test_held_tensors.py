"""What a site holds is named, not sent: the same tensors for fewer bytes, and everything anew where a site has lost it."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedlingua.exchange import protocol
from fedlingua.exchange.held import NamedState, digest_of
from fedlingua.exchange.protocol import Task
from fedlingua.exchange.records import pack
from fedlingua.exchange.tensors import TensorSet, TensorSpec
from fedlingua.layers.held_tensors import HeldTensors
from tests.in_process import checkpoint_bytes, rounds, run

SET = TensorSet("adapters", (TensorSpec("e", (3,), "encoder", 0), TensorSpec("d", (2,), "decoder", 0)))


@pytest.fixture(autouse=True)
def _identity():
    """Of the process, which Flower asks for where a message is made."""
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1


@pytest.fixture
def config(four_sites):
    return {**four_sites, "method": "adapter-fed", "rounds": 3}


def request(kind, number, **values):
    task = Task("court", "run", 1, number)
    tensors = {spec.name: np.full(spec.shape, values[spec.name], np.float32) for spec in SET.specs}
    content = RecordDict({protocol.TASK: ConfigRecord(task.request()), protocol.ARRAYS: pack(tensors, SET)})
    return Message(content, dst_node_id=1, message_type=kind, group_id="0", ttl=60.0)


def holding(best=0, last=1):
    """A layer whose sites would keep the round `best`, and store the `last` ones."""
    layer = HeldTensors(SimpleNamespace(rounds_at_sites=last), {})
    layer.run = SimpleNamespace(initial={}, tensor_set=SET, best_of=lambda site: best)
    layer.begin(layer.run, None)
    return layer


def sent(holdings, kind, number, **values):
    """The parts that go out whole, with the state that is named; the site answers."""
    message = request(kind, number, **values)
    holdings.requests({"court": message})
    holdings.answered("court")
    return list(message.content[protocol.ARRAYS]), NamedState.of(message.content)


def test_a_part_goes_out_once():
    holdings = holding()
    parts, state = sent(holdings, protocol.EVALUATE, 1, e=1, d=2)
    assert parts == ["encoder", "decoder"]
    digests = {"encoder": digest_of(np.ones(3, np.float32)), "decoder": digest_of(np.full(2, 2, np.float32))}
    assert (state.number, dict(state.digests)) == (1, digests)
    assert sent(holdings, protocol.TRAIN, 2, e=1, d=2) == ([], NamedState(1, 0, digests))
    assert sent(holdings, protocol.EVALUATE, 2, e=1, d=5)[0] == ["decoder"]


def test_what_was_not_answered_is_sent_again():
    holdings = holding()
    holdings.requests({"court": request(protocol.EVALUATE, 1, e=1, d=2)})
    assert sent(holdings, protocol.TRAIN, 2, e=1, d=2)[0] == ["encoder", "decoder"]


def test_a_site_that_has_lost_it_is_sent_everything_and_only_once_more():
    holdings = holding()
    holdings.initial = {"encoder": digest_of(np.ones(3, np.float32)), "decoder": digest_of(np.ones(2, np.float32))}
    assert sent(holdings, protocol.TRAIN, 1, e=1, d=1)[0] == []
    assert holdings.not_held("court")
    assert not holdings.not_held("court")
    assert sent(holdings, protocol.TRAIN, 1, e=1, d=1)[0] == ["encoder", "decoder"]


@pytest.mark.parametrize(("number", "is_held"), [(1, False), (2, True), (3, False), (4, False), (5, True), (8, True)])
def test_the_last_rounds_and_the_best_are_held(number, is_held):
    holdings = holding(best=2, last=4)
    for earlier in range(1, 9):
        sent(holdings, protocol.EVALUATE, earlier, e=earlier, d=-earlier)
    assert (sent(holdings, protocol.FINISH, number, e=number, d=-number)[0] == []) == is_held


# --- Whole runs ------------------------------------------------------------------------------------------------------------------


def test_named_or_sent_the_tensors_are_the_same(config, tmp_path, monkeypatch):
    named, _ = run(config, tmp_path / "named")
    monkeypatch.setattr(HeldTensors, "requests", lambda self, messages: None)
    whole, _ = run(config, tmp_path / "whole")
    assert checkpoint_bytes(named) == checkpoint_bytes(whole)
    assert named.read("scores.json")["sites"] == whole.read("scores.json")["sites"]
    few, many = (folder.read("scores.json")["total_bytes"] for folder in (named, whole))
    tensors = 4 * named.read("run.json")["exchanged_parameters"]
    # Of the requests with tensors, 1 a round, the last round's own and the last, only the rounds' results still go out: 3 of 5.
    assert many["down"] - few["down"] == pytest.approx(2 * tensors, rel=0.1)
    assert few["fp32"] == 8 * tensors


def test_the_round_that_is_delivered_is_named_however_old_it_is(config, tmp_path):
    """Losses rise from the first round on, and six rounds are more than a site stores of the last ones."""

    def tamper(asked, reply):
        task = asked.content.config_records.get(protocol.TASK, {})
        if asked.metadata.message_type == protocol.EVALUATE:
            reply.content[protocol.METRICS]["nll_sum"] *= 1 + 0.01 * task["round"]
        if "measure" in task:
            reply.content[protocol.MEASURED]["nll_sum"] *= 1 + 0.01 * task["measure"]
        return reply

    folder, live = run({**config, "rounds": 6}, tmp_path / "run", tamper=tamper)
    assert (best := folder.read("run.json")["best_round"]) == 1
    finish = [message for message in live.sent if message.metadata.message_type == protocol.FINISH]
    assert {NamedState.of(message.content).number for message in finish} == {best}
    assert all(not message.content[protocol.ARRAYS] for message in finish)


def test_a_site_that_has_lost_its_folder_is_sent_everything(config, tmp_path):
    whole, _ = run(config, tmp_path / "whole")
    lost = []

    def tamper(asked, reply):
        task = asked.content.config_records.get(protocol.TASK, {})
        if (task.get("site"), asked.metadata.message_type) == ("court", protocol.EVALUATE) and not lost:
            shutil.rmtree(tmp_path / "lost" / "sites" / "court" / "received")
            lost.append(reply)
        return reply

    folder, live = run(config, tmp_path / "lost", tamper=tamper)
    assert lost
    assert checkpoint_bytes(folder) == checkpoint_bytes(whole)
    assert not folder.read("run.json")["failures_at_the_end"]
    asked = [
        message
        for message in live.sent
        if message.metadata.message_type == protocol.FINISH and message.content[protocol.TASK]["site"] == "court"
    ]
    assert [len(message.content[protocol.ARRAYS]) for message in asked] == [0, 2]


def test_a_site_that_never_holds_anything_has_failed(config, tmp_path):
    def tamper(asked, reply):
        task = asked.content.config_records.get(protocol.TASK, {})
        if task.get("site") == "court" and asked.metadata.message_type == protocol.TRAIN:
            return Message(Error(protocol.NOT_HELD, "NotHeldError: I forget"), reply_to=asked)
        return reply

    folder, live = run({**config, "rounds": 1, "quorum": 0.5}, tmp_path / "run", tamper=tamper)
    failures = [failure for failure in rounds(folder)[1]["failures"] if failure["site"] == "court"]
    assert [failure["kind"] for failure in failures] == ["not held"]
    asked = [message for message in live.sent if message.metadata.message_type == protocol.TRAIN]
    assert sum(message.content[protocol.TASK]["site"] == "court" for message in asked) == 2


def test_a_bad_reply_is_asked_for_again_though_another_site_has_lost_its_tensors(config, tmp_path):
    """With all sites wanted, neither can be spared."""
    spoilt = []

    def tamper(asked, reply):
        task = asked.content.config_records.get(protocol.TASK, {})
        if asked.metadata.message_type == protocol.TRAIN and task["round"] == 2 and task["site"] not in spoilt:
            spoilt.append(task["site"])
            if task["site"] == "court":
                return Message(Error(protocol.NOT_HELD, "NotHeldError: I forget"), reply_to=asked)
            if task["site"] == "bank":
                del reply.content[protocol.METRICS]
        return reply

    folder, _ = run({**config, "quorum": 1.0}, tmp_path / "run", tamper=tamper)
    whole, _ = run({**config, "quorum": 1.0}, tmp_path / "whole")
    assert checkpoint_bytes(folder) == checkpoint_bytes(whole)
    assert [failure["site"] for failure in rounds(folder)[2]["failures"]] == ["bank"]
