"""Rounds that end with a number of updates (`async.buffer`): what counts when, by hand, and what the busy site is spared."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest
from flwr.app import Error, Message
from safetensors.numpy import load_file

from fedlingua.common.errors import ConfigError
from fedlingua.exchange import protocol
from fedlingua.exchange.joined import Joined
from fedlingua.exchange.records import from_record
from fedlingua.runs.folder import RunFolder
from fedlingua.runs.plan import check_enough
from fedlingua.settings.checks import settings_from
from fedlingua.settings.conflicts import BUFFER
from strategies.rounds.phases import Phases
from tests.damage import truncate
from tests.federations import SITES
from tests.in_process import InProcessGrid, checkpoint_bytes, rounds, run_on
from tests.in_process import _start as tensors_of

SLOW, AGE = "court", 2
OTHERS = [site for site in SITES if site != SLOW]


def trainings(grid: InProcessGrid) -> dict[str, dict[str, Any]]:
    """Message -> its task, of all requests to train."""
    sent = [message for message in grid.sent if message.metadata.message_type == protocol.TRAIN]
    return {str(message.metadata.message_id): dict(message.content.config_records[protocol.TASK]) for message in sent}


class Unequal(InProcessGrid):
    """The court's update comes in once `age` more rounds have asked the others to train."""

    age = AGE

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        tasks = trainings(self)
        newest = max((int(task["round"]) for task in tasks.values()), default=0)
        held = {name for name, task in tasks.items() if task["site"] == SLOW and newest < int(task["round"]) + self.age}
        return super().pull_messages(name for name in message_ids if name not in held)


class Mortal(Unequal):
    """Dies once all have been asked to train in the last round, and have answered."""

    age = 1

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = super().push_messages(messages)
        if any(task["round"] == self.run_config["rounds"] for task in trainings(self).values()):
            raise KeyboardInterrupt
        return ids


def unequal(config: Mapping[str, Any], directory: Any) -> tuple[RunFolder, InProcessGrid]:
    config = {**config, "run-dir": str(directory)}
    live = Unequal(dict(config), 4)
    return run_on(live, dict(config)), live


@pytest.fixture
def config(four_sites: dict[str, Any], all_checkpoints: None) -> dict[str, Any]:
    return {**four_sites, "method": "adapter-fed", "rounds": 5, "async.buffer": 3, "optimizer-state": "kept"}


def stored(folder: RunFolder, number: int) -> dict[str, np.ndarray]:
    """The tensors after a round; after round 0 those that all began with."""
    files = sorted((folder.directory / "checkpoints" / f"{number:04d}").glob("*coder*.safetensors"))
    return {name: array for file in files for name, array in load_file(file).items()}


def test_a_late_change_counts_by_its_age_in_the_round_that_it_comes_in(config, tmp_path):
    folder, live = unequal(config, tmp_path / "run")
    settings = settings_from({**config, "run-dir": str(tmp_path / "run")})
    tensor_set, _ = tensors_of(settings)
    trained: dict[tuple[str, int], Mapping[str, np.ndarray]] = {}
    for reply in live.received:
        if reply.metadata.message_type == protocol.TRAIN:
            task = reply.content.config_records[protocol.TASK]
            parts = from_record(reply.content.array_records[protocol.ARRAYS])
            trained[str(task["site"]), int(str(task["round"]))] = Joined(parts, tensor_set)
    ages = {}
    for line in rounds(folder)[1:]:
        number = line["round"]
        took = {site: figures for site, figures in line["sites"].items() if "train_loss" in figures}
        ages[number] = {site: figures.get("staleness", 0) for site, figures in took.items()}
        before, after = stored(folder, number - 1), stored(folder, number)
        for name, tensor in after.items():
            members = []
            for site, age in ages[number].items():
                came, start = trained[site, number - age][name], stored(folder, number - 1 - age)[name]
                members.append(before[name] + (1 + age) ** -0.5 * (came - start) if age else came)
            np.testing.assert_allclose(tensor, np.mean(members, axis=0), rtol=0, atol=2e-7)
    quick = dict.fromkeys(OTHERS, 0)
    assert ages == {1: quick, 2: quick, 3: {**quick, SLOW: AGE}, 4: quick, 5: quick}


