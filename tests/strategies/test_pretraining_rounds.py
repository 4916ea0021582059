"""Whole federations that pre-train an encoder, in one process: when and what is measured, what a site counts, and what is scored."""

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedlingua.backbones.parts import PARTS
from fedlingua.common.errors import ConfigError
from fedlingua.corpora.simulated import all_texts
from fedlingua.exchange import protocol
from fedlingua.exchange.records import opened, unpack
from fedlingua.exchange.trainable import build_trainable
from fedlingua.settings.checks import settings_from
from fedlingua.training.masked_language import TextExample
from fedlingua.training.site_examples import EXAMPLE_MAKERS
from tests.federations import SITES
from tests.in_process import rounds, run


@pytest.fixture
def config(four_texts):
    return {**four_texts, "method": "adapter-fed"}


def evaluations(grid) -> list[tuple[str, int]]:
    own = [m.content[protocol.TASK] for m in grid.sent if m.metadata.message_type == protocol.EVALUATE]
    asked = [m.content[protocol.TASK] for m in grid.sent if m.metadata.message_type == protocol.TRAIN]
    besides = [(task["site"], task["measure"]) for task in asked if "measure" in task]
    return sorted([(task["site"], task["round"]) for task in own] + besides)


def measured(grid) -> dict[tuple[str, int], dict[str, float]]:
    """(site, round) -> the sums of its dev loss, where every round is measured."""
    later = [r.content for r in grid.received if protocol.MEASURED in r.content]
    besides = {(r[protocol.TASK]["site"], r[protocol.TASK]["round"] - 1): dict(r[protocol.MEASURED]) for r in later}
    return besides | told(grid, protocol.EVALUATE)


def told(grid, phase: str) -> dict[tuple[str, int], dict[str, float]]:
    """(site, round) -> the sums that it answered."""
    replies = [r.content for r in grid.received if r.metadata.message_type == phase]
    return {(r[protocol.TASK]["site"], r[protocol.TASK]["round"]): dict(r[protocol.METRICS]) for r in replies}


@pytest.mark.parametrize(("every", "total", "measured"), [(2, 5, [0, 2, 4, 5]), (3, 3, [0, 3]), (9, 2, [0, 2])])
def test_only_every_so_many_rounds_are_measured_and_always_the_last(config, tmp_path, every, total, measured):
    folder, grid = run({**config, "rounds": total, "evaluate-every": every}, tmp_path / "run")
    assert evaluations(grid) == sorted((site, number) for site in SITES for number in measured)
    losses = {record["round"]: record["dev_loss"] for record in rounds(folder)}
    assert list(losses) == list(range(total + 1))
    assert [number for number, loss in losses.items() if loss is not None] == measured
    assert folder.read("run.json")["best_round"] == min(measured[1:], key=lambda number: losses[number])


def test_patience_ends_no_run_before_a_round_is_measured(config, tmp_path):
    """Nothing is learned: without the patience's wait for round 4 nothing but the base would be delivered, from round 3."""
    still = {**config, "learning-rate": 1e-30, "rounds": 12, "evaluate-every": 4, "patience": 3}
    folder, _ = run(still, tmp_path / "run")
    assert [record["round"] for record in rounds(folder)] == list(range(9))
    assert folder.read("run.json")["best_round"] == 4


def test_a_share_of_the_dev_text_is_measured_and_is_the_same_in_every_round(config, tmp_path):
    config = {**config, "learning-rate": 1e-30, "max-tokens": 16}
    whole, part = (measured(run({**config, "evaluate-share": s}, tmp_path / str(s))[1]) for s in (1.0, 0.5))
    for site in SITES:
        assert len({part[site, number]["num_tokens"] for number in (0, 1, 2)}) == 1
        # Adapters that start anywhere but at the base are not there in round 0.
        assert part[site, 1]["nll_sum"] == pytest.approx(part[site, 2]["nll_sum"], rel=1e-5)
        assert 0.2 < part[site, 1]["num_tokens"] / whole[site, 1]["num_tokens"] < 0.8
        assert part[site, 1]["num_examples"] == whole[site, 1]["num_examples"]  # sentences of the text, not of the share


def test_under_sampling_fed_avg_weighs_a_site_by_its_whole_text(config, tmp_path):
    """All draw 6 sequences, so by what they trained on they would count the same."""
    folder, grid = run({**config, "rounds": 1, "aggregation": "fed-avg", "sample.least": 6}, tmp_path / "run")
    assert {sums["num_examples"] for sums in told(grid, protocol.TRAIN).values()} == {6}
    sizes = {site: entry["train"] for site, entry in folder.read("sites.json").items()}
    assert len(set(sizes.values())) > 1
    chosen = build_trainable(settings_from(config)).tensor_set
    updates = {
        reply.content[protocol.TASK]["site"]: unpack(reply.content.array_records[protocol.ARRAYS], chosen)
        for reply in grid.received
        if reply.metadata.message_type == protocol.TRAIN
    }
    kept = load_file(folder.directory / "checkpoints" / "0001" / "encoder.all.safetensors")
    assert kept
    for name, array in kept.items():
        wanted = sum(sizes[site] / sum(sizes.values()) * updates[site][name] for site in SITES)
        np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=1e-7)


