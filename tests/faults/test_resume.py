"""Runs that are killed, checkpoints that are damaged: what is resumed ends in the same bytes as a run that nothing happened to."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from fedlingua.common.errors import RunError
from fedlingua.exchange import protocol
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.checks import settings_from
from strategies.methods.fed_mean import FedMean
from tests.damage import flip, truncate
from tests.federations import TWO_SITES, TWO_TEXTS
from tests.in_process import InProcessGrid, checkpoint_bytes, rounds, run, run_on


class Killed(BaseException):
    """As good as kill -9 for a grid in one process: nothing after it runs."""


class Mortal(InProcessGrid):
    """Dies before it pushes the messages of one phase of one round, or once they are answered; None: of any. A probe counts as training."""

    def __init__(self, config, phase, number, answered):
        super().__init__(config, 2)
        self.phase, self.number, self.answered = phase, number, answered

    def push_messages(self, messages):
        messages = list(messages)
        for message in messages:
            task = message.content.config_records.get(protocol.TASK, {})
            if message.metadata.message_type.removesuffix(".probe") == self.phase and self.number in (None, task["round"]):
                if self.answered:
                    super().push_messages(messages)
                raise Killed
        return super().push_messages(messages)


CONTROLLERS = {"method": "adapter-families", "tensor-set": "controllers", "controllers": 1, "learning-rate": 0.001}
"""Some of what trains travels, the rest stays at the sites."""


METASEND = {
    "method": "adapter-families",
    "send.rule": "metasend-g",
    "meta.batches": 2,
    "meta.second-filter": True,
}
"""A threshold and a filter that learn, and updates that wait at the sites."""
APF = {"method": "adapter-families", "send.rule": "apf", "server.optimizer": "adam", "server.schedule": "cosine"}
"""Sites that remember how numbers moved, and a server that remembers gradients."""


@pytest.fixture
def two_sites(least_run_config, tmp_path):
    """Two suffice: what a site or a cluster has kept is its own."""
    (tmp_path / "two.toml").write_text(TWO_SITES)
    return {**least_run_config, "federation": str(tmp_path / "two.toml"), "deadline.phase-s": 30.0}


@pytest.fixture
def two_texts(two_sites, tiny_encoder, tmp_path):
    (tmp_path / "texts.toml").write_text(TWO_TEXTS)
    masked = {"task": "masked-language", "backbone": str(tiny_encoder), "federation": str(tmp_path / "texts.toml")}
    return {**two_sites, **masked, "lora.targets": "query,value"}


@pytest.fixture
def families(two_sites):
    return {**two_sites, "method": "adapter-families", "cluster.least": 1, "rounds": 4}


def begin(config, directory: Path, phase=protocol.TRAIN, number=4, answered=False) -> RunFolder:
    """A run that dies; its folder says nothing of it, as after kill -9."""
    config = {**config, "run-dir": str(directory)}
    with pytest.raises(Killed):
        run_on(Mortal(config, phase, number, answered), config)
    return RunFolder(directory)


def resume(config, folder: RunFolder, **grid) -> RunFolder:
    return run({**config, "resume": True}, folder.directory, **grid)[0]


def final_bytes(folder: RunFolder) -> dict[str, bytes]:
    """All that a run ends in: the last tensors, and each site's adapter or model and its translations."""
    kinds = ("adapter/adapter.safetensors", "model.safetensors", "translations.tsv")
    sites = [file for kind in kinds for file in folder.directory.glob(f"sites/*/{kind}")]
    return checkpoint_bytes(folder) | {str(file.relative_to(folder.directory)): file.read_bytes() for file in sites}


def losses(folder: RunFolder) -> list[tuple[int, float]]:
    return [(record["round"], record["dev_loss"]) for record in rounds(folder)]


@pytest.fixture(scope="session")
def unbroken():
    return {}


def whole(config, tmp_path, unbroken) -> tuple[dict[str, bytes], list[tuple[int, float]]]:
    """Bytes and losses of the same run when nothing happens to it."""
    what = settings_from(config).hash()
    if what not in unbroken:
        folder, _ = run(config, tmp_path / "whole")
        unbroken[what] = (final_bytes(folder), losses(folder))
    return unbroken[what]


