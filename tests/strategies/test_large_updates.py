"""Whole federations whose updates wait in files: nothing but the place is other, and no file outlives the fold."""

import pytest

from fedlingua.common.errors import RunError
from fedlingua.exchange import protocol
from fedlingua.exchange import updates as update_files
from strategies.methods.fed_mean import FedMean
from tests.in_process import InProcessGrid, checkpoint_bytes, failing, rounds, run, run_on

WAITED: list[list[str]] = []
"""Fold after fold, the files that were there."""


class Watched(FedMean):
    """FedMean that looks at the run folder while it aggregates."""

    def aggregate(self, state, updates):
        directory = self.folder.directory / ".updates"
        WAITED.append(sorted(file.name for file in directory.iterdir()) if directory.is_dir() else [])
        return super().aggregate(state, updates)


class Median(FedMean):
    """The rule of docs/guides/strategy.md."""

    @staticmethod
    def rule(updates):
        import numpy as np

        return {name: np.median([u.tensors[name] for u in updates], axis=0).astype(np.float32) for name in updates[0].tensors}


@pytest.fixture
def config(four_sites):
    return {**four_sites, "method": "adapter-families", "rounds": 2}


@pytest.fixture
def in_files(monkeypatch):
    WAITED.clear()
    monkeypatch.setattr(update_files, "LARGE", 0)


def left(folder):
    return [path.name for path in folder.directory.iterdir() if path.name.startswith(".updates")]


@pytest.mark.parametrize("strategy", ["Watched", "Median"])
def test_updates_in_files_fold_to_the_same_bytes(config, tmp_path, monkeypatch, strategy):
    config["strategy"] = f"tests.strategies.test_large_updates:{strategy}"
    WAITED.clear()
    in_memory, _ = run(config, tmp_path / "memory")
    assert not any(WAITED)
    monkeypatch.setattr(update_files, "LARGE", 0)
    WAITED.clear()
    folder, _ = run(config, tmp_path / "files", shuffle_seed=5)
    assert checkpoint_bytes(folder) == checkpoint_bytes(in_memory)
    assert [record["dev_loss"] for record in rounds(folder)] == [record["dev_loss"] for record in rounds(in_memory)]
    assert left(folder) == []
    if strategy == "Watched":
        assert WAITED == [["bank.f32", "court.f32", "hospital.f32", "school.f32"]] * 2


def test_a_round_that_fails_or_is_skipped_leaves_no_file(config, tmp_path, in_files):
    court = failing("court", protocol.TRAIN, 1)
    with pytest.raises(RunError, match="the disk is full"):
        run(config, tmp_path / "failed", tamper=court)
    assert list((tmp_path / "failed").glob(".updates*")) == []
    folder, _ = run({**config, "below-quorum": "go-on"}, tmp_path / "skipped", tamper=court)
    assert any("stay as they were" in line for line in (folder.directory / "progress.jsonl").read_text().split("\n"))
    assert left(folder) == []


def test_a_refused_update_is_not_kept(config, tmp_path, in_files):
    config |= {"strategy": "tests.strategies.test_large_updates:Watched", "quorum": 0.5, "rounds": 1}
    run(config, tmp_path / "refused", tamper=failing("court", protocol.TRAIN, 1))
    assert WAITED == [["bank.f32", "hospital.f32", "school.f32"]]


class Killed(BaseException):
    """As good as kill -9."""


class Mortal(InProcessGrid):
    """The process is killed while the replies of round 2 come in."""

    def pull_messages(self, message_ids):
        for reply in super().pull_messages(message_ids):
            task = reply.content.config_records.get(protocol.TASK, {})
            if reply.metadata.message_type == protocol.TRAIN and (task["site"], task["round"]) == ("bank", 2):
                raise Killed
            yield reply


def test_what_a_killed_server_leaves_is_removed_at_resume(config, tmp_path, in_files, monkeypatch):
    unbroken, _ = run(config, tmp_path / "whole")
    config["run-dir"] = str(tmp_path / "killed")
    with monkeypatch.context() as killed:
        killed.setattr(update_files.UpdateFiles, "clear", lambda files: None)  # kill -9 runs nothing after it
        with pytest.raises(Killed):
            run_on(Mortal(config, 2), config)
    assert len(list((tmp_path / "killed" / ".updates").iterdir())) == 4
    folder, _ = run({**config, "resume": True}, tmp_path / "killed")
    assert checkpoint_bytes(folder) == checkpoint_bytes(unbroken)
    assert left(folder) == []


def test_what_the_sites_of_a_cluster_get_alike_is_one_array(config, tmp_path):
    _, grid = run({**config, "rounds": 1}, tmp_path / "one")
    sent = {m.content.config_records[protocol.TASK]["site"]: m for m in grid.sent if m.metadata.message_type == protocol.EVALUATE}
    arrays = {site: message.content.array_records[protocol.ARRAYS] for site, message in sent.items()}
    assert arrays["hospital"]["encoder"] is arrays["court"]["encoder"]  # Germanic
    assert arrays["hospital"]["decoder"] is arrays["court"]["decoder"]  # Romance
    assert arrays["hospital"] is not arrays["court"]
