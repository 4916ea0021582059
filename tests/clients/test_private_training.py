"""Whole runs under dp.epsilon: what leaves a site, what its ledger says, and what a resumed run costs."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clients.translation import TranslationClient
from fedlingua.common.errors import ExchangeError, RunError
from fedlingua.evaluation.sums import Scores
from fedlingua.exchange import protocol
from fedlingua.exchange.protocol import Task
from fedlingua.runs.folder import RunFolder
from tests.federations import FOUR_SITES, TWO_SITES
from tests.in_process import InProcessGrid, checkpoint_bytes, rounds, run, run_on

PRIVATE = {"method": "adapter-fed", "dp.epsilon": 8.0, "local-epochs": 2, "rounds": 3, "batch-size": 8}


@pytest.fixture
def two_sites(least_run_config: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "two.toml").write_text(TWO_SITES)
    return {**least_run_config, **PRIVATE, "federation": str(tmp_path / "two.toml"), "deadline.phase-s": 60.0}


def ledger(folder: RunFolder, site: str = "court") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder.directory / "sites" / site / "ledger.json").read_text())
    return found


def test_a_run_costs_what_it_asked_for_and_tells_no_sums_of_the_training_text(two_sites: dict[str, Any], tmp_path: Path) -> None:
    folder, grid = run(two_sites, tmp_path / "run")
    assert 7.9 < ledger(folder)["epsilon"] <= 8.0
    assert [each["what"] for each in ledger(folder)["entries"]] == [f"training, round {number}" for number in (1, 2, 3)]
    told = [m.content.metric_records[protocol.METRICS] for m in grid.received if m.metadata.message_type == protocol.TRAIN]
    assert len(told) == 6
    assert {frozenset(sums) for sums in told} == {frozenset({"steps", "seconds"})}
    assert {sums["steps"] for sums in told} == {2}
    for record in rounds(folder)[1:]:
        assert all("train_loss" not in site and site["update_norm"] > 0 for site in record["sites"].values())


def test_two_runs_of_one_seed_differ_since_noise_is_nobodys_guess(two_sites: dict[str, Any], tmp_path: Path) -> None:
    one, other = (run({**two_sites, "rounds": 1}, tmp_path / name)[0] for name in ("one", "other"))
    assert checkpoint_bytes(one).keys() == checkpoint_bytes(other).keys()
    assert all(checkpoint_bytes(one)[name] != checkpoint_bytes(other)[name] for name in checkpoint_bytes(one))


class Killed(BaseException):
    """As good as kill -9 for a grid in one process."""


class Mortal(InProcessGrid):
    """Dies once the sites have trained round 2."""

    def push_messages(self, messages: Any) -> Any:
        pushed = list(messages)
        ids = super().push_messages(pushed)
        task = pushed[0].content.config_records.get(protocol.TASK, {})
        if pushed[0].metadata.message_type == protocol.TRAIN and task["round"] == 2:
            raise Killed
        return ids


def killed(config: dict[str, Any], directory: Path) -> RunFolder:
    config = {**config, "run-dir": str(directory)}
    with pytest.raises(Killed):
        run_on(Mortal(config, 2), config)
    return RunFolder(directory)


KEPT = {"optimizer-state": "kept"}
CONTROLLED = {"scaffold": True, "learning-rate": 0.001}
MIXED = {"own-model": "mr-mtl", "pull": 0.1}


@pytest.mark.parametrize(
    "changes", [{}, KEPT, CONTROLLED, MIXED, {"privacy.sum": "secure"}], ids=["plain", "kept", "scaffold", "mr-mtl", "secure"]
)
def test_a_resumed_round_sends_what_was_sent_before_and_costs_nothing(
    two_sites: dict[str, Any], tmp_path: Path, changes: dict[str, Any]
) -> None:
    config = {**two_sites, **changes}
    if "privacy.sum" in changes:
        (tmp_path / "four.toml").write_text(FOUR_SITES)
        config["federation"] = str(tmp_path / "four.toml")
    folder = killed(config, tmp_path / "run")
    before, spent = (folder.directory / "sites/court/private").glob("0002-*"), ledger(folder)
    stored = {file.name: file.read_bytes() for file in before}
    assert (len(stored), len(spent["entries"])) == (1, 2)
    folder, _ = run({**config, "resume": True}, folder.directory)
    after = ledger(folder)
    assert after["entries"][:2] == spent["entries"]
    assert len(after["entries"]) == 3
    assert 7.9 < after["epsilon"] <= 8.0
    assert {file.name: file.read_bytes() for file in (folder.directory / "sites/court/private").glob("0002-*")} == stored
    assert [record["attempt"] for record in rounds(folder)] == [1, 1, 2, 2]
    assert folder.read("scores.json")


def test_a_resumed_run_whose_site_has_lost_what_it_sent_pays_again_until_nothing_is_left(
    two_sites: dict[str, Any], tmp_path: Path
) -> None:
    folder = killed(two_sites, tmp_path / "run")
    shutil.rmtree(folder.directory / "sites/court/private")
    with pytest.raises(RunError, match=r"court: .*training, round 3, would bring this run's training to epsilon = 9"):
        run({**two_sites, "resume": True}, folder.directory)
    assert ledger(folder)["epsilon"] <= 8.0


@pytest.fixture
def client(
    tiny_run_config: dict[str, Any], phrases: dict[str, list[str]], tmp_path: Path, tiny_backbone: Path
) -> TranslationClient:
    pairs = list(zip(phrases["de"][:24], phrases["fr"][:24], strict=True))
    options = {"backbone": str(tiny_backbone), "method": "adapter-fed", "adapter_dim": 4, "max_tokens": 32, "rounds": 2}
    return TranslationClient.of_pairs(pairs[:16], "de-fr", pairs[16:], tmp_path / "client", dp_epsilon=4.0, **options)


def test_a_round_is_entered_before_its_update_exists_for_anyone(
    client: TranslationClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any, **__: Any) -> None:
        raise ExchangeError("the disk is full")

    monkeypatch.setattr("clients.site_client.Ledger.enter", refuses)
    with pytest.raises(ExchangeError, match="the disk is full"):
        client.train(client.trainable.sent_first, Task("notebook", "run", 1, 1))


def test_a_site_without_budget_trains_nothing(client: TranslationClient, monkeypatch: pytest.MonkeyPatch) -> None:
    client.ledger = replace(client.ledger, max_epsilon=1.0)
    monkeypatch.setattr("clients.site_client.train_locally", lambda *_, **__: pytest.fail("it trained"))
    with pytest.raises(ExchangeError, match=r"gives away 1 in all: .* \[node\] max-epsilon"):
        client.train(client.trainable.sent_first, Task("notebook", "run", 1, 1))


def test_other_tensors_of_the_same_round_are_trained_and_paid_for(client: TranslationClient) -> None:
    start = client.trainable.sent_first
    first, _ = client.train(start, Task("notebook", "run", 1, 1))
    first = {name: np.array(array) for name, array in first.items()}
    again, _ = client.train(start, Task("notebook", "run", 2, 1))
    assert all(np.array_equal(again[name], first[name]) for name in first)
    assert len(client.ledger.entries()) == 1
    client.train({name: array + np.float32(0.001) for name, array in start.items()}, Task("notebook", "run", 2, 1))
    assert len(client.ledger.entries()) == 2
    update, number, sums = client.fit(list(start.values()), {"round": 2})
    assert (number, sums["steps"], len(update)) == (16, 1, len(start))


def test_what_a_deployed_site_keeps_is_not_scored_for_others() -> None:
    of: Any = {name: object() for name in ("kept", "base", "alone", "federated")}
    scores = Scores(of["kept"], of["base"], of["alone"], of["federated"], "own", (0.0, 1.0), (0.0, 2.0))
    assert scores.of_federation() == Scores(of["federated"], of["base"])
    assert Scores(of["kept"], of["base"]).of_federation() == Scores(of["kept"], of["base"])