@pytest.fixture
def scored(config, tmp_path):
    return run(config, tmp_path / "scored")[0]


SITE_KEYS = {
    *("direction", "perplexity", "accuracy", "perplexity_of_parts", "perplexity_of_parts_sd", "sentences", "masked", "masks"),
    *("base_perplexity", "base_accuracy"),
}
AVERAGES = {
    *("macro_perplexity", "micro_perplexity", "pooled_perplexity", "base_macro_perplexity"),
    *("macro_accuracy", "base_macro_accuracy"),
}


def test_scores_are_perplexity_and_accuracy_of_every_site_and_of_all(scored):
    scores = scored.read("scores.json")
    assert set(scores) == AVERAGES | {
        *("method", "seed", "split", "sites", "uplink_bytes_per_round", "downlink_bytes_per_round", "total_bytes"),
        "exchanged_parameters",
    }
    assert list(scores["sites"]) == SITES
    for site, entry in scores["sites"].items():
        assert set(entry) == SITE_KEYS
        assert entry["sentences"] == scored.read("sites.json")[site]["test"]
        assert 1 < entry["perplexity"] < entry["base_perplexity"] * 1.01
        assert 0 <= entry["accuracy"] <= 1
    entries = scores["sites"].values()
    assert scores["macro_perplexity"] == pytest.approx(sum(e["perplexity"] for e in entries) / 4)
    masked = sum(e["masked"] for e in entries)
    assert scores["micro_perplexity"] == pytest.approx(sum(e["perplexity"] * e["masked"] for e in entries) / masked)
    pooled = math.exp(sum(math.log(e["perplexity"]) * e["masked"] for e in entries) / masked)
    assert scores["pooled_perplexity"] == pytest.approx(pooled)
    assert (scored.directory / "sites" / "court" / "adapter" / "adapter.safetensors").is_file()


def test_every_method_and_seed_is_measured_on_the_same_masks(config, scored, tmp_path):
    other = run({**config, "method": "adapter-local", "seed": 7, "rounds": 1}, tmp_path / "other")[0].read("scores.json")
    base = run({**config, "method": "base"}, tmp_path / "base")[0].read("scores.json")
    for site, entry in scored.read("scores.json")["sites"].items():
        assert entry["masks"] == other["sites"][site]["masks"] == base["sites"][site]["masks"]
        assert entry["base_perplexity"] == other["sites"][site]["base_perplexity"] == base["sites"][site]["perplexity"]
    assert base["macro_perplexity"] == base["base_macro_perplexity"]


def test_sites_of_a_family_pre_train_together_and_others_apart(config, tmp_path):
    """German and Dutch are one family; Polish and Czech another."""
    folder, grid = run({**config, "method": "adapter-families", "rounds": 1}, tmp_path / "run")
    clusters = {part: sorted(map(sorted, named.values())) for part, named in folder.read("clusters.json").items()}
    assert clusters == {"encoder": [["bank", "school"], ["court", "hospital"]]}
    chosen = build_trainable(settings_from(config)).tensor_set
    sent = {
        reply.content[protocol.TASK]["site"]: unpack(reply.content.array_records[protocol.ARRAYS], chosen)
        for reply in grid.received
        if reply.metadata.message_type == protocol.TRAIN
    }
    for name, members in folder.read("clusters.json")["encoder"].items():
        kept = load_file(folder.directory / "checkpoints" / "0001" / f"encoder.{name}.safetensors")
        assert kept
        for tensor, array in kept.items():
            wanted = sum(sent[site][tensor] for site in members) / len(members)
            np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=1e-7)
    assert set(folder.read("scores.json")["sites"]) == set(SITES)


@pytest.mark.parametrize("method", ["rand-send", "metasend-l"])
def test_what_is_selected_of_an_encoder_is_counted_and_the_rest_saved(config, tmp_path, method):
    folder, grid = run({**config, "method": method, "meta.batches": 2, "meta.batch-size": 2}, tmp_path / "run")
    scores, size = folder.read("scores.json"), folder.read("run.json")["exchanged_parameters"]
    updates = [reply for reply in grid.received if reply.metadata.message_type in (protocol.TRAIN, protocol.SEND)]
    shares = {}
    for reply in updates:
        arrays = opened(reply.content.array_records[protocol.ARRAYS])
        task = reply.content[protocol.TASK]
        shares[task["site"], task["round"]] = sum(len(arrays[part]) for part in PARTS if part in arrays) / size
    told = {(site, line["round"]): each["numbers_share"] for line in rounds(folder)[1:] for site, each in line["sites"].items()}
    assert told == pytest.approx(shares)
    assert 0 < scores["number_saving"] < 1
    assert scores["number_saving"] == pytest.approx(1 - sum(shares.values()) / len(shares))
    assert all(entry["perplexity"] < entry["base_perplexity"] * 1.01 for entry in scores["sites"].values())