# Every moment once, and every kind of state once.
@pytest.mark.parametrize(
    ("changes", "phase", "number"),
    [
        ({"method": "adapter-families"}, protocol.EVALUATE, 4),
        ({"method": "adapter-families", "best-by": "last"}, protocol.TRAIN, 1),
        (CONTROLLERS, protocol.TRAIN, 3),
        (APF, protocol.TRAIN, 4),
        ({"method": "adapter-local"}, protocol.FINISH, None),
    ],
    ids=["last-evaluation", "first-training", "mid-training", "last-training", "delivery"],
)
@pytest.mark.fault("resumed")
def test_a_killed_run_resumes_to_the_same_bytes(two_sites, tmp_path, unbroken, record_property, changes, phase, number):
    config = {**two_sites, **changes, "rounds": 4}
    wanted = whole(config, tmp_path, unbroken)
    folder = begin(config, tmp_path / "killed", phase, number)
    done = len(rounds(folder)) if (folder.directory / "rounds.jsonl").is_file() else 0
    resume(config, folder, shuffle_seed=3)
    assert (final_bytes(folder), losses(folder)) == wanted
    attempts = [record["attempt"] for record in rounds(folder)]
    assert attempts == [1] * done + [2] * (len(attempts) - done)  # whole rounds are not made again
    record_property("rounds_lost", 5 - len(attempts))
    assert folder.read("run.json")["attempt"] == 2


@pytest.mark.fault("resumed")
def test_a_run_killed_again_while_updates_wait_for_their_threshold_resumes_to_the_same_bytes(two_sites, tmp_path, unbroken):
    config = {**two_sites, **METASEND, "rounds": 4}
    wanted = whole(config, tmp_path, unbroken)
    folder = begin(config, tmp_path / "killed", protocol.TRAIN, 2)
    begin({**config, "resume": True}, folder.directory, protocol.SEND, 3)
    resume(config, folder)
    assert (final_bytes(folder), losses(folder)) == wanted
    assert [record["attempt"] for record in rounds(folder)] == [1, 1, 2, 3, 3]


@pytest.mark.fault("resumed")
def test_tensors_that_a_dead_attempt_leaves_at_a_site_are_not_taken(two_sites, tmp_path, unbroken):
    config = {**two_sites, **CONTROLLERS, "rounds": 4}
    wanted = whole(config, tmp_path, unbroken)
    folder = begin(config, tmp_path / "killed", protocol.TRAIN, 3, answered=True)
    # Round 3 was trained in attempt 1 and never counted; a client of that attempt may even write it later.
    left = folder.directory / "sites" / "court" / "rounds" / "0003-1.safetensors"
    assert left.is_file()
    shutil.copy(folder.directory / "sites" / "hospital" / "rounds" / "0003-1.safetensors", left)
    resume(config, folder)
    assert (final_bytes(folder), losses(folder)) == wanted


def kept_translations(folder: RunFolder) -> dict[str, bytes]:
    """What the sites keep of their translations by round."""
    files = folder.directory.glob("sites/*/translations-by-round/*")
    return {str(file.relative_to(folder.directory)): file.read_bytes() for file in files}


def kept_rounds(folder: RunFolder, site: str) -> list[str]:
    return sorted(file.stem for file in folder.directory.glob(f"sites/{site}/translations-by-round/*"))


@pytest.fixture
def keeping(families):
    return {**families, "keep-translations": 2}


@pytest.mark.fault("resumed")
def test_translations_of_rounds_that_a_dead_attempt_was_ahead_by_are_gone_once_they_are_made_again(keeping, tmp_path):
    wanted = kept_translations(run(keeping, tmp_path / "whole")[0])
    folder = begin(keeping, tmp_path / "killed")
    assert kept_rounds(folder, "court") == ["0000", "0001", "0002"]  # round 3 is measured when round 4 is trained
    for state in folder.directory.glob("checkpoints/*/state.json"):
        truncate(state)
    # Killed again, back at the start: that the base is measured says the same of all rounds.
    begin({**keeping, "resume": True}, folder.directory, protocol.TRAIN, 1, answered=True)
    assert kept_rounds(folder, "court") == ["0000"]
    resume(keeping, folder)
    assert kept_translations(folder) == wanted
    assert kept_rounds(folder, "court") == ["0000", "0001", "0002", "0003", "0004"]


