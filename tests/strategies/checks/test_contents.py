"""What a training reply may say of how much it trained on, and what its site then counts by."""

import math
import re
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedlingua.common.errors import ExchangeError
from fedlingua.exchange import protocol
from fedlingua.exchange.expected import Expected, parse_dev_loss
from fedlingua.exchange.records import pack
from fedlingua.exchange.tensors import TensorSet, TensorSpec
from fedlingua.layers.layer import Incoming, Training
from fedlingua.layers.order import layers_of
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Settings
from fedlingua.settings.table import KEYS
from fedlingua.training.steps import most_steps
from strategies.checks.contents import parse_training
from strategies.methods.metasend import parse_probe, parse_slope

SET = TensorSet("toy", (TensorSpec("w", (2,), "encoder", 0),))
ABOUT = {"train": 100, "directions": ["de"]}
PAPER = {"sample.least": 500, "sample.share": 0.8e-4}


@pytest.fixture(autouse=True)
def identity() -> None:
    """A message says which run it is of."""
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1


@pytest.fixture
def settings(run_config: dict[str, Any]) -> Any:
    def of(**changes: Any) -> Settings:
        return settings_from({**run_config, "send.code": "none", **{KEYS.get(key, key): value for key, value in changes.items()}})

    return of


def sums_of(settings: Settings, num_examples: int, **changes: float) -> dict[str, float]:
    steps = settings.local_epochs * math.ceil(num_examples / settings.local_epochs / settings.batch_size)
    sums = {"nll_sum": 6.0 * num_examples, "num_tokens": 3 * num_examples, "num_examples": num_examples, "seconds": 1.0}
    return {**sums, "steps": steps, **changes}


def read(
    settings: Settings,
    num_examples: int,
    about: dict[str, Any] = ABOUT,
    value: float = 1.0,
    earlier: str | None = None,
    **changes: float,
) -> Training:
    sums = sums_of(settings, num_examples, **changes)
    records = RecordDict({protocol.TASK: ConfigRecord({}), protocol.METRICS: MetricRecord(sums)})
    records[protocol.ARRAYS] = pack({"w": np.full(2, value, np.float32)}, SET)
    sent = {"w": np.zeros(2, np.float32)}
    reply = Message(records, dst_node_id=1, message_type=protocol.TRAIN)
    expected = Expected("a", settings, about, SET, earlier, most_loss=4 * math.log(300), most_seconds=10.0)
    return parse_training(layers_of(settings).reply(Incoming(expected, reply.content, sent)))


def read_dev_loss(settings: Settings, num_tokens: float, dev: dict[str, float] | None = None) -> dict[str, float]:
    """Of 100 sentences at 2 nats a token."""
    expected = Expected("a", settings, {**ABOUT, "dev": 100}, SET, None, dev=dev)
    sums = {"nll_sum": 2.0 * num_tokens, "num_tokens": num_tokens, "num_examples": 100, "seconds": 1.0}
    return dict(parse_dev_loss(MetricRecord(sums), expected))


def test_a_site_counts_by_what_it_trained_on(settings: Any) -> None:
    assert read(settings(), 96).update.num_examples == 96


@pytest.mark.parametrize(("changes", "drawn"), [({"sample_least": 500}, 496), ({"sample_share": 0.5}, 48)])
def test_a_site_that_draws_counts_by_all_that_it_draws_from(settings: Any, changes: dict[str, Any], drawn: int) -> None:
    """Manoel et al. 2022, eq. 2: w_i = N_i / sum N_i, not what the round has drawn."""
    assert read(settings(**changes), drawn).update.num_examples == 100


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
    told = settings(whole_steps=False, **changes)
    read(told, most, about)
    with pytest.raises(ExchangeError, match=f"num_examples = {most + 1}; the site has {most}"):
        read(told, most + 1, about)


@pytest.mark.parametrize(
    ("changes", "number", "claimed", "said"),
    [
        ({}, 80, {}, "wanted at least 96"),  # one step of 16 less than the text has
        ({}, 97, {}, "the site has 96"),
        ({"whole_steps": False}, 96, {}, "wanted at least 100"),
        ({"whole_steps": False}, 100, {"steps": 6}, "wanted 7 to 7 steps"),
        ({"local_epochs": 3}, 287, {}, "wanted at least 288"),
        ({"local_epochs": 3}, 288, {"steps": 6}, "wanted 18 to 18 steps"),
        ({"tokens_per_batch": 512}, 100, {"steps": 101}, "wanted 1 to 100 steps"),
        ({"tokens_per_batch": 128, "max_tokens": 64}, 100, {"steps": 2}, "wanted 3 to 100 steps"),  # 300 tokens
        ({"tokens_per_batch": 128, "max_tokens": 64, "local_epochs": 2}, 200, {"steps": 5}, "wanted 6 to 200 steps"),
        ({}, 96, {"num_tokens": 95}, "wanted 96 to 12288"),
        ({}, 96, {"num_tokens": 96 * 128 + 1}, "wanted 96 to 12288"),
        ({}, 96, {"nll_sum": 0.0}, "0 nats a token"),
        ({}, 96, {"nll_sum": 4 * math.log(300) * 288 + 1}, "wanted 1e-09 to 22.82"),
        ({}, 96, {"seconds": 11.0}, "seconds = 11"),
    ],
)
def test_what_settings_and_text_do_not_make_is_refused(
    settings: Any, changes: dict[str, Any], number: int, claimed: dict[str, float], said: str
) -> None:
    with pytest.raises(ExchangeError, match=re.escape(said)):
        read(settings(**changes), number, **claimed)


