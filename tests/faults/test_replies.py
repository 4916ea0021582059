"""Replies that are not what they have to be: each is refused by name, and the round is what it would have been without the site."""

import io
import pickle
import re

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord

from fedlingua import protocol
from fedlingua.exchange.records import from_record, to_record
from tests.in_process import InProcessGrid, checkpoint_bytes, failing, rounds, run, run_on

SITE = "court"
ENCODER = "encoder"


def spoil(change, phase=protocol.TRAIN, number=1):
    """Change the court's reply in one phase of one round."""

    def tamper(request, reply):
        task = request.content.config_records.get(protocol.TASK, {})
        if request.metadata.message_type == phase and task.get("site") == SITE and task.get("round") == number:
            change(reply)
        return reply

    return tamper


def first_tensor(change):
    def apply(reply):
        tensors = from_record(reply.content.array_records[protocol.ARRAYS])
        name = next(iter(tensors))
        tensors[name] = np.asarray(change(tensors[name]))
        reply.content.array_records[protocol.ARRAYS] = to_record(tensors)

    return apply


def all_tensors(change):
    def apply(reply):
        tensors = from_record(reply.content.array_records[protocol.ARRAYS])
        reply.content.array_records[protocol.ARRAYS] = to_record({name: change(array) for name, array in tensors.items()})

    return apply


def raw_bytes(change):
    """Change the serialized bytes of one tensor."""

    def apply(reply):
        arrays = reply.content.array_records[protocol.ARRAYS]
        array = arrays[ENCODER]
        arrays[ENCODER] = Array(array.dtype, array.shape, array.stype, change(array.data))

    return apply


