"""A round's dev losses come with the next one's training: the run is the same as with messages for them alone, and one message shorter."""

import json
from collections import Counter
from statistics import mean

import pytest
from flwr.app import Error, Message

from fedlingua.common.errors import RunError
from fedlingua.exchange import protocol
from strategies.methods.fed_mean import FedMean
from strategies.methods.local_only import LocalOnly
from strategies.methods.metasend import MetaSend
from strategies.strategy import SiteStrategy
from tests.federations import TWO_SITES
from tests.gate import cases
from tests.in_process import InProcessGrid, checkpoint_bytes, failing, rounds, run, run_on

HERE = "tests.strategies.rounds.test_measured_later"


class Listening(FedMean):
    """Notes what `aggregate_evaluate` gets, and when."""

    def aggregate_train(self, server_round, replies):
        self.note(json.dumps(["train", server_round]))
        return super().aggregate_train(server_round, replies)

    def aggregate_evaluate(self, server_round, replies):
        told = [(m.content["task"]["site"], m.content["task"]["round"], m.content["metrics"]["eval_loss"]) for m in replies]
        self.note(json.dumps(["evaluate", server_round, told]))
        return super().aggregate_evaluate(server_round, replies)


class OwnRequests(Listening):
    def configure_evaluate(self, server_round, arrays, config, grid):
        return super().configure_evaluate(server_round, arrays, config, grid)


class OtherStart(FedMean):
    def configure_train(self, server_round, arrays, config, grid):
        return super().configure_train(server_round, arrays, config, grid)


@pytest.fixture
def as_before(monkeypatch):
    """Runs with messages of their own for every evaluation."""

    def runs(config, directory, **grid):
        with monkeypatch.context() as patch:
            patch.setattr(SiteStrategy, "evaluates_with_training", False)
            return run(config, directory, **grid)

    return runs


@pytest.fixture
def config(least_run_config, tmp_path):
    (tmp_path / "two.toml").write_text(TWO_SITES)
    return {**least_run_config, "method": "adapter-families", "federation": str(tmp_path / "two.toml"), "deadline.phase-s": 30.0}


def told(folder):
    """All of a run that its dev losses decide, and they themselves."""
    about = folder.read("run.json")
    sites = ("adapter/adapter.safetensors", "translations.tsv")
    files = {
        str(file.relative_to(folder.directory)): file.read_bytes()
        for kind in sites
        for file in folder.directory.glob(f"sites/*/{kind}")
    }
    losses = {
        line["round"]: (line["dev_loss"], {s: f.get("dev_loss") for s, f in line["sites"].items()}) for line in rounds(folder)
    }
    return about["best_round"], about["rounds"], losses, files, checkpoint_bytes(folder)


def kinds(live, site="court"):
    """kind of message -> how many the site got, once all are registered."""
    asked = [m for m in live.sent if m.content.config_records.get(protocol.TASK, {}).get("site") == site]
    return Counter(message.metadata.message_type for message in asked)


WORSE = {"learning-rate": 5.0, "patience": 2, "rounds": 9}
SAME = {
    "clusters": ({}, 3, 1),
    "controllers": ({"tensor-set": "controllers", "learning-rate": 0.001}, 3, 1),
    "pull": ({"pull": 0.1}, 3, 1),
    "local only": ({"method": "adapter-local"}, 3, 1),
    "coded": ({"send.code": "4bit"}, 3, 1),
    "every second": ({"evaluate-every": 2, "rounds": 5}, 5, 1),
    "patience": (WORSE, None, None),
    "translations": ({"keep-translations": 2}, 3, 1),
}