def test_the_fewest_steps_are_counted_in_each_epoch(settings: Any) -> None:
    """Of 3,000 tokens in batches of 512: 6 steps in each of two epochs, not 12, as in both together."""
    told = settings(tokens_per_batch=512, local_epochs=2, whole_steps=False)
    assert read(told, 200, num_tokens=6000, nll_sum=12000.0, steps=12).sums["steps"] == 12


def test_a_share_of_two_texts_may_be_an_example_less_than_that_of_both_as_one(settings: Any) -> None:
    told = settings(sample_share=0.1, whole_steps=False)
    assert read(told, 2, {"train": 28, "directions": ["de", "fr"]}).sums["num_examples"] == 2


def test_the_most_steps_are_those_of_all_epochs(settings: Any) -> None:
    assert most_steps(settings(local_epochs=3), ABOUT) == 3 * 6


def test_an_update_is_not_sent_twice_unless_it_changes_nothing(settings: Any) -> None:
    """At a learning rate of 0 a site sends what it received, round after round."""
    again, unchanged = read(settings(), 96).digest, read(settings(), 96, value=0.0).digest
    with pytest.raises(ExchangeError, match="sends the update of an earlier round again"):
        read(settings(), 96, earlier=again)
    assert read(settings(), 96, value=0.0, earlier=unchanged).digest == unchanged


def test_the_tokens_of_a_dev_loss_are_those_of_the_share_that_is_measured(settings: Any) -> None:
    told = settings(evaluate_share=0.5, max_tokens=64)
    for num_tokens in (50, 50 * 64):
        assert read_dev_loss(told, num_tokens)["num_tokens"] == num_tokens
    with pytest.raises(ExchangeError, match="of 50 examples; wanted 50 to 3200"):
        read_dev_loss(told, 50 * 64 + 1)


@pytest.mark.parametrize("num_tokens", [299, 301])
def test_a_dev_text_has_as_many_tokens_in_every_round(settings: Any, num_tokens: int) -> None:
    with pytest.raises(ExchangeError, match=f"num_tokens = {num_tokens}; its dev text had 300 before"):
        read_dev_loss(settings(), num_tokens, {"num_tokens": 300})


def test_a_part_in_the_meta_step_is_of_a_token_or_more(settings: Any) -> None:
    told = settings(selection="metasend-g")
    part = {"nll_sum": 6.0, "num_tokens": 3, protocol.BATCHES_S: 0.1, protocol.SLOPE_S: 0.1, "slope": 0.5}
    assert parse_slope(part, Expected("a", told, ABOUT, SET, None))["num_tokens"] == 3
    with pytest.raises(ExchangeError, match="wanted numbers, and num_tokens of 1 or more"):
        parse_slope({**part, "num_tokens": 0}, Expected("a", told, ABOUT, SET, None))


@pytest.mark.parametrize(("task", "least"), [("translation", 96), ("masked-language", 16)])
def test_sentences_in_one_language_make_fewer_examples(settings: Any, task: str, least: int) -> None:
    told = settings(task=task, method="model-fed", tensor_set="full", backbone="demo")
    read(told, 96)
    assert read(told, least).update.num_examples == least
    with pytest.raises(ExchangeError):
        read(told, 90)


def test_a_probe_is_held_to_the_same(settings: Any) -> None:
    def probe(num_examples: int) -> Any:
        told = settings(sample_least=500, selection="metasend-g", whole_steps=False)
        metrics = MetricRecord({**sums_of(told, num_examples), "deviation": 0.5, protocol.SELECT_S: 0.1})
        records = RecordDict({protocol.TASK: ConfigRecord({}), protocol.METRICS: metrics})
        reply = Message(records, dst_node_id=1, message_type=protocol.PROBE)
        return parse_probe(reply, Expected("a", told, ABOUT, SET, None))

    assert probe(500)["num_examples"] == 500
    with pytest.raises(ExchangeError, match="the site has 500"):
        probe(501)
