"""Whole federations in one process: the real strategies and the real ClientApp, without Ray."""

import time

import numpy as np
import pytest
from flwr.app import Error, Message
from safetensors.numpy import load_file

from fedlingua.common.errors import BackboneError, ConfigError, RunError
from fedlingua.exchange import protocol
from fedlingua.exchange.records import unpack
from fedlingua.exchange.trainable import build_trainable
from fedlingua.settings.checks import settings_from
from strategies.server_app import find_strategy
from tests.federations import SITES
from tests.in_process import checkpoint_bytes, failing, rounds, run
from tests.pages import block


@pytest.fixture
def config(four_sites):
    return four_sites


@pytest.fixture
def families(run_once):
    return run_once({"method": "adapter-families"})


def test_same_seed_same_bytes_for_any_nodes_and_order_of_replies(config, families, tmp_path):
    wanted = checkpoint_bytes(families[0])
    for number, (num_nodes, shuffle) in enumerate([(1, 1), (4, 2)]):
        folder, _ = run({**config, "method": "adapter-families"}, tmp_path / f"again{number}", num_nodes, shuffle_seed=shuffle)
        assert checkpoint_bytes(folder) == wanted
    other, _ = run({**config, "method": "adapter-families", "seed": 7}, tmp_path / "other")
    assert checkpoint_bytes(other) != wanted


def test_families_share_inside_groups_only(families):
    names = set(checkpoint_bytes(families[0]))
    assert names == {
        *(f"encoder.{group}.safetensors" for group in ("Germanic", "Slavic")),
        *(f"decoder.{group}.safetensors" for group in ("Romance", "Germanic")),
    }
    clusters = families[0].read("clusters.json")
    assert clusters["encoder"] == {"Germanic": ["hospital", "court"], "Slavic": ["school", "bank"]}
    assert clusters["decoder"] == {"Romance": ["hospital", "court"], "Germanic": ["school", "bank"]}


def test_a_cluster_is_the_mean_of_its_sites_updates(config, tmp_path):
    folder, grid = run({**config, "method": "adapter-families", "rounds": 1}, tmp_path / "one")
    chosen = build_trainable(settings_from(config)).tensor_set
    updates = {
        reply.content.config_records[protocol.TASK]["site"]: unpack(reply.content.array_records[protocol.ARRAYS], chosen)
        for reply in grid.received
        if reply.metadata.message_type == protocol.TRAIN
    }
    kept = load_file(folder.directory / "checkpoints" / "0001" / "encoder.Germanic.safetensors")
    for name, array in kept.items():
        np.testing.assert_allclose(array, (updates["hospital"][name] + updates["court"][name]) / 2, rtol=1e-6, atol=1e-7)
        assert (updates["hospital"][name] != updates["court"][name]).any() or "up.bias" in name


def test_a_run_leaves_its_folder_whole(families):
    folder = families[0]
    run_json, scores = folder.read("run.json"), folder.read("scores.json")
    assert run_json["status"] == "completed"
    assert run_json["best_round"] in (1, 2)
    assert [record["round"] for record in rounds(folder)] == [0, 1, 2]
    assert list(scores["sites"]) == SITES
    for site in SITES:
        told, counted = scores["sites"][site], folder.read("sites.json")[site]
        assert told["sentences"] == counted["test"] > 0
        account = counted["accounts"][told["direction"]]
        assert account["read"] == account["kept"] + sum(account["dropped"].values())
        lines = (folder.directory / "sites" / site / "translations.tsv").read_text().rstrip("\n").split("\n")
        assert len(lines) == 1 + counted["test"]
        assert (folder.directory / "sites" / site / "adapter" / "adapter.safetensors").is_file()
    macro = sum(entry["bleu"] for entry in scores["sites"].values()) / 4
    assert scores["macro_bleu"] == pytest.approx(macro)
    assert scores["exchanged_parameters"] == run_json["exchanged_parameters"] > 0
    assert scores["uplink_bytes_per_round"] > 4 * scores["exchanged_parameters"]