@pytest.mark.fault("resumed")
def test_a_resumed_run_may_keep_other_translations_than_before(families, tmp_path):
    folder = begin(families, tmp_path / "killed", protocol.TRAIN, 3)
    resume({**families, "keep-translations": 1}, folder)
    assert kept_rounds(folder, "court") == ["0002", "0003", "0004"]


def notes(folder: RunFolder) -> list[str]:
    lines = (folder.directory / "progress.jsonl").read_text().splitlines()
    return [json.loads(line).get("text", "") for line in lines if "note" in line]


@pytest.mark.fault("resumed")
def test_a_damaged_folder_resumes_to_the_same_bytes(families, tmp_path, unbroken, record_property):
    """All that a crash and a bad disk leave at once; which damage of a checkpoint is noticed: tests/fedlingua/runs/test_checkpoints.py."""
    wanted = whole(families, tmp_path, unbroken)
    folder = begin(families, tmp_path / "killed")
    newest = folder.directory / "checkpoints" / "0003"
    shutil.copytree(newest, newest.parent / "0004.writing")
    flip(newest / "encoder.Germanic.safetensors")
    for name, line in (("rounds.jsonl", '{"round": 4}\n{"round": 4, "dev'), ("progress.jsonl", '{"event": "ro')):
        with (folder.directory / name).open("a") as file:
            file.write(line)
    resume(families, folder)
    assert (final_bytes(folder), losses(folder)) == wanted
    record_property("rounds_lost", 5 - len(rounds(folder)))
    assert len([note for note in notes(folder) if note.startswith("checkpoint passed over: ")]) == 1
    assert any(note.startswith("resumed after round 2") for note in notes(folder))


@pytest.mark.fault("resumed")
def test_a_run_without_any_good_checkpoint_begins_again_to_the_same_bytes(families, tmp_path, unbroken):
    wanted = whole(families, tmp_path, unbroken)
    folder = begin(families, tmp_path / "killed", number=2)
    for checkpoint in (folder.directory / "checkpoints").glob("0*"):
        (checkpoint / "state.json").unlink()
    resume(families, folder)
    assert (final_bytes(folder), losses(folder)) == wanted
    assert any("begins again at its start" in note for note in notes(folder))


@pytest.mark.fault("resumed")
def test_sites_still_have_their_own_tensors_of_the_round_before_a_damaged_one(two_sites, tmp_path, unbroken):
    config = {**two_sites, "method": "adapter-local", "rounds": 4}
    wanted = whole(config, tmp_path, unbroken)
    folder = begin(config, tmp_path / "killed", protocol.EVALUATE, 4)
    truncate(folder.directory / "checkpoints" / "0003" / "state.json")
    resume(config, folder)
    assert (final_bytes(folder), losses(folder)) == wanted
    assert [record["attempt"] for record in rounds(folder)] == [1, 1, 1, 2, 2]


@pytest.mark.usefixtures("all_checkpoints")
@pytest.mark.fault("resumed")
def test_a_checkpoint_of_which_the_sites_have_nothing_any_more_is_passed_over(families, tmp_path, unbroken):
    """What the code of the updates left out is stored for the last two rounds."""
    config = {**families, "send.code": "4bit"}
    wanted = whole(config, tmp_path, unbroken)
    folder = begin(config, tmp_path / "killed", answered=True)
    assert folder.checkpoints.rounds()[-3:] == [1, 2, 3]
    for number in (2, 3):
        truncate(folder.directory / "checkpoints" / f"{number:04d}" / "state.json")
    resume(config, folder)
    assert (final_bytes(folder), losses(folder)) == wanted
    assert any("checkpoint 0001 is older than the last two rounds, 2 and 3" in note for note in notes(folder))
    assert any("begins again at its start" in note for note in notes(folder))