def trained_on(folder) -> dict[str, int]:
    """What the pooled site told of its text."""
    about = folder.read("sites.json")["pooled"]
    return {split: about[split] for split in ("train", "dev", "test")}


def test_a_model_of_public_text_trains_on_public_sites_and_is_scored_at_all(config, tmp_path):
    whole = run({**config, "method": "centralized", "rounds": 1}, tmp_path / "all")[0]
    alone = run({**config, "rounds": 1}, tmp_path / "fed")[0].read("sites.json")
    public = ("court", "bank")
    text = Path(config["federation"]).read_text()
    for site in public:
        text = text.replace(f'name = "{site}"\n', f'name = "{site}"\npublic = true\n')
    (tmp_path / "public.toml").write_text(text)
    config = {**config, "federation": str(tmp_path / "public.toml"), "method": "centralized-public", "rounds": 1}
    folder, grid = run(config, tmp_path / "run")
    told = trained_on(folder)
    for split in ("train", "dev"):
        assert told[split] == sum(alone[site][split] for site in public) < trained_on(whole)[split]
    assert told["test"] == sum(alone[site]["test"] for site in SITES)
    assert {reply.content[protocol.TASK]["site"] for reply in grid.received if protocol.TASK in reply.content} == {"pooled"}
    scores, others = folder.read("scores.json"), whole.read("scores.json")
    assert list(scores["sites"]) == SITES
    assert {site: entry["masks"] for site, entry in scores["sites"].items()} == {
        site: entry["masks"] for site, entry in others["sites"].items()
    }


def test_a_model_of_public_text_is_refused_where_none_is_public(config, tmp_path):
    with pytest.raises(ConfigError, match="public"):
        run({**config, "method": "centralized-public", "rounds": 1}, tmp_path / "run")


def test_a_model_of_one_silo_trains_on_its_text_alone_and_is_scored_at_all(config, tmp_path):
    """The silo is named as its language is."""
    text = Path(config["federation"]).read_text().replace('name = "bank"', 'name = "cs"')
    (tmp_path / "silos.toml").write_text(text)
    config = {**config, "federation": str(tmp_path / "silos.toml")}
    alone = run({**config, "rounds": 1}, tmp_path / "fed")[0].read("sites.json")
    folder, _ = run({**config, "method": "silo-cs"}, tmp_path / "run")
    told = trained_on(folder)
    assert (told["train"], told["dev"]) == (alone["cs"]["train"], alone["cs"]["dev"])
    assert told["test"] == sum(about["test"] for about in alone.values())
    scores = folder.read("scores.json")
    assert list(scores["sites"]) == [*SITES[:-1], "cs"]
    assert scores["exchanged_parameters"] == 0
    assert scores["sites"]["cs"]["perplexity"] < scores["sites"]["cs"]["base_perplexity"]


@pytest.mark.parametrize(
    "draw", [{"rounds": 1}, {"rounds": 7, "sample.share": 0.15, "sample.replacement": False}], ids=["all", "passes"]
)
def test_a_pooled_row_sees_every_example_once_an_epoch(config, tmp_path, monkeypatch, draw):
    """By what training masks: every pooled sequence once, in one round of all or in seven of a seventh and a little more."""
    seen = []
    drawn = TextExample.drawn

    def noted(example, rng):
        seen.append(tuple(example.ids))
        return drawn(example, rng)

    monkeypatch.setattr(TextExample, "drawn", noted)
    pooled = {**config, "method": "centralized", "whole-steps": False, **draw}
    run(pooled, tmp_path / "run")
    settings = settings_from(pooled)
    codec = build_trainable(settings).backbone.codec
    texts = all_texts(settings.federation_path, settings.data_dir).values()
    held = [tuple(one.ids) for text in texts for one in EXAMPLE_MAKERS[settings.task].trained(text, "train", codec, settings)]
    assert len(held) > 50
    assert not Counter(held) - Counter(seen)  # each comes
    before_the_last = seen[: len(seen) - len(seen) // draw["rounds"]]
    assert not Counter(before_the_last) - Counter(held)  # and none again before; the last draw begins a second pass
    assert len(held) <= len(seen) < 1.2 * len(held)