def test_the_busy_site_is_not_asked_counts_with_what_it_measured_last_and_scores_at_the_end(config, tmp_path):
    folder, live = unequal(config, tmp_path / "run")
    asked = [message for message in live.sent if message.content.config_records.get(protocol.TASK, {}).get("site") == SLOW]
    kinds = [(each.metadata.message_type, each.content.config_records[protocol.TASK]["round"]) for each in asked]
    wanted = [(protocol.EVALUATE, 0), (protocol.TRAIN, 1), (protocol.EVALUATE, 3), (protocol.TRAIN, 4)]
    assert kinds[:4] == wanted
    assert kinds[4][0] == protocol.FINISH
    lines = rounds(folder)
    of_slow = [line["sites"][SLOW]["dev_loss"] for line in lines]
    assert of_slow[0] == of_slow[1] == of_slow[2] != of_slow[3] == of_slow[4] == of_slow[5]
    assert not any(line["failures"] for line in lines)
    assert set(folder.read("scores.json")["sites"]) == set(SITES)
    assert lines[-1]["dev_loss"] < lines[0]["dev_loss"]


def test_a_site_measures_when_it_is_back_if_it_would_be_overdue_the_next_time(config, tmp_path):
    """The others measure every fourth round; the slow site is never idle in one."""
    folder, live = unequal({**config, "evaluate-every": 4}, tmp_path / "run")
    asked = [message for message in live.sent if message.metadata.message_type == protocol.EVALUATE]
    by_site = {site: [int(str(each.content[protocol.TASK]["round"])) for each in asked if _site(each) == site] for site in SITES}
    assert by_site == {**{key: [0, 4, 5] for key in OTHERS}, SLOW: [0, 3]}
    assert rounds(folder)[4]["sites"][SLOW]["dev_loss"] == rounds(folder)[3]["sites"][SLOW]["dev_loss"]


def test_where_all_answer_at_once_it_is_the_run_that_waits(config, tmp_path):
    """With as many updates as sites; only how the dev loss is asked for differs."""
    plain = {**config, "async.buffer": 0, "run-dir": str(tmp_path / "plain")}
    same = {**config, "async.buffer": 4, "run-dir": str(tmp_path / "same")}
    states = [checkpoint_bytes(run_on(InProcessGrid(dict(each), 4), dict(each))) for each in (plain, same)]
    assert states[0] == states[1]


@pytest.mark.parametrize("code", ["4bit", "none"])
def test_it_goes_on_after_a_kill_and_asks_the_busy_site_anew(config, code, tmp_path, monkeypatch):
    config = {**config, "send.code": code, "method": "adapter-families", "server.optimizer": "adam", "server.learning-rate": 1e-3}
    begin = Phases.begin_round

    def killed(self: Phases, number: int, *more: Any, **named: Any) -> None:
        if number == 3:
            raise KeyboardInterrupt
        begin(self, number, *more, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Phases, "begin_round", killed)
        with pytest.raises(KeyboardInterrupt):
            unequal(config, tmp_path / "run")
    again = {**config, "run-dir": str(tmp_path / "run"), "resume": True}
    live = Unequal(again, 4)
    folder = RunFolder(tmp_path / "run")
    from strategies.server_app import run_federation

    with folder.held():
        folder.open(settings_from(again), 2)
        run_federation(live, settings_from(again), folder)
        folder.close("completed")
    first = [message.content.config_records.get(protocol.TASK, {}) for message in live.sent]
    assert [task["site"] for task in first if task.get("round") == 3][:4] == list(SITES)
    assert rounds(folder)[-1]["sites"][SLOW]["staleness"] == AGE
    assert rounds(folder)[-1]["dev_loss"] < rounds(folder)[0]["dev_loss"]