@pytest.mark.parametrize("name", cases(SAME, {"clusters", "controllers", "local only", "coded", "every second"}))
def test_the_run_is_the_same_as_with_messages_of_their_own(config, tmp_path, as_before, name):
    changes, trained, measured = SAME[name]
    config = {**config, "rounds": 3, **changes}
    riding, live = run(config, tmp_path / "riding")
    before, own = as_before(config, tmp_path / "own")
    assert told(riding) == told(before)
    assert all(loss is not None or number % 2 for number, (loss, _) in told(riding)[2].items())
    if trained:
        assert kinds(live) == {protocol.TRAIN: trained, protocol.EVALUATE: measured, protocol.FINISH: 1}
    by_round = [
        {str(f.relative_to(folder.directory)): f.read_bytes() for f in folder.directory.glob("sites/*/translations-by-round/*")}
        for folder in (riding, before)
    ]
    assert by_round[0] == by_round[1]
    assert kinds(live)[protocol.TRAIN] == kinds(own)[protocol.TRAIN]
    assert kinds(live)[protocol.EVALUATE] < kinds(own)[protocol.EVALUATE]
    down = [
        mean(sum(each["downlink_bytes"] for each in kinds.values()) for kinds in f.read("traffic.json").values())
        for f in (riding, before)
    ]
    assert down[0] < down[1]


def test_patience_is_asked_by_messages_of_their_own_where_it_may_end_the_run(config, tmp_path):
    folder, live = run({**config, **WORSE}, tmp_path / "patient")
    stopped = folder.read("run.json")["rounds"]
    assert stopped < WORSE["rounds"]
    assert kinds(live)[protocol.TRAIN] == stopped  # nothing is trained that nobody wanted
    measured = [m.content["task"]["measure"] for m in live.sent if "measure" in m.content.config_records.get("task", {})]
    assert len({*measured}) + kinds(live)[protocol.EVALUATE] == 1 + stopped
    assert 0 in measured


def all_fail(number):
    def tamper(request, reply):
        task = request.content.config_records.get(protocol.TASK, {})
        of_round = request.metadata.message_type == protocol.TRAIN and task["round"] == number
        return Message(Error(1, "the disk is full"), reply_to=request) if of_round else reply

    return tamper


@pytest.mark.parametrize(("number", "measures"), [(2, {0, 1, 3}), (4, {0, 1, 2, 3})], ids=["skipped", "the last skipped"])
def test_a_skipped_round_does_not_cost_the_one_before_its_dev_loss(config, tmp_path, as_before, number, measures):
    config = {**config, "rounds": 4, "below-quorum": "go-on"}
    riding, live = run(config, tmp_path / "riding", tamper=all_fail(number))
    before, _ = as_before(config, tmp_path / "own", tamper=all_fail(number))
    assert told(riding) == told(before)
    assert {n for n, (loss, _) in told(riding)[2].items() if loss is None} == {number}
    asked = {m.content["task"]["measure"] for m in live.sent if "measure" in m.content.config_records.get("task", {})}
    assert asked == (measures | {2} - {number} if number == 4 else measures)


def test_two_skipped_rounds_keep_what_may_be_the_best(config, tmp_path, as_before):
    config = {**config, "rounds": 4, "below-quorum": "go-on", "learning-rate": 0.01, "robust.max-bad-replies": 0}

    def tamper(request, reply):
        return all_fail(2)(request, all_fail(3)(request, reply))

    riding, _ = run(config, tmp_path / "riding", tamper=tamper)
    before, _ = as_before(config, tmp_path / "own", tamper=tamper)
    assert told(riding) == told(before)


def test_a_site_that_fails_in_the_next_round_is_not_in_the_loss_and_a_late_one_comes_again(config, tmp_path):
    folder, _ = run({**config, "rounds": 3, "quorum": 0.5}, tmp_path / "run", tamper=failing("court", protocol.TRAIN, 2))
    lines = rounds(folder)
    assert [{s for s, f in line["sites"].items() if "dev_loss" in f} for line in lines] == [
        {"hospital", "court"},
        {"hospital"},
        {"hospital", "court"},
        {"hospital", "court"},
    ]