def as_pickle(data):
    stream = io.BytesIO()
    np.save(stream, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    assert pickle.dumps({"a": 1})[:2] in stream.getvalue()
    return stream.getvalue()


def metric(key, value):
    return lambda reply: reply.content.metric_records[protocol.METRICS].__setitem__(key, value)


def without_metric(key):
    return lambda reply: reply.content.metric_records[protocol.METRICS].pop(key)


def told(key, value):
    return lambda reply: reply.content.config_records[protocol.TASK].__setitem__(key, value)


def record(name, content):
    return lambda reply: reply.content.__setitem__(name, content)


def without(name):
    return lambda reply: reply.content.pop(name)


def drop_a_part(reply):
    del reply.content.array_records[protocol.ARRAYS][ENCODER]


def add_a_part(reply):
    arrays = reply.content.array_records[protocol.ARRAYS]
    arrays["extra"] = arrays[ENCODER]


def too_much_text(reply):
    reply.content.config_records[protocol.TASK]["note"] = "x" * 10_000_000


TRAINING = {
    "missing-part": (drop_a_part, "is missing"),
    "extra-part": (add_a_part, "'extra' first"),
    "no-tensors": (record(protocol.ARRAYS, ArrayRecord()), "is missing"),
    "shape-that-does-not-broadcast": (first_tensor(lambda array: array[:-1]), "has shape"),
    "shape-that-broadcasts": (first_tensor(lambda array: array[None]), "has shape"),
    "scalar-for-a-tensor": (first_tensor(lambda array: np.float32(1)), r"has shape \(\)"),
    "complex-dtype": (first_tensor(lambda array: array.astype(np.complex64)), "complex64; wanted float32"),
    "string-dtype": (first_tensor(lambda array: np.full(array.shape, "a")), "wanted float32"),
    "integer-dtype": (first_tensor(lambda array: array.astype(np.int32)), "int32; wanted float32"),
    "double-dtype": (first_tensor(lambda array: array.astype(np.float64)), "float64; wanted float32"),
    "half-dtype": (first_tensor(lambda array: array.astype(np.float16)), "float16; wanted float32"),
    "truncated-bytes": (raw_bytes(lambda data: data[:-5]), "does not decode"),
    "no-bytes": (raw_bytes(lambda data: b""), "does not decode"),
    "pickled-object": (raw_bytes(as_pickle), "does not decode"),
    "nan-in-one-tensor": (first_tensor(lambda array: np.full_like(array, np.nan)), "NaN or infinity"),
    "infinity": (first_tensor(lambda array: np.full_like(array, np.inf)), "NaN or infinity"),
    "times-1e30": (all_tensors(lambda array: array * np.float32(1e30)), "move none further"),
    "sign-flipped-times-10": (all_tensors(lambda array: array * np.float32(-10)), "move none further"),
    "weight-0": (metric("num_examples", 0), "at least 1"),
    "weight-negative": (metric("num_examples", -5), "0 or more"),
    "weight-1e12": (metric("num_examples", 10**12), "the site has"),
    "weight-nan": (metric("num_examples", float("nan")), "finite"),
    "weight-missing": (without_metric("num_examples"), "lack 'num_examples'"),
    "steps-missing": (without_metric("steps"), "lack 'steps'"),
    "loss-nan": (metric("nll_sum", float("nan")), "finite"),
    "loss-infinite": (metric("nll_sum", float("inf")), "finite"),
    "loss-negative": (metric("nll_sum", -1.0), "0 or more"),
    "no-tokens": (metric("num_tokens", 0), "at least 1"),
    "extra-metric-key": (metric("reward", 1.0), "unknown sum 'reward'"),
    "list-metric": (metric("nll_sum", [1.0, 2.0]), "finite number"),
    "no-metric-record": (without(protocol.METRICS), "no 'metrics'"),
    "empty-metric-record": (record(protocol.METRICS, MetricRecord()), "lack"),
    "two-array-records": (record("more", ArrayRecord()), "unknown 'more'"),
    "no-array-record": (without(protocol.ARRAYS), "no 'arrays'"),
    "extra-config-record": (record("words", ConfigRecord({"a": "b"})), "unknown 'words'"),
    "no-task-record": (without(protocol.TASK), "answers site None"),
    "wrong-round": (told("round", 9), "answers round 9; wanted 1"),
    "another-sites-name": (told("site", "bank"), "answers site 'bank'; wanted 'court'"),
    "dead-attempt": (told("attempt", 7), "answers attempt 7; wanted 1"),
    "another-run": (told("run", "0" * 32), "answers run '0000"),
    "oversized": (too_much_text, "wanted at most"),
}


def failures_of(folder, number):
    return [failure for failure in rounds(folder)[number]["failures"] if failure["kind"] != "away"]


@pytest.fixture(scope="session")
def without_the_court():
    return {}


@pytest.mark.parametrize("cause", TRAINING)
@pytest.mark.fault("refused")
def test_a_bad_update_is_refused_by_name(config, tmp_path, without_the_court, record_property, cause):
    change, reason = TRAINING[cause]
    config = {**config, "rounds": 1}
    folder, _ = run(config, tmp_path / "bad", tamper=spoil(change))
    record_property("rounds_lost", 2 - len(rounds(folder)))
    (failure,) = failures_of(folder, 1)
    assert (failure["site"], failure["kind"]) == (SITE, "refused")
    assert re.search(reason, failure["reason"]), failure["reason"]
    if not without_the_court:
        silent, _ = run(config, tmp_path / "silent", tamper=failing(SITE, protocol.TRAIN, 1))
        without_the_court.update(checkpoint_bytes(silent))
    assert checkpoint_bytes(folder) == without_the_court


EVALUATION = {
    "dev-loss-nan": (metric("nll_sum", float("nan")), "finite"),
    "more-dev-sentences-than-there-are": (metric("num_examples", 10**6), "the site has"),
    "tensors-with-the-dev-loss": (record(protocol.ARRAYS, to_record({"a": np.ones(3, np.float32)})), "unknown 'arrays'"),
    "dev-loss-of-another-round": (told("round", 0), "answers round 0; wanted 1"),
}


@pytest.mark.parametrize("cause", EVALUATION)
@pytest.mark.fault("refused")
def test_a_bad_dev_loss_is_refused_by_name(config, tmp_path, record_property, cause):
    change, reason = EVALUATION[cause]
    folder, _ = run(config, tmp_path / "bad", tamper=spoil(change, protocol.EVALUATE))
    record_property("rounds_lost", 3 - len(rounds(folder)))
    (failure,) = failures_of(folder, 1)
    assert (failure["site"], failure["phase"], failure["kind"]) == (SITE, "evaluate", "refused")
    assert reason in failure["reason"]
    # A round that fewer sites measured is not chosen over one that all did.
    assert folder.read("run.json")["best_round"] == 2


def scores(change):
    def apply(reply):
        values = reply.content.metric_records[f"scores.{SITE}"]
        change(values)

    return apply


SCORES = {
    "bleu-counts-of-another-length": (scores(lambda values: values.__setitem__("bleu", [1] * 9)), "10 BLEU counts"),
    "negative-counts": (scores(lambda values: values.__setitem__("chrf", [-1] * 18)), "something else than counts"),
    "more-test-sentences-than-there-are": (scores(lambda values: values.__setitem__("sentences", 10**6)), "the site has"),
    "no-base-scores": (without(f"base-scores.{SITE}"), "no 'base-scores"),
    "words-with-the-scores": (record("hypotheses", ConfigRecord({"0": "a sentence"})), "unknown 'hypotheses'"),
}


@pytest.mark.parametrize("cause", SCORES)
@pytest.mark.fault("refused")
def test_bad_scores_are_refused_by_name(config, tmp_path, record_property, cause):
    change, reason = SCORES[cause]
    best = run(config, tmp_path / "good")[0].read("run.json")["best_round"]
    folder, _ = run(config, tmp_path / "bad", tamper=spoil(change, protocol.FINISH, best))
    record_property("rounds_lost", 3 - len(rounds(folder)))
    (failure,) = folder.read("run.json")["failures_at_the_end"]
    assert (failure["site"], failure["phase"]) == (SITE, "finish")
    assert reason in failure["reason"]
    assert set(folder.read("scores.json")["sites"]) == {"hospital", "school", "bank"}


@pytest.mark.fault("refused")
def test_an_update_over_the_absolute_bound_is_refused(config, tmp_path):
    config = {**config, "max-update-ratio": 0.0, "max-update-norm": 1000.0}
    folder, _ = run(config, tmp_path / "bad", tamper=spoil(all_tensors(lambda array: array * np.float32(1e30))))
    (failure,) = failures_of(folder, 1)
    assert "max-update-norm = 1000" in failure["reason"]


@pytest.mark.fault("refused")
def test_an_update_of_the_round_before_is_refused(config, tmp_path):
    earlier = {}

    def replay(request, reply):
        task = request.content.config_records.get(protocol.TASK, {})
        if request.metadata.message_type == protocol.TRAIN and task["site"] == SITE:
            if task["round"] == 1:
                earlier["arrays"] = from_record(reply.content.array_records[protocol.ARRAYS])
            else:
                reply.content.array_records[protocol.ARRAYS] = to_record(earlier["arrays"])
        return reply

    folder, _ = run(config, tmp_path / "replay", tamper=replay)
    (failure,) = failures_of(folder, 2)
    assert failure["reason"] == "bad reply: sends the update of an earlier round again"


class Garbled(InProcessGrid):
    """The court's first update does not decode: Flower finds that out while it pulls, and raises."""

    def pull_messages(self, message_ids):
        (number,) = message_ids
        message = next(m for m in self.sent if m.object_id == number)
        task = message.content.config_records.get(protocol.TASK, {})
        if message.metadata.message_type == protocol.TRAIN and task["site"] == SITE:
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
        return super().pull_messages([number])


@pytest.mark.fault("refused")
def test_a_reply_that_flower_cannot_decode_is_refused_by_name(config, tmp_path, without_the_court):
    config = {**config, "rounds": 1, "run-dir": str(tmp_path / "garbled")}
    folder = run_on(Garbled(config, 2), config)
    (failure,) = failures_of(folder, 1)
    assert (failure["site"], failure["kind"]) == (SITE, "unreadable")
    assert "its records do not decode (UnicodeDecodeError)" in failure["reason"]
    silent, _ = run(config, tmp_path / "silent", tamper=failing(SITE, protocol.TRAIN, 1))
    assert checkpoint_bytes(folder) == checkpoint_bytes(silent)


@pytest.mark.fault("refused")
def test_a_header_that_numpy_chokes_on_is_refused_by_name(config, tmp_path):
    def choke(data):
        header = b"{'descr': ((((" + b" " * 100 + b"\n"
        return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header

    folder, _ = run({**config, "rounds": 1}, tmp_path / "bad", tamper=spoil(raw_bytes(choke)))
    (failure,) = failures_of(folder, 1)
    assert "does not decode" in failure["reason"]


class Talkative(InProcessGrid):
    """Sends the court's first update twice, and a reply to a message that never was."""

    def surplus(self, pulled):
        for reply in pulled:
            if not reply.has_error() and reply.metadata.message_type == protocol.TRAIN:
                again = Message(reply.content, reply_to=self.sent[0])
                again.metadata.__dict__["_reply_to_message_id"] = self.answers(reply)
                return [again]
        return []

    def answers(self, reply):
        return reply.metadata.reply_to_message_id


class FromNowhere(Talkative):
    def answers(self, reply):
        return "f" * 64


@pytest.mark.parametrize(
    ("grid", "reason"),
    [(Talkative, "a second reply to the same message"), (FromNowhere, "a reply to a message that was never sent")],
    ids=["duplicate", "unasked"],
)
@pytest.mark.fault("refused")
def test_a_reply_too_many_does_not_count(config, tmp_path, grid, reason):
    config = {**config, "rounds": 1, "run-dir": str(tmp_path / "twice")}
    folder = run_on(grid(config, 2), config)
    reasons = [failure["reason"] for failure in failures_of(folder, 1)]
    assert reasons
    assert all(reason in told for told in reasons)
    assert checkpoint_bytes(folder) == checkpoint_bytes(run(config, tmp_path / "once")[0])


@pytest.mark.fault("refused")
def test_a_site_is_set_aside_after_k_bad_replies(config, tmp_path):
    def always(request, reply):
        return spoil(metric("nll_sum", -1.0), number=request.content.config_records.get(protocol.TASK, {}).get("round"))(
            request, reply
        )

    folder, grid = run({**config, "rounds": 4, "max-bad-replies": 2}, tmp_path / "aside", tamper=always)
    kinds = [[failure["kind"] for failure in record["failures"]] for record in rounds(folder)]
    assert kinds == [[], ["refused"], ["refused", "aside"], ["aside", "aside"], ["aside", "aside"]]
    asked = [m.content.config_records[protocol.TASK]["round"] for m in grid.sent if m.metadata.message_type == protocol.TRAIN]
    assert [asked.count(number) for number in (1, 2, 3, 4)] == [4, 4, 3, 3]