def test_a_site_that_is_silent_past_its_own_deadline_is_late_and_the_others_go_on(config, tmp_path):
    deadlines = {"deadline.phase-s": 0.5}
    # At the end the run waits until the late site may be asked again.
    config = {**config, **deadlines, "async.buffer": 3, "below-quorum": "wait"}

    class Silent(InProcessGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            slow = {str(each.metadata.message_id) for each in self.sent if each.metadata.message_type == protocol.TRAIN}
            slow &= {str(each.metadata.message_id) for each in self.sent if _site(each) == SLOW}
            time.sleep(0.2)
            return super().pull_messages(name for name in message_ids if name not in slow)

    config["run-dir"] = str(tmp_path / "run")
    folder = run_on(Silent(dict(config), 4), dict(config))
    kinds = {(failure["site"], failure["kind"]) for line in rounds(folder) for failure in line["failures"]}
    assert kinds == {(SLOW, "late")}
    assert [len([1 for figures in line["sites"].values() if "train_loss" in figures]) for line in rounds(folder)[1:]] == [3] * 5


def _site(message: Message) -> object:
    return message.content.config_records.get(protocol.TASK, {}).get("site")


REFUSED = {
    "privacy.sum": {"privacy.sum": "secure"},
    "sites-per-round": {"sites-per-round": 2},
    "send.rule": {"send.rule": "top-k", "send.code": "none"},
    "sample.replacement": {"sample.share": 0.5, "sample.replacement": False},
}


@pytest.mark.parametrize("key", BUFFER)
def test_what_needs_all_sites_in_every_round_is_refused_by_name(key, four_sites):
    with pytest.raises(ConfigError, match=rf"async.buffer = 2, and {key} = "):
        settings_from({**four_sites, "method": "adapter-fed", "async.buffer": 2, **REFUSED[key]})


def test_a_buffer_that_no_round_can_fill_is_refused(four_sites):
    settings = settings_from({**four_sites, "method": "adapter-fed", "async.buffer": 5})
    with pytest.raises(ConfigError, match=r"async\.buffer = 5, and there are 4 sites; give a number from 1 to 4, or 0"):
        check_enough(settings, 4)


def test_a_late_change_keeps_its_age_where_another_site_is_asked_again_in_that_round(config, tmp_path):
    """The requests of a round are made anew for sites that have lost their tensors, when the late change is here already."""
    config = {**config, "run-dir": str(tmp_path / "run")}
    forgot = []

    def tamper(asked: Message, reply: Message) -> Message:
        task = asked.content.config_records.get(protocol.TASK, {})
        if (
            asked.metadata.message_type == protocol.TRAIN
            and task["round"] == 3
            and task["site"] in {"bank", "school"} - {*forgot}
        ):
            forgot.append(task["site"])
            return Message(Error(protocol.NOT_HELD, "NotHeldError: I forget"), reply_to=asked)
        return reply

    folder = run_on(Unequal(dict(config), 4, tamper=tamper), dict(config))
    assert len(forgot) == 2
    assert rounds(folder)[3]["sites"][SLOW]["staleness"] == AGE


class InTurn(InProcessGrid):
    """In each round the update of one site comes in, whichever round it began in."""

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        tasks = trainings(self)
        turn = SITES[(max((int(task["round"]) for task in tasks.values()), default=1) - 1) % 4]
        return super().pull_messages(name for name in message_ids if name not in tasks or tasks[name]["site"] == turn)


def test_the_last_round_is_the_last_in_which_a_change_counted(config, tmp_path):
    """Every update began in round 1."""
    config = {**config, "rounds": 4, "async.buffer": 1, "best-by": "last", "run-dir": str(tmp_path / "run")}
    folder = run_on(InTurn(dict(config), 4), dict(config))
    assert [max(about.get("staleness", 0) for about in line["sites"].values()) for line in rounds(folder)[1:]] == [0, 1, 2, 3]
    assert folder.read("run.json")["best_round"] == 4


@pytest.mark.fault("resumed")
def test_a_late_site_still_has_what_the_checkpoint_before_the_last_asks_for(config, tmp_path):
    """The court's update of round 3 comes in round 4. As long as checkpoint 4 may be damaged, the court needs what round 1 left."""
    config = {**config, "run-dir": str(tmp_path / "run")}
    with pytest.raises(KeyboardInterrupt):
        run_on(Mortal(config, 4), config)
    before, last = RunFolder(tmp_path / "run").checkpoints.rounds()[-2:]
    stages = [RunFolder(tmp_path / "run").checkpoints.load(number).values["progress"]["stages"] for number in (before, last)]
    assert [list(each[SLOW]) for each in stages] == [["1"], ["1", "3"]]
    truncate(tmp_path / "run" / "checkpoints" / f"{last:04d}" / "state.json")
    folder = run_on(InProcessGrid(config, 4), {**config, "resume": True})
    assert not [failure for line in rounds(folder) for failure in line["failures"]]