def lie(change):
    def tamper(request, reply):
        if "measure" in request.content.config_records.get(protocol.TASK, {}) and request.content["task"]["site"] == "court":
            change(reply.content)
        return reply

    return tamper


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda content: content.pop("measured"), "no 'measured'"),
        (lambda content: content["measured"].update(num_tokens=10**6), "num_tokens"),
        (lambda content: content["measured"].update(nll_sum=-1.0), "nll_sum"),
    ],
    ids=["missing", "too many tokens", "below zero"],
)
def test_a_dev_loss_that_cannot_be_true_is_refused_with_its_reply(config, tmp_path, change, reason):
    folder, _ = run({**config, "rounds": 2, "quorum": 0.5}, tmp_path / "run", tamper=lie(change))
    failures = [failure for line in rounds(folder) for failure in line["failures"]]
    assert failures
    assert all(failure["site"] == "court" and reason in failure["reason"] for failure in failures)
    assert "dev_loss" not in rounds(folder)[0]["sites"].get("court", {})


def test_a_dev_loss_that_nobody_asked_for_is_refused(config, tmp_path, as_before):
    def tamper(request, reply):
        if request.metadata.message_type == protocol.TRAIN and request.content["task"]["site"] == "court":
            reply.content["measured"] = reply.content["metrics"]
        return reply

    folder, _ = as_before({**config, "rounds": 1, "quorum": 0.5}, tmp_path / "run", tamper=tamper)
    assert "an unknown 'measured'" in rounds(folder)[1]["failures"][0]["reason"]


def notes(folder):
    lines = map(json.loads, (folder.directory / "progress.jsonl").read_text().splitlines())
    return [json.loads(line["text"]) for line in lines if line["event"] == "note" and line["text"].startswith("[")]


def test_flowers_hooks_are_called_in_their_order_with_the_sites_losses(config, tmp_path):
    config = {**config, "rounds": 2, "method": "adapter-fed"}
    riding, live = run({**config, "strategy": f"{HERE}:Listening"}, tmp_path / "riding")
    own, asked = run({**config, "strategy": f"{HERE}:OwnRequests"}, tmp_path / "own")
    assert notes(riding) == notes(own)
    assert [each[:2] for each in notes(riding)] == [["evaluate", 0], ["train", 1], ["evaluate", 1], ["train", 2], ["evaluate", 2]]
    assert (kinds(live)[protocol.EVALUATE], kinds(asked)[protocol.EVALUATE]) == (1, 3)


def test_who_says_what_is_trained_from_or_how_it_is_measured_is_asked_for_both():
    assert not OtherStart.evaluates_with_training
    assert not OwnRequests.evaluates_with_training
    assert not MetaSend.evaluates_with_training
    for kind in (FedMean, LocalOnly, Listening):
        assert kind.evaluates_with_training


class Killed(BaseException):
    pass


class Mortal(InProcessGrid):
    """Dies once a round's training has been answered."""

    def push_messages(self, messages):
        messages = list(messages)
        ids = super().push_messages(messages)
        if any(m.metadata.message_type == protocol.TRAIN and m.content["task"]["round"] == 3 for m in messages):
            raise Killed
        return ids


@pytest.mark.parametrize("changes", [{}, {"tensor-set": "controllers", "learning-rate": 0.001}], ids=["clusters", "controllers"])
def test_a_run_that_is_killed_in_the_middle_of_a_round_comes_to_the_same(config, tmp_path, changes):
    config = {**config, **changes, "rounds": 3}
    whole, _ = run(config, tmp_path / "whole")
    for what in ("killed", "killed and damaged"):
        config["run-dir"] = str(tmp_path / what)
        with pytest.raises(Killed):
            run_on(Mortal(config, 2), config)
        if what == "killed and damaged":
            (tmp_path / what / "checkpoints" / "0002" / "state.json").unlink()
        folder = run_on(InProcessGrid(config, 2), {**config, "resume": True})
        assert told(folder) == told(whole), what


def test_below_the_quorum_the_run_ends_with_its_reason(config, tmp_path):
    with pytest.raises(RunError, match="round 2, train: 0 of 2 sites answered well"):
        run({**config, "rounds": 2}, tmp_path / "run", tamper=all_fail(2))