@pytest.mark.usefixtures("all_checkpoints")
@pytest.mark.fault("resumed")
def test_an_older_checkpoint_serves_where_sites_store_nothing_between_rounds(families, tmp_path):
    config = {**families, "send.code": "none"}
    folder = begin(config, tmp_path / "killed", answered=True)
    for number in (2, 3):
        truncate(folder.directory / "checkpoints" / f"{number:04d}" / "state.json")
    resume(config, folder)
    assert any(note.startswith("resumed after round 1") for note in notes(folder))


@pytest.mark.parametrize(
    "changes", [{"send.code": "4bit"}, {"tensor-set": "controllers", "learning-rate": 0.001}], ids=["code", "controllers"]
)
@pytest.mark.fault("resumed")
def test_a_resumed_run_can_go_back_a_round_too(families, tmp_path, unbroken, changes):
    config = {**families, **changes}
    wanted = whole(config, tmp_path, unbroken)
    folder = begin(config, tmp_path / "killed", answered=True)
    begin({**config, "resume": True}, folder.directory, answered=True)
    truncate(folder.directory / "checkpoints" / "0003" / "state.json")
    resume(config, folder)
    assert (final_bytes(folder), losses(folder)) == wanted
    assert any(note.startswith("resumed after round 2") for note in notes(folder))


@pytest.mark.fault("resumed")
def test_a_lost_best_round_is_made_again(families, tmp_path, unbroken):
    wanted = whole(families, tmp_path, unbroken)
    folder = begin(families, tmp_path / "killed")
    best = folder.read("run.json")["best_round"]
    assert best == 2  # the loss falls all the way, and that of round 3 is not known yet
    shutil.rmtree(folder.directory / "checkpoints" / "0002")
    resume(families, folder)
    assert (final_bytes(folder), losses(folder)) == wanted


class Momentum(FedMean):
    """Server momentum: a strategy with state of its own, and random draws."""

    def aggregate(self, state, updates):
        new, memory = super().aggregate(state, updates), {}
        draws = [*state.values.get("draws", []), Random(f"{self.settings.seed}/{state.round}").random()]
        before, after = state.tensors["encoder"]["all"], dict(new.tensors["encoder"]["all"])
        for name in before:
            step = after[name] - before[name]
            memory[name] = np.float32(0.5) * state.memory.get(name, np.zeros_like(step)) + step
            after[name] = before[name] + memory[name] * np.float32(draws[-1])
        tensors = {**new.tensors, "encoder": {"all": after}}
        return replace(new, tensors=tensors, memory=memory, values={"draws": draws})


@pytest.mark.fault("resumed")
def test_a_strategys_own_state_and_draws_come_back(two_sites, tmp_path):
    config = {**two_sites, "method": "adapter-fed", "rounds": 3, "strategy": "tests.faults.test_resume:Momentum"}
    unbroken, _ = run(config, tmp_path / "whole")
    folder = begin(config, tmp_path / "killed", protocol.TRAIN, 3)
    resume(config, folder)
    assert checkpoint_bytes(folder) == checkpoint_bytes(unbroken)
    assert "strategy.safetensors" in checkpoint_bytes(folder)
    state = json.loads((folder.directory / "checkpoints" / "0003" / "state.json").read_text())
    assert len(set(state["strategy"]["draws"])) == 3


@pytest.mark.fault("stopped")
def test_a_disk_that_is_full_stops_the_run_with_its_reason(families, tmp_path, monkeypatch):
    def full(*arguments, **more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedlingua.runs.checkpoints.save_tensors", full)
    with pytest.raises(OSError, match="No space left"):
        run(families, tmp_path / "full")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"seed": 7}, "keeps its settings, but seed = 7"), ({"adapter.dim": 8}, "adapter.dim = 8")],
    ids=["seed", "adapter.dim"],
)
@pytest.mark.fault("stopped")
def test_a_run_is_not_resumed_with_other_settings(families, tmp_path, changes, reason):
    folder = begin(families, tmp_path / "killed", protocol.TRAIN, 1)
    with pytest.raises(RunError, match=reason):
        resume({**families, **changes}, folder)
    assert folder.read("run.json")["attempt"] == 1


