"""States and updates as Flower's records, and back: what a hook leaves alone is the very same, what it changes is taken."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message
from flwr.supercore.task_identity import TaskIdentity

from fedlingua.common.errors import RunError
from fedlingua.exchange.joined import Joined
from fedlingua.exchange.state import State, checked_state
from fedlingua.exchange.tensors import TensorSet, TensorSpec
from fedlingua.exchange.updates import Update
from fedlingua.runs.checkpoints import Checkpoints
from strategies.rounds.flower_records import arrays_of, content_of, site_of, state_of, update_of

SET = TensorSet("toy", (TensorSpec("e", (2, 2), "encoder", 0), TensorSpec("d", (2,), "decoder", 0)))


def state(**more) -> State:
    e, d = np.arange(4, dtype=np.float32).reshape(2, 2), np.array([7, 8], np.float32)
    return State(
        {"encoder": {"north": {"e": e}, "south": {"e": -e}}, "decoder": {"all": {"d": d}}, "shared": {"all": {}}}, **more
    )


def test_a_state_that_no_hook_changed_is_the_very_same() -> None:
    before = state()
    arrays = arrays_of(before)
    assert list(arrays) == ["north/e", "south/e", "d"]
    assert arrays["south/e"].numpy().tolist() == [[0, -1], [-2, -3]]
    assert Array(arrays["d"].numpy()).data == arrays["d"].data
    assert state_of(arrays, State({})) is before


def test_what_a_hook_puts_in_is_taken_and_the_state_before_stays() -> None:
    before = state(memory={"m": np.ones(1, np.float32)})
    arrays = arrays_of(before)
    arrays["d"] = Array(np.array([1.0, 2.0]))
    after = state_of(arrays, State({}))
    assert after.tensors["decoder"]["all"]["d"].tolist() == [1, 2]
    assert after.tensors["decoder"]["all"]["d"].dtype == np.float32
    assert after.tensors["encoder"]["north"]["e"] is before.tensors["encoder"]["north"]["e"]
    assert after.memory is before.memory
    assert before.tensors["decoder"]["all"]["d"].tolist() == [7, 8]


@pytest.mark.parametrize(
    ("value", "words"),
    [([1.0, np.nan], "not finite"), ([1.0], r"shape \(1,\); wanted \(2,\)"), (None, "wanted those of the state: 3")],
)
def test_arrays_that_cannot_be_a_states_are_refused(value, words) -> None:
    arrays = arrays_of(state())
    del arrays["d"]
    if value:
        arrays["d"] = Array(np.array(value))
    with pytest.raises(RunError, match=words):
        state_of(arrays, State({}))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"d": np.array([1.0, np.nan])}, "Mine.aggregate gave d with numbers that are not finite"),
        ({"d": np.ones(3)}, r"Mine.aggregate gave d with shape \(3,\); wanted \(2,\)"),
        ({}, "Mine.aggregate gave the decoder of no cluster; wanted all"),
        ({"x": np.ones(2)}, "Mine.aggregate gave the tensors x; wanted d"),
    ],
)
def test_what_a_strategy_of_ones_own_makes_is_checked_by_name(given: dict[str, np.ndarray], words: str) -> None:
    before = state()
    with pytest.raises(RunError, match=words):
        checked_state("Mine.aggregate", replace(before, tensors={**before.tensors, "decoder": {"all": given}}), before)
    with pytest.raises(RunError, match="gave the encoder of no cluster; wanted north, south"):
        checked_state("M", replace(before, tensors={**before.tensors, "encoder": {"north": {}}}), before)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (None, r"Mine.aggregate gave NoneType; wanted a State, as replace\(state, tensors=...\) makes"),
        ({}, "Mine.aggregate gave dict; wanted a State"),
        (state(memory={"h": 3.0}), r"gave memory\['h'\], which is no array; give it in values"),
        (
            state(memory={"h": np.array(["x"])}),
            r"gave memory\['h'\] of <U1; wanted bool, or int, uint or float of at most 64 bits",
        ),
        (state(memory={"h": np.array([1j])}), r"gave memory\['h'\] of complex128"),
        (state(memory={"residual/x": np.ones(1)}), r"gave memory\['residual/x'\]; wanted a name that .* 'residual/'"),
        (state(memory={1: np.ones(1)}), r"gave memory\[1\]; wanted a name that is a str"),
        (replace(state(), values={"x": np.float32(3)}), "gave values that JSON cannot hold .*float32 is not JSON"),
        (replace(state(), values={(1, 2): 3}), "gave values that JSON cannot hold .*keys must be str"),
        (
            replace(state(), tensors={**state().tensors, "decoder": {"all": [1, 2]}}),
            "gave a cluster.s tensors as list; wanted a dict",
        ),
    ],
)
def test_what_is_no_state_or_no_checkpoint_can_hold_is_refused(made: Any, words: str) -> None:
    with pytest.raises(RunError, match=words):
        checked_state("Mine.aggregate", made, state())


def test_the_next_round_gets_what_a_resumed_run_reads(tmp_path: Path) -> None:
    """Keys of JSON, lists, floats bit for bit, arrays in order of memory, by name."""
    values = {"count": {1: 2}, "pair": (1, 2), "x": [1 / 3, 5e-324, float("inf")], "y": np.float64(0.1)}
    made = state(memory={"z": np.arange(6.0).reshape(2, 3).T, "a": np.array(True)}, values=values)
    after = checked_state("M", made, state())
    assert after.values == {"count": {"1": 2}, "pair": [1, 2], "x": [1 / 3, 5e-324, float("inf")], "y": 0.1}
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, after.tensors, dict(after.memory), {"strategy": dict(after.values)})
    stored = checkpoints.load(1)
    assert stored.values["strategy"] == after.values
    assert list(after.memory) == sorted(stored.own) == ["a", "z"]
    assert all(after.memory[name].flags.c_contiguous and np.array_equal(after.memory[name], stored.own[name]) for name in "az")


def test_tensors_that_are_views_become_arrays_of_their_own_layout() -> None:
    before = state()
    view = np.arange(4, dtype=np.float32).reshape(2, 2).T
    made = replace(before, tensors={**before.tensors, "encoder": {"north": {"e": view}, "south": {"e": view}}})
    north = checked_state("M", made, before).tensors["encoder"]["north"]["e"]
    assert north.flags.c_contiguous
    assert np.array_equal(north, view)


def test_float64_is_taken_as_float32() -> None:
    before = state()
    made = replace(before, tensors={**before.tensors, "decoder": {"all": {"d": np.array([1.0, 2.0])}}})
    after = checked_state("M", made, before)
    assert after.tensors["decoder"]["all"]["d"].dtype == np.float32
    assert after.tensors["encoder"]["north"] is before.tensors["encoder"]["north"]
    bare = replace(before, tensors={**before.tensors, "shared": {}})  # a part without tensors may have clusters or none
    assert checked_state("M", before, bare).tensors["shared"] == {"all": {}}


def test_a_record_made_anew_keeps_no_memory_and_says_so() -> None:
    before = state(memory={"m": np.ones(1, np.float32)})
    anew = ArrayRecord({key: Array(array.numpy()) for key, array in arrays_of(before).items()})
    with pytest.raises(RunError, match="returned a new record"):
        state_of(anew, before)
    assert state_of(anew, state()).tensors["decoder"]["all"]["d"].tolist() == [7, 8]


def reply(update: Update) -> Message:
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    content = content_of(update, {"num_tokens": 9.0, "steps": 2.0}, SET, ConfigRecord({"site": update.site}))
    return Message(content, dst_node_id=1, message_type="train")


def test_a_reply_holds_one_record_of_arrays_and_one_of_metrics() -> None:
    parts = {"encoder": np.arange(4, dtype=np.float32), "decoder": np.ones(2, np.float32)}
    update = Update("court", Joined(parts, SET), 12, loss=1.5)
    message = reply(update)
    (arrays,), (metrics,) = message.content.array_records.values(), message.content.metric_records.values()
    assert (arrays["e"].shape, arrays["e"].numpy().tolist()) == ((2, 2), [[0, 1], [2, 3]])
    assert dict(metrics) == {"num-examples": 12, "train_loss": 1.5, "num-tokens": 9.0, "steps": 2.0}
    assert site_of(message) == "court"
    assert update_of(message) is update
    writable = arrays["e"].numpy()
    writable += 1
    assert parts["encoder"].tolist() == [0, 1, 2, 3]


def test_a_hook_may_change_what_a_site_sent_and_counts_by() -> None:
    update = Update("court", Joined({"encoder": np.arange(4, dtype=np.float32), "decoder": np.ones(2, np.float32)}, SET), 12)
    message = reply(update)
    message.content["metrics"]["num-examples"] = 6
    assert (update_of(message).num_examples, update_of(message).tensors) == (6, update.tensors)
    message.content["arrays"]["d"] = Array(np.zeros(2, np.float32))
    changed = update_of(message)
    assert changed.tensors["d"].tolist() == [0, 0]
    assert changed.tensors["e"].tolist() == [[0, 1], [2, 3]]
