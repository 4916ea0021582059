"""What a training reply may say of how much it trained on, and what its site then counts by."""

from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedlingua import protocol
from fedlingua.config import Settings
from fedlingua.config_checks import settings_from
from fedlingua.errors import ExchangeError
from fedlingua.exchange.joined import runs
from fedlingua.exchange.records import pack
from fedlingua.exchange.tensors import TensorSet, TensorSpec
from strategies.readings import Asked, Training, read_probe, read_training

SET = TensorSet("toy", (TensorSpec("w", (2,), "encoder", 0),))
ABOUT = {"train": 100, "directions": ["de"]}
PAPER = {"sample-least": 500, "sample-share": 0.8e-4}


@pytest.fixture(autouse=True)
def identity() -> None:
    """A message says which run it is of."""
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1


@pytest.fixture
def settings(run_config: dict[str, Any]) -> Any:
    def of(**changes: Any) -> Settings:
        return settings_from({**run_config, **{key.replace("_", "-"): value for key, value in changes.items()}})

    return of


def read(settings: Settings, num_examples: int, about: dict[str, Any] = ABOUT, value: float = 1.0) -> Training:
    sums = {"nll_sum": 6.0, "num_tokens": 3, "num_examples": num_examples, "seconds": 1.0, "steps": 1}
    records = RecordDict({protocol.TASK: ConfigRecord({}), protocol.METRICS: MetricRecord(sums)})
    records[protocol.ARRAYS] = pack({"w": np.full(2, value, np.float32)}, SET)
    sent = runs({"w": np.zeros(2, np.float32)}, SET)
    reply = Message(records, dst_node_id=1, message_type=protocol.TRAIN)
    return read_training(reply, 100, Asked("a", settings, about, SET, sent, None))


def test_a_site_counts_by_what_it_trained_on(settings: Any) -> None:
    assert read(settings(), 96).update.num_examples == 96


@pytest.mark.parametrize("changes", [{"sample_least": 500}, {"sample_share": 0.5}])
def test_a_site_that_draws_counts_by_all_that_it_draws_from(settings: Any, changes: dict[str, Any]) -> None:
    """Manoel et al. 2022, eq. 2: w_i = N_i / sum N_i, not what the round has drawn."""
    assert read(settings(**changes), 48).update.num_examples == 100


@pytest.mark.parametrize(
    ("changes", "about", "most"),
    [
        ({}, ABOUT, 100),
        ({"local_epochs": 3}, ABOUT, 300),
        ({"sample_least": 500}, ABOUT, 500),  # with replacement
        ({"sample_least": 500, "local_epochs": 2}, ABOUT, 1000),
        ({"sample_share": 0.125}, ABOUT, 13),
        ({"sample_least": 5, "sample_share": 0.125}, ABOUT, 13),
        ({"sample_least": 500, "sample_share": 0.8e-4}, {"train": 132593658, "directions": ["en"]}, 10607),
        # Of two texts one may have next to all, and the other still draws its 50.
        ({"sample_least": 50, "sample_share": 0.9}, {"train": 100, "directions": ["de", "fr"]}, 90 + 51),
    ],
)
def test_no_more_examples_are_believed_than_can_be_drawn(
    settings: Any, changes: dict[str, Any], about: dict[str, Any], most: int
) -> None:
    read(settings(**changes), most, about)
    with pytest.raises(ExchangeError, match=f"num_examples = {most + 1}; the site has {most}"):
        read(settings(**changes), most + 1, about)


def test_a_probe_is_held_to_the_same(settings: Any) -> None:
    def probe(num_examples: int) -> Any:
        sums = {"nll_sum": 6.0, "num_tokens": 3, "num_examples": num_examples, "seconds": 1.0, "steps": 1}
        metrics = MetricRecord({**sums, "deviation": 0.5, protocol.SELECT_S: 0.1})
        records = RecordDict({protocol.TASK: ConfigRecord({}), protocol.METRICS: metrics})
        reply = Message(records, dst_node_id=1, message_type=protocol.PROBE)
        return read_probe(reply, 100, settings(sample_least=500, selection="metasend-g"), ABOUT)

    assert probe(500)["num_examples"] == 500
    with pytest.raises(ExchangeError, match="the site has 500"):
        probe(501)