@pytest.mark.fault("stopped")
def test_a_completed_run_is_not_resumed(families, tmp_path):
    folder, _ = run({**families, "rounds": 1}, tmp_path / "done")
    with pytest.raises(RunError, match="the run is completed"):
        resume({**families, "rounds": 1}, folder)


@pytest.mark.fault("stopped")
def test_a_run_that_is_still_going_is_not_resumed(families, tmp_path):
    folder = begin(families, tmp_path / "killed", protocol.TRAIN, 1)
    with folder.held(), pytest.raises(RunError, match="its run is still going"):
        resume(families, RunFolder(folder.directory))


@pytest.mark.fault("stopped")
def test_a_run_is_not_resumed_with_another_federation(families, tmp_path):
    folder = begin(families, tmp_path / "killed", protocol.TRAIN, 2)
    file = tmp_path / "two.toml"
    file.write_text(file.read_text().replace("train = 0.5", "train = 0.4").replace("dev = 0.25", "dev = 0.35"))
    with pytest.raises(RunError, match=r"the federation file has changed since the run began: rules = .*'split.train': 0.4"):
        resume(families, folder)


@pytest.mark.fault("resumed")
def test_run_json_says_the_round_that_the_run_goes_on_from(families, tmp_path):
    folder = begin(families, tmp_path / "killed")
    (folder.directory / "checkpoints" / "0003" / "checksums").unlink()
    begin({**families, "resume": True}, folder.directory, protocol.TRAIN, 3)
    assert folder.read("run.json")["rounds"] == 2


# --- Pre-training: rounds that nobody measures, and optimizers that go on --------------------------------------------------------

EVERY_OTHER = {"method": "adapter-fed", "evaluate-every": 2}
KEPT_LOCAL = {"method": "adapter-local", "optimizer-state": "kept", "evaluate-every": 2}
KEPT_POOLED = {"method": "centralized", "optimizer-state": "kept", "optimizer": "adamw", "learning-rate": 0.001}
KEPT_NOTHING = {"method": "adapter-local", "optimizer-state": "kept", "optimizer": "sgd"}
"""SGD remembers nothing, which is kept too."""


@pytest.mark.parametrize(
    ("changes", "phase", "number"),
    [
        (EVERY_OTHER, protocol.TRAIN, 2),
        (KEPT_LOCAL, protocol.TRAIN, 3),
        (KEPT_POOLED, protocol.TRAIN, 3),
        (KEPT_NOTHING, protocol.TRAIN, 2),
    ],
    ids=["every-other", "kept", "kept-pooled", "kept-nothing"],
)
@pytest.mark.fault("resumed")
def test_a_killed_pre_training_resumes_to_the_same_bytes(two_texts, tmp_path, unbroken, changes, phase, number):
    config = {**two_texts, **changes, "rounds": 3}
    wanted = whole(config, tmp_path, unbroken)
    assert any(name.endswith(".safetensors") for name in wanted[0])
    folder = begin(config, tmp_path / "killed", phase, number)
    resume(config, folder, shuffle_seed=3)
    assert (final_bytes(folder), losses(folder)) == wanted


def test_a_kept_optimizer_is_another_training_than_a_fresh_one(two_texts, tmp_path, unbroken):
    kept, fresh = ({**two_texts, **KEPT_LOCAL, "optimizer-state": state, "rounds": 2} for state in ("kept", "fresh"))
    folder, _ = run(kept, tmp_path / "kept")
    assert final_bytes(folder) != whole(fresh, tmp_path, unbroken)[0]
    court = folder.directory / "sites" / "court"
    states = [sorted(file.name for file in (court / what).iterdir()) for what in ("optimizer", "rounds")]
    assert states[0] == states[1] != []