def test_the_delivered_adapter_is_the_best_rounds(families):
    folder, _ = families
    best = folder.read("run.json")["best_round"]
    losses = {record["round"]: record["dev_loss"] for record in rounds(folder) if record["round"]}
    assert losses[best] == min(losses.values())
    kept = load_file(folder.directory / "checkpoints" / f"{best:04d}" / "encoder.Slavic.safetensors")
    delivered = load_file(folder.directory / "sites" / "school" / "adapter" / "adapter.safetensors")
    assert all((delivered[name] == array).all() for name, array in kept.items())


@pytest.mark.parametrize(("method", "rate"), [("adapter-families", 10.0), ("adapter-local", 20.0)])
def test_by_last_the_final_model_is_the_result_though_an_earlier_one_was_better(config, tmp_path, method, rate):
    worse = {**config, "method": method, "learning-rate": rate, "rounds": 3}
    last, best = (run({**worse, "best-by": by}, tmp_path / by)[0] for by in ("last", "examples"))
    losses = [record["dev_loss"] for record in rounds(last)]
    assert losses == [record["dev_loss"] for record in rounds(best)]
    assert min(losses[1:]) < losses[-1]
    chosen, better = last.read("run.json")["best_round"], best.read("run.json")["best_round"]
    assert chosen == (3 if method == "adapter-families" else dict.fromkeys(SITES, 3)) != better
    if method == "adapter-families":
        assert last.checkpoints.rounds() == [2, 3]
        kept = load_file(last.directory / "checkpoints" / "0003" / "encoder.Slavic.safetensors")
        delivered = load_file(last.directory / "sites" / "school" / "adapter" / "adapter.safetensors")
        assert all((delivered[name] == array).all() for name, array in kept.items())


def test_by_last_patience_still_looks_at_the_dev_loss(config, tmp_path):
    still = {**config, "method": "adapter-fed", "learning-rate": 1e-30, "rounds": 9, "patience": 2, "best-by": "last"}
    folder, _ = run(still, tmp_path / "run")
    assert [record["round"] for record in rounds(folder)] == [0, 1, 2, 3]
    assert folder.read("run.json")["best_round"] == 3


def test_no_sentence_travels(families):
    """Every string in every message is a site's name, a direction, a reason or a hash."""
    allowed = {*SITES, "de-fr", "nl-es", "pl-sv", "cs-de", "empty", "too-short", "too-long", "ratio", "duplicate"}
    allowed |= {"components", "fedlingua", "off"}  # the rule and the key of the split; whether text has to be de-identified
    for message in [*families[1].sent, *families[1].received]:
        for name, record in message.content.config_records.items():
            hashes = {"encoder", "decoder", "shared"} if name == protocol.STATE else {"fingerprint", "code", "run"}
            for key, value in record.items():
                for item in value if isinstance(value, list) else [value]:
                    assert not isinstance(item, str) or item in allowed or key in hashes, (key, item)


def test_training_lowers_the_dev_loss(config, tmp_path):
    config = {**config, "method": "adapter-fed", "rounds": 3, "learning-rate": 0.01}
    losses = [record["dev_loss"] for record in rounds(run(config, tmp_path / "fed")[0])]
    assert losses[-1] < losses[0]


def test_local_only_sends_no_tensors_and_trains_all_the_same(config, tmp_path):
    folder, grid = run({**config, "method": "adapter-local"}, tmp_path / "local")
    assert all(not message.content.array_records.get(protocol.ARRAYS) for message in [*grid.sent, *grid.received])
    assert folder.read("scores.json")["exchanged_parameters"] == 0
    assert set(folder.read("run.json")["best_round"]) == set(SITES)
    adapters = [load_file(folder.directory / "sites" / site / "adapter" / "adapter.safetensors") for site in SITES]
    name = next(name for name in adapters[0] if name.endswith("down.weight"))
    assert len({adapter[name].tobytes() for adapter in adapters}) == 4


def test_base_scores_the_published_backbone(config, tmp_path):
    folder, grid = run({**config, "method": "base"}, tmp_path / "base")
    assert not any(message.metadata.message_type == protocol.TRAIN for message in grid.sent)
    for entry in folder.read("scores.json")["sites"].values():
        assert entry["bleu"] == entry["base_bleu"]


def test_the_full_model_travels_in_model_fed(config, tmp_path):
    folder, _ = run({**config, "method": "model-fed", "rounds": 1}, tmp_path / "model")
    run_json = folder.read("run.json")
    assert run_json["exchanged_parameters"] == run_json["backbone"]["parameters"]
    assert set(checkpoint_bytes(folder)) == {"encoder.all.safetensors", "decoder.all.safetensors", "shared.all.safetensors"}


