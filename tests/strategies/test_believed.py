"""What one site's word can do: to a mean, to the best round, to the end of a run, to the roll call, and to a phase that needs everybody."""

import json
from typing import Any

import numpy as np
import pytest
from flwr.app import Error, Message

from fedlingua.exchange import protocol
from fedlingua.exchange.updates import Update
from fedlingua.runs.progress import Progress
from fedlingua.settings.checks import settings_from
from fedlingua.settings.table import KEYS
from strategies.aggregation.mean import weights_of
from tests.damage import truncate
from tests.in_process import InProcessGrid, Tamper, checkpoint_bytes, rounds, run, run_on


def updates(*sizes: int, losses: tuple[float, ...] = ()) -> list[Update]:
    told = losses or (1.0,) * len(sizes)
    return [
        Update(f"s{n}", {"w": np.zeros(1, np.float32)}, size, None, loss)
        for n, (size, loss) in enumerate(zip(sizes, told, strict=True))
    ]


@pytest.mark.parametrize(
    ("changes", "given", "shares", "bounded"),
    [
        ({"aggregation": "fed-avg"}, updates(10, 30, 60), [0.125, 0.375, 0.5], ["s2"]),
        ({"aggregation": "fed-avg"}, updates(10, 2**50, 30), [0.125, 0.5, 0.375], ["s1"]),
        ({"aggregation": "fed-avg"}, updates(10, 30, 40), [0.125, 0.375, 0.5], []),
        ({"aggregation": "fed-avg"}, updates(1, 999), [0.001, 0.999], []),  # of two nobody can say which is the odd one
        ({"aggregation": "fed-avg", "robust.max-share": 1.0}, updates(10, 30, 60), [0.1, 0.3, 0.6], []),
        ({"aggregation": "fed-mean"}, updates(10, 30, 60), [1 / 3] * 3, []),
        ({"aggregation": "by-loss"}, updates(1, 1, 1, losses=(9.0, 9.0, 1e-6)), [0.25, 0.25, 0.5], ["s2"]),
    ],
)
def test_no_site_is_more_than_half_of_a_mean(
    run_config: dict[str, Any], changes: dict[str, Any], given: list[Update], shares: list[float], bounded: list[str]
) -> None:
    said: list[str] = []
    weights = weights_of(settings_from({**run_config, **changes}), lambda site, share: said.append(site))(given)
    assert weights == pytest.approx(shares)
    assert said == bounded


def test_the_share_is_in_no_hash_of_a_plain_mean(run_config: dict[str, Any]) -> None:
    def of(**changes: Any) -> str:
        return settings_from({**run_config, **{KEYS.get(key, key): value for key, value in changes.items()}}).hash()

    assert of() == of(max_site_share=0.75)
    assert of(aggregation="fed-avg") != of(aggregation="fed-avg", max_site_share=0.75)


def of_losses(*by_round: dict[str, float], examples: dict[str, int] | None = None) -> Progress:
    """Dev losses of rounds 1, 2, ..."""
    sizes = examples or {}
    losses = {
        number: {
            site: {"nll_sum": loss * 10, "num_tokens": 10, "num_examples": sizes.get(site, 1)} for site, loss in sites.items()
        }
        for number, sites in enumerate(by_round, start=1)
    }
    return Progress(round=len(by_round), dev_losses=losses)


HONEST = [{"a": 5.0, "b": 5.2, "c": 4.8}, {"a": 4.0, "b": 4.2, "c": 3.9}, {"a": 3.5, "b": 3.6, "c": 3.4}]


@pytest.mark.parametrize("lie", [1e-6, 0.1, 1.0, 3.0, 4.8, 30.0])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_no_site_alone_chooses_the_best_round(lie: float, number: int) -> None:
    told = [{**losses, "c": lie} if n == number else losses for n, losses in enumerate(HONEST, start=1)]
    progress = of_losses(*told)
    assert progress.best_up_to(3, "examples")[0] == 3
    assert progress.best_up_to(3, "tokens")[0] == 3


