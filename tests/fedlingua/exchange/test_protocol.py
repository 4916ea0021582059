"""The task of a request, there and back."""

from typing import Any

import pytest
from flwr.app import ConfigRecord, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto

from fedlingua.common.errors import ExchangeError
from fedlingua.exchange import protocol
from fedlingua.exchange.protocol import Task, Threshold

TASK = Task("clinic", "9f1c", attempt=2, round=7, own=(5, 1), keep=((5, 1), (6, 2)))


@pytest.mark.parametrize("task", [TASK, Task("clinic", "9f1c", 1, 0)], ids=["everything", "the least"])
def test_a_task_arrives_through_flowers_records_as_it_was_sent(task: Task) -> None:
    sent = RecordDict({protocol.TASK: ConfigRecord(task.request())})
    arrived = recorddict_from_proto(recorddict_to_proto(sent)).config_records[protocol.TASK]
    assert Task.of(arrived) == task


def test_stages_go_as_plain_numbers_in_pairs() -> None:
    assert (TASK.request()["own"], TASK.request()["keep"]) == ([5, 1], [5, 1, 6, 2])


def test_a_reply_repeats_what_it_answers_and_no_more() -> None:
    assert TASK.reply() == {"site": "clinic", "run": "9f1c", "attempt": 2, "round": 7}


@pytest.mark.parametrize("key", sorted(TASK.request()))
def test_a_task_that_lacks_a_key_is_refused(key: str) -> None:
    record = TASK.request()
    del record[key]
    with pytest.raises(ExchangeError, match=f"not that of this version.*{key}"):
        Task.of(record)


@pytest.mark.parametrize(
    "changed",
    [
        {"keep": [5, 1, 6]},
        {"keep": 5},
        {"keep": ["x", "y"]},
        {"own": [5]},
        {"own": []},
        {"own": 5},
        {"round": "x"},
        {"attempt": []},
        {"measure": 7},
        {"measure": -1},
        {"measure": "x"},
    ],
    ids=str,
)
def test_a_task_of_another_kind_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ExchangeError, match="not that of this version"):
        Task.of({**TASK.request(), **changed})


def test_every_message_type_is_told_to_people() -> None:
    types = {
        protocol.DESCRIBE,
        protocol.SIGNATURE,
        protocol.DIGESTS,
        protocol.LEAKS,
        protocol.TRAIN,
        protocol.PROBE,
        protocol.SEND,
        protocol.EVALUATE,
        protocol.FINISH,
        protocol.KEYS,
        protocol.SHARES,
        protocol.UNMASK,
    }
    assert set(protocol.SENT_BY_A_SITE) == types
    assert len(types) == 12


def test_a_threshold_comes_as_it_was_sent_and_another_kind_is_refused() -> None:
    threshold = Threshold(0.25, 0.1, (0.5, 1.0, 0.0))
    assert Threshold.of(threshold.request()) == threshold
    for changed in ({"theta": "high"}, {"weights": 3}):
        with pytest.raises(ExchangeError, match="not that of this version"):
            Threshold.of({**threshold.request(), **changed})
    with pytest.raises(ExchangeError, match="KeyError"):
        Threshold.of({"theta": 0.5})