def test_fed_avg_differs_from_fed_mean(config, tmp_path):
    one = {**config, "method": "adapter-fed", "rounds": 1, "batch-size": 2}
    mean, _ = run(one, tmp_path / "mean")
    average, _ = run({**one, "aggregation": "fed-avg"}, tmp_path / "average")
    by_loss, _ = run({**one, "aggregation": "by-loss"}, tmp_path / "by-loss")
    assert len({tuple(checkpoint_bytes(folder).values()) for folder in (mean, average, by_loss)}) == 3


def test_a_run_below_its_quorum_does_not_wait_for_the_rest(config, tmp_path):
    def tamper(request: Message, reply: Message) -> Message | None:
        if request.metadata.message_type != protocol.TRAIN:
            return reply
        site = request.content.config_records[protocol.TASK]["site"]
        return None if site == "bank" else Message(Error(1, "the disk is full"), reply_to=request)

    started = time.monotonic()
    with pytest.raises(RunError, match="the disk is full"):
        run({**config, "method": "adapter-fed", "deadline.phase-s": 600.0}, tmp_path / "dead", tamper=tamper)
    assert time.monotonic() - started < 60  # ten times below the deadline that the silent site would cost


def test_a_local_site_that_failed_once_goes_on_from_its_last_tensors(config, tmp_path):
    config = {**config, "method": "adapter-local", "quorum": 0.5, "rounds": 3}
    folder, _ = run(config, tmp_path / "local", tamper=failing("court", protocol.TRAIN, 2))
    assert [failure["site"] for record in rounds(folder) for failure in record["failures"]] == ["court"]
    assert "court" in folder.read("scores.json")["sites"]


def test_patience_ends_a_run_whose_dev_loss_does_not_fall(config, tmp_path):
    config = {**config, "method": "adapter-fed", "rounds": 9, "patience": 1, "learning-rate": 5.0}
    folder, _ = run(config, tmp_path / "patient")
    losses = [record["dev_loss"] for record in rounds(folder)[1:]]
    assert len(losses) < 9
    assert losses[-1] >= min(losses[:-1])


def test_a_gain_below_min_gain_does_not_count_as_better(config, tmp_path):
    config = {**config, "method": "adapter-fed", "rounds": 6, "patience": 2, "learning-rate": 0.01}
    patient, _ = run(config, tmp_path / "patient")
    strict, _ = run({**config, "min-gain": 0.9}, tmp_path / "strict")
    losses = [record["dev_loss"] for record in rounds(patient)[1:]]
    assert len(losses) == 6  # the loss falls all the way
    assert losses[2] > 0.1 * losses[0]
    assert len(rounds(strict)[1:]) == 3  # round 1 is the first, and two rounds without a fall by nine tenths follow


def test_the_guides_strategy_of_ones_own_plugs_in(config, tmp_path, monkeypatch):
    (tmp_path / "my_file.py").write_text(block("docs/guides/strategy.md", 'python title="my_file.py"'))
    monkeypatch.syspath_prepend(tmp_path)
    config = {**config, "method": "adapter-fed", "rounds": 1}
    mine, grid = run({**config, "strategy": "my_file:FedMedian"}, tmp_path / "mine")
    chosen = build_trainable(settings_from(config)).tensor_set
    updates = [
        unpack(r.content.array_records[protocol.ARRAYS], chosen)
        for r in grid.received
        if r.metadata.message_type == protocol.TRAIN
    ]
    kept = load_file(mine.directory / "checkpoints" / "0001" / "encoder.all.safetensors")
    name = "model.encoder.layers.0.adapters.self_attn.down.weight"
    np.testing.assert_array_equal(kept[name], np.median([update[name] for update in updates], axis=0).astype(np.float32))