def test_no_site_alone_chooses_by_its_silence() -> None:
    told = [HONEST[0], *({site: loss for site, loss in losses.items() if site != "c"} for losses in HONEST[1:])]
    progress = of_losses(*told)
    assert progress.best_up_to(3, "examples") == (3, "c")
    assert progress.outvoted == ""  # only a choice stores it
    progress.choose_best("examples", range(4))
    assert (progress.best_round, progress.outvoted) == (3, "c")


def test_a_choice_that_costs_the_others_little_stands() -> None:
    """Honest sites want different rounds by a hair: 3.50 to 3.51 is a loss of 0.3 %."""
    progress = of_losses({"a": 3.51, "b": 3.61, "c": 3.0}, {"a": 3.50, "b": 3.60, "c": 3.2})
    assert progress.best_up_to(2, "examples") == (1, "")


def test_who_has_most_of_the_sentences_is_heard() -> None:
    told = ({"a": 3.0, "b": 3.0, "c": 4.0}, {"a": 3.5, "b": 3.5, "c": 3.0})
    assert of_losses(*told, examples={"a": 10, "b": 10, "c": 100}).best_up_to(2, "examples") == (2, "")
    assert of_losses(*told, examples={"a": 10, "b": 10, "c": 18}).best_up_to(2, "examples")[0] == 1


def test_of_two_sites_the_mean_decides() -> None:
    assert of_losses({"a": 5.0, "b": 0.1}, {"a": 3.0, "b": 3.0}).best_up_to(2, "examples") == (1, "")


def test_no_site_alone_ends_a_run_by_patience() -> None:
    told = [{**HONEST[0], "c": 1e-6}, *HONEST[1:]]
    assert not of_losses(*told).is_stale(2, 0.0, "examples")
    assert of_losses(*told, HONEST[2], HONEST[2]).is_stale(2, 0.0, "examples")


LIES = {0: 3.0, 1: 2.95, 2: 2.0, 3: 2.5}
"""Round -> the dev loss that the bank reports; from round 4 on 2.6, and once 0.8, so that its choice is outvoted."""
TRUE = {0: 3.0, 1: 2.95, 2: 2.8, 3: 2.79}
"""The same of the other sites; from round 4 on 2.85."""


def lying(falsely: int, dies: str = "") -> Tamper:
    """The bank reports a false dev loss after one round. The run is killed once a site has answered a message of the type `dies`."""

    def tamper(request: Message, reply: Message) -> Message:
        kind, task = request.metadata.message_type, request.content.config_records.get(protocol.TASK, {})
        if kind == dies:
            raise KeyboardInterrupt
        record = {protocol.TRAIN: protocol.MEASURED, protocol.EVALUATE: protocol.METRICS}.get(kind)
        if record and reply.has_content() and record in reply.content:
            number = task.get("measure", task["round"])
            told = {**LIES, falsely: 0.8}.get(number, 2.6) if task["site"] == "bank" else TRUE.get(number, 2.85)
            reply.content[record]["nll_sum"] = told * reply.content[record]["num_tokens"]
        return reply

    return tamper


@pytest.mark.parametrize(
    ("changes", "falsely"),
    [
        ({"rounds": 9}, 6),  # the others' choice, round 3, has no checkpoint any more
        ({"rounds": 7}, 7),  # if it stores all, it has one, but the sites do not have that round
    ],
    ids=["gone", "kept by the server alone"],
)
@pytest.mark.fault("resumed")
def test_one_false_loss_leaves_a_best_round_that_every_site_can_deliver(
    four_sites: dict[str, Any], tmp_path: Any, changes: dict[str, Any], falsely: int, request: pytest.FixtureRequest
) -> None:
    if falsely == 7:
        request.getfixturevalue("all_checkpoints")
    config = {**four_sites, "method": "adapter-families", "tensor-set": "controllers", "learning-rate": 0.001, **changes}
    with pytest.raises(KeyboardInterrupt):
        run(config, tmp_path / "run", tamper=lying(falsely, protocol.FINISH))
    truncate(tmp_path / "run" / "checkpoints" / f"{config['rounds']:04d}" / "state.json")
    folder, _ = run({**config, "resume": True}, tmp_path / "run", tamper=lying(falsely))
    assert folder.read("run.json")["best_round"] == 2
    assert "site bank alone would have another" in (folder.directory / "progress.jsonl").read_text(encoding="utf-8")


