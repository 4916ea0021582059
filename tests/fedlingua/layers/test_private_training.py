"""Whole runs under dp.epsilon: what leaves a site, what its ledger says, and what a resumed run costs."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from clients.translation import TranslationClient
from fedlingua.common.errors import ConfigError, ExchangeError, RunError
from fedlingua.evaluation.sums import Scores
from fedlingua.exchange import protocol
from fedlingua.exchange.protocol import Task
from fedlingua.exchange.records import opened
from fedlingua.exchange.tensors import NamedTensors
from fedlingua.layers.order import layers_of
from fedlingua.layers.private_training import PrivateTraining
from fedlingua.privacy.accounting import noise_for
from fedlingua.privacy.fixed_point import CHECKS
from fedlingua.privacy.noise_shares import SEED
from fedlingua.runs.folder import RunFolder
from tests.federations import FOUR_SITES, TWO_SITES
from tests.in_process import InProcessGrid, checkpoint_bytes, failing, rounds, run, run_on

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
SHARED = {
    "privacy.sum": "secure",
    "dp.noise": "shares",
    "local-epochs": 1,
    "aggregation": "fed-avg",
    "learning-rate": 0.5,
}


@pytest.mark.parametrize(
    "changes",
    [{}, KEPT, {"privacy.sum": "secure"}, SHARED],
    ids=["plain", "kept", "secure", "shares"],
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


# --- Documents as what is hidden --------------------------------------------------------------------------------------


def in_documents(tmp_path: Path, phrases: dict[str, list[str]], names: bool = True) -> Path:
    """A federation of three sites with the same 48 lines in three languages, in documents of three."""
    text = 'name = "three"\n[split]\nmode = "shared-side"\ntrain = 0.5\ndev = 0.25\ntest = 0.25\n'
    for language in ("de", "pl", "es"):
        sides = [[f"{one} {other}" for one in phrases[code][:8] for other in phrases[code][8:14]] for code in (language, "fr")]
        lines = (f"{source}\t{target}\n" for source, target in zip(*sides, strict=True))
        (tmp_path / f"{language}.tsv").write_text("".join(lines), "utf-8")
        (tmp_path / f"{language}.docs").write_text("".join(f"note {place // 3}\n" for place in range(48)))
        text += f'[[site]]\nname = "{language}"\ndirection = "{language}-fr"\ntsv = "{language}.tsv"\n'
        text += f'documents = "{language}.docs"\n' if names else ""
    (tmp_path / "three.toml").write_text(text)
    return tmp_path / "three.toml"


@pytest.mark.parametrize("changes", [{"local-epochs": 2}, SHARED], ids=["plain", "shares"])
def test_a_run_that_hides_documents_costs_what_it_asked_for_and_says_so(
    least_run_config: dict[str, Any], tmp_path: Path, phrases: dict[str, list[str]], changes: dict[str, Any]
) -> None:
    config = {**least_run_config, **PRIVATE, **changes, "dp.unit": "document", "deadline.phase-s": 60.0}
    config |= {"federation": str(in_documents(tmp_path, phrases)), "data-dir": str(tmp_path)}
    folder, _ = run(config, tmp_path / "run")
    spent = ledger(folder, "pl")
    assert [each["unit"] for each in spent["entries"]] == ["document"] * 3
    assert 7.9 < spent["epsilon"] <= 8.0
    if changes is SHARED:
        # A sum over the site's documents, each at most a clip long.
        documents = {line for line in (tmp_path / "pl.docs").read_text().split("\n") if line}
        added = summands(folder, 3)["pl"]
        assert 0 < sum(float(np.square(added[name]).sum()) for name in added if name != SEED) ** 0.5 <= 0.1 * len(documents)


def test_documents_that_nobody_names_end_a_run_before_any_training(
    least_run_config: dict[str, Any], tmp_path: Path, phrases: dict[str, list[str]]
) -> None:
    config = {**least_run_config, **PRIVATE, "dp.unit": "document", "data-dir": str(tmp_path)}
    config["federation"] = str(in_documents(tmp_path, phrases, names=False))
    with pytest.raises(
        RunError, match=r"dp\.unit = 'document', and the site's corpus does not say which document a pair is from"
    ):
        run(config, tmp_path / "run")
    assert not list((tmp_path / "run").glob("sites/*/private/*"))


def test_a_ledger_counts_sentences_or_documents_not_both(client: TranslationClient) -> None:
    client.train(client.trainable.sent_first, Task("notebook", "run", 1, 1))
    hides = replace(client.settings, dp_unit="document")
    entry = client.ledger.of_round(hides, "other", 1)
    with pytest.raises(
        ExchangeError, match=r"the run hides a document, and this site's ledger counts what was told of a sentence"
    ):
        client.ledger.check_round(entry, hides)


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


# --- Noise in shares inside a secure sum ------------------------------------------------------------------------------


def aggregates(folder: RunFolder, number: int) -> dict[str, np.ndarray]:
    files = (folder.directory / "checkpoints" / f"{number:04d}").glob("*.safetensors")
    return {name: array.astype(np.float64) for file in files for name, array in load_file(file).items()}


def summands(folder: RunFolder, number: int) -> dict[str, dict[str, np.ndarray]]:
    """Site -> its sums of clipped gradients, which it stores for repeated requests, and the seed of its share of the noise."""
    files = folder.directory.glob(f"sites/*/private/{number:04d}-*.safetensors")
    return {file.parts[-3]: {name.removeprefix("clipped/"): each for name, each in load_file(file).items()} for file in files}


@pytest.mark.parametrize(("lost", "epsilon", "bits"), [(False, 8.0, 16), (True, 8.0, 16), (True, 0.03, 24)])
def test_a_sum_of_three_sites_has_the_noise_that_is_needed_and_one_of_four_a_third_more(
    four_sites: dict[str, Any], tmp_path: Path, lost: bool, epsilon: float, bits: int
) -> None:
    config = {**four_sites, **PRIVATE, **SHARED, "rounds": 1, "quorum": 0.7, "dp.epsilon": epsilon}
    folder, grid = run(config, tmp_path / "run", tamper=failing("court", "train", 1) if lost else None)
    here = [site for site in summands(folder, 1) if not (lost and site == "court")]
    sentences = sum(about["train"] for site, about in (folder.read("sites.json") or {}).items() if site in here)
    first, last, added = aggregates(folder, 0), aggregates(folder, 1), summands(folder, 1)
    exact = {name: sum(added[site][name].astype(np.float64) for site in here) for name in last}
    assert sum(np.square(each).sum() for each in exact.values()) > 0.1**2
    # Change = - rate x (sum of clipped gradients + noise) / sentences.
    noise = np.concatenate([((first[name] - last[name]) * sentences / 0.5 - exact[name]).ravel() for name in last]) / 0.1
    promised = 1.05 * noise_for(epsilon, 1e-5, 1.0, 1, moments=True) * (len(here) / 3) ** 0.5  # 1.05: for rounding
    assert len(here) == 4 - lost
    assert np.std(noise) == pytest.approx(promised, rel=5 / (2 * len(noise)) ** 0.5)
    assert abs(np.mean(noise)) < 5 * promised / len(noise) ** 0.5
    assert rounds(folder)[1]["secure_sum"] == {"sites": len(here), "cut": 0.0}
    trained = [m for m in grid.received if m.metadata.message_type == protocol.TRAIN]
    assert not [m for m in trained if protocol.METRICS in m.content]
    masked = [opened(m.content.array_records[protocol.ARRAYS]) for m in trained if m.has_content()]
    wanted = bits // 8 * (2 * CHECKS + sum(each.size for each in first.values()))
    assert [len(each["encoder"]) + len(each["decoder"]) for each in masked] == [wanted] * len(here)


def test_every_site_and_every_round_has_a_seed_of_its_own_and_the_run_costs_what_it_asked_for(
    four_sites: dict[str, Any], tmp_path: Path
) -> None:
    folder, _ = run({**four_sites, **PRIVATE, **SHARED, "server.optimizer": "adam"}, tmp_path / "run")
    seeds = [file[SEED].tobytes() for number in (2, 3) for file in summands(folder, number).values()]
    assert (len(seeds), len(set(seeds)), {len(seed) for seed in seeds}) == (8, 8, {32})
    spent = ledger(folder)
    assert [each["moments"] for each in spent["entries"]] == [True] * 3
    assert 7.9 < spent["epsilon"] <= 8.0


def test_a_run_with_too_many_parameters_for_noise_in_shares_ends_before_any_training(
    four_sites: dict[str, Any], tmp_path: Path
) -> None:
    config = {**four_sites, **PRIVATE, **SHARED, "dp.epsilon": 0.02, "rounds": 200}
    with pytest.raises(ConfigError, match=r"dp.noise = 'shares': the noise of 4 sites .* train fewer parameters"):
        run(config, tmp_path / "run")
    assert not list((tmp_path / "run").glob("sites/*/private/*"))


@pytest.fixture
def sharing(client: TranslationClient) -> TranslationClient:
    client.settings = replace(client.settings, dp_noise="shares", learning_rate=1e-30)
    client.layers = layers_of(client.settings)
    return client


def clipped_of(client: TranslationClient) -> NamedTensors:
    """What the last trained round adds to a secure sum."""
    return next(layer for layer in client.layers.list if isinstance(layer, PrivateTraining)).shares


def test_before_the_noise_of_a_sum_nothing_tells_whether_a_tensor_moved(sharing: TranslationClient) -> None:
    start = sharing.trainable.sent_first
    _, sums = sharing.train(start, Task("notebook", "run", 1, 1))  # this rate moves none, which is an error without privacy
    assert set(sums) == {"steps", "seconds"}
    clipped = {name: each for name, each in clipped_of(sharing).items() if name != SEED}
    assert set(clipped) == set(start)
    assert 0 < sum(float(np.square(each).sum()) for each in clipped.values()) ** 0.5 <= 16 * sharing.settings.dp_clip
    assert (sharing.folder / "private").stat().st_mode & 0o077 == 0  # sums without noise lie there
    first = {name: each.copy() for name, each in clipped_of(sharing).items()}
    sharing.train(start, Task("notebook", "run", 2, 1))
    assert all(np.array_equal(clipped_of(sharing)[name], first[name]) for name in first)
    assert len(sharing.ledger.entries()) == 1
    sharing.train({name: array + np.float32(0.001) for name, array in start.items()}, Task("notebook", "run", 2, 1))
    assert (clipped_of(sharing)[SEED] != first[SEED]).any()
    assert len(sharing.ledger.entries()) == 2


def test_outside_of_a_secure_sum_no_update_is_given_away(sharing: TranslationClient) -> None:
    with pytest.raises(ExchangeError, match=r"dp.noise = 'shares' needs a secure sum"):
        sharing.fit(list(sharing.trainable.sent_first.values()), {})