REMEMBERING = '''
from dataclasses import replace

import numpy as np

from strategies.methods.fed_mean import FedMean

SEEN = []


class Remembering(FedMean):
    """Counts rounds in its memory, which it needs for what a site receives."""

    def init(self, tensors):
        return replace(super().init(tensors), memory={"rounds": np.zeros(1, np.float32)})

    def model_for(self, state, site):
        SEEN.append((state.round, int(state.memory["rounds"][0])))
        return super().model_for(state, site)

    def aggregate(self, state, updates):
        return replace(super().aggregate(state, updates), memory={"rounds": state.memory["rounds"] + 1})


class Odd(FedMean):
    """Begins with what no checkpoint can hold."""

    def init(self, tensors):
        return replace(super().init(tensors), values={"seen": {1, 2}})


class Skipping(FedMean):
    """Asks one site fewer than there are."""

    def configure_train(self, server_round, arrays, config, grid):
        return list(super().configure_train(server_round, arrays, config, grid))[1:]
'''


def test_what_a_strategy_stores_is_there_at_the_end_too(config, tmp_path, monkeypatch):
    (tmp_path / "remembering.py").write_text(REMEMBERING)
    monkeypatch.syspath_prepend(tmp_path)
    module = __import__("remembering")
    run({**config, "method": "adapter-fed", "strategy": "remembering:Remembering", "best-by": "last"}, tmp_path / "run")
    assert module.SEEN[-1] == (2, 2)


def test_the_state_that_a_strategy_begins_with_is_checked(config, tmp_path, monkeypatch):
    (tmp_path / "odd.py").write_text(REMEMBERING)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RunError, match=r"Odd\.init gave values that JSON cannot hold \(Object of type set"):
        run({**config, "method": "adapter-fed", "strategy": "odd:Odd"}, tmp_path / "run")


def test_a_site_that_a_strategy_did_not_ask_is_named(config, tmp_path, monkeypatch):
    (tmp_path / "skipping.py").write_text(REMEMBERING)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        RunError, match=r"3 of 4 sites answered well, quorum = 1 needs 4; missing: \w+: the strategy did not ask it"
    ):
        run({**config, "method": "adapter-fed", "strategy": "skipping:Skipping"}, tmp_path / "run")


@pytest.mark.parametrize(
    ("strategy", "message"),
    [("no_such_file:FedMean", "cannot import 'no_such_file'"), ("strategies.methods.fed_mean:FedMen", "did you mean 'FedMean'")],
)
def test_a_strategy_that_is_not_there_is_refused(config, strategy, message):
    with pytest.raises(ConfigError, match=message):
        find_strategy(settings_from({**config, "strategy": strategy}))


def test_a_direction_that_the_backbone_lacks_is_refused_by_name(config, tmp_path):
    text = tmp_path / "te-de.tsv"
    text.write_text("ఒకటి రెండు\teins zwei\n" * 3)
    (tmp_path / "odd.toml").write_text('[[site]]\nname = "odd"\ndirection = "te-de"\ntsv = "te-de.tsv"\n')
    config = {**config, "federation": str(tmp_path / "odd.toml"), "data-dir": str(tmp_path)}
    with pytest.raises(BackboneError, match="direction te-de: the backbone has no language 'te'"):
        run(config, tmp_path / "run", num_nodes=1)


def test_a_target_that_cannot_be_scored_here_is_refused_before_anything_is_loaded(config, tmp_path, monkeypatch):
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None)
    (tmp_path / "ja.toml").write_text('[[site]]\nname = "a"\ndirection = "en-ja"\ntsv = "en-ja.tsv"\n')
    config = {**config, "federation": str(tmp_path / "ja.toml"), "data-dir": str(tmp_path), "backbone": "never-trained"}
    with pytest.raises(ConfigError, match=r"BLEU into 'ja' .*pip install 'fedlingua\[ja\]'"):
        run(config, tmp_path / "run", num_nodes=1)


def test_a_broken_corpus_ends_the_roll_call_with_file_and_line(config, tmp_path):
    (tmp_path / "de-fr.tsv").write_bytes(b"ein Satz\tune phrase\nkein Tab hier\n")
    (tmp_path / "broken.toml").write_text('[[site]]\nname = "a"\ndirection = "de-fr"\ntsv = "de-fr.tsv"\n')
    config = {**config, "federation": str(tmp_path / "broken.toml"), "data-dir": str(tmp_path)}
    with pytest.raises(RunError, match=r"missing: a \(node 100: CorpusError: .*de-fr.tsv, line 2: got 1 column"):
        run(config, tmp_path / "run", num_nodes=1)