class Once(InProcessGrid):
    """Three of the four sites give a loss of NaN to the first message of the phase, and answer the second honestly."""

    phase, lied = protocol.TRAIN, 0
    most = 3

    def push_messages(self, messages: Any) -> Any:
        ids = super().push_messages(messages)
        for number in ids:
            reply = self.replies[number]
            lies = reply.metadata.message_type == self.phase and self.lied < self.most
            if lies and reply.content[protocol.TASK]["round"] == 1:
                self.lied += 1
                reply.content[protocol.METRICS]["nll_sum"] = float("nan")
        return ids


class Always(Once):
    most = 99


@pytest.fixture
def all_needed(four_sites: dict[str, Any]) -> dict[str, Any]:
    return {**four_sites, "method": "adapter-fed", "quorum": 1.0, "rounds": 1}


@pytest.mark.fault("refused")
def test_sites_with_bad_replies_are_asked_once_more_where_all_are_needed(all_needed: dict[str, Any], tmp_path: Any) -> None:
    folder = run_on(Once(config := {**all_needed, "run-dir": str(tmp_path / "once")}, 2), config)
    assert [failure["kind"] for failure in rounds(folder)[1]["failures"]] == ["refused"] * 3
    assert checkpoint_bytes(folder) == checkpoint_bytes(run(all_needed, tmp_path / "good")[0])


@pytest.mark.fault("refused")
def test_a_site_that_is_bad_twice_ends_what_needs_it(all_needed: dict[str, Any], tmp_path: Any) -> None:
    live = Always(config := {**all_needed, "run-dir": str(tmp_path / "always")}, 2)
    with pytest.raises(Exception, match="0 of 4 sites answered well"):
        run_on(live, config)
    asked = [message for message in live.sent if message.metadata.message_type == protocol.TRAIN]
    assert len(asked) == 8


@pytest.mark.fault("refused")
def test_errors_count_as_bad_replies(four_sites: dict[str, Any], tmp_path: Any) -> None:
    def tamper(request: Message, reply: Message) -> Message:
        task = request.content.config_records.get(protocol.TASK, {})
        return Message(Error(100, "no"), reply_to=request) if task.get("site") == "court" and task["round"] > 0 else reply

    config = {**four_sites, "method": "adapter-fed", "quorum": 0.5, "rounds": 2, "robust.max-bad-replies": 2}
    folder, _ = run(config, tmp_path / "run", tamper=tamper)
    kinds = [[failure["kind"] for failure in record["failures"]] for record in rounds(folder)]
    assert kinds == [[], ["failed"], ["failed", "aside"]]


def test_what_a_run_stores_of_a_node_is_json_that_can_be_read(four_sites: dict[str, Any], tmp_path: Any) -> None:
    words = "\x1b[2J\u202e" + "x" * 5000

    def tamper(request: Message, reply: Message) -> Message:
        task = request.content.config_records.get(protocol.TASK, {})
        lies = task.get("site") == "court" and request.metadata.message_type == protocol.TRAIN
        return Message(Error(100, words), reply_to=request) if lies else reply

    folder, _ = run({**four_sites, "method": "adapter-fed", "quorum": 0.5, "rounds": 1}, tmp_path / "run", tamper=tamper)
    reason = rounds(folder)[1]["failures"][0]["reason"]
    assert reason.startswith(r"\x1b[2J\u202e")
    assert len(reason) < 2100
    for line in (folder.directory / "progress.jsonl").read_text(encoding="utf-8").splitlines():
        assert json.loads(line)
