"""The benchmarks' own arithmetic, and the text that they make; they themselves run for minutes."""

import dataclasses
import gzip
import importlib
import random
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from fedlingua.backbones.load import Backbone
from fedlingua.corpora.sites import read_federation
from fedlingua.corpora.split import SPLITS
from fedlingua.corpora.texts import read_sites
from fedlingua.desk.check_settings import check_corpora
from fedlingua.training.batches import pad
from fedlingua.training.loop import train_locally
from fedlingua.training.translation import PairBatch, PairExample

ROOT = Path(__file__).parents[1]


def benchmark(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module(name)


@pytest.mark.parametrize("name", sorted(file.stem for file in (ROOT / "benchmarks").glob("[a-z]*.py")))
def test_a_benchmark_finds_what_it_imports(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert benchmark(name, monkeypatch).__doc__


@pytest.fixture
def paper_round(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return benchmark("paper_round", monkeypatch)


@pytest.fixture
def paired(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return benchmark("paired", monkeypatch)


def test_the_papers_transfer_times_come_out(paper_round: ModuleType) -> None:
    """§2.4: 2.44 GB / 1000 Mbit/s = 19.5 s, 234 s for 12 sites, 0.26 s for adapters, 98.7 % saved."""
    figures = paper_round.papers_figures()
    assert figures["model_seconds_a_site"] == pytest.approx(19.5, abs=0.1)
    assert figures["model_seconds_all_sites"] == pytest.approx(234, abs=1)
    assert figures["adapter_seconds_a_site"] == pytest.approx(0.26, abs=0.005)
    assert figures["saved_share"] == pytest.approx(0.987, abs=0.0005)
    assert paper_round.transfer_seconds(125_000_000) == 1.0


@pytest.mark.parametrize(("name", "sites"), [("ted2020_m2en", 8), ("europarl_m2m", 12)])
def test_the_round_has_the_papers_sites_with_text_where_prepare_leaves_it(
    paper_round: ModuleType, tmp_path: Path, name: str, sites: int
) -> None:
    paper = read_federation(ROOT / f"experiments/federations/{name}.toml", tmp_path)
    federation = read_federation(paper_round.write_federation(name, tmp_path, 16), tmp_path)
    check_corpora(paper.sites)  # the same places
    assert [(site.name, site.direction, site.corpus) for site in federation.sites] == [
        (site.name, site.direction, site.corpus) for site in paper.sites
    ]
    assert (len(federation.sites), federation.families) == (sites, paper.families)
    for text in read_sites(federation, frozenset()).values():
        assert [len(text.splits[split]) for split in SPLITS] == [16, 2, 2]


def test_ways_take_turns_and_the_first_turn_is_not_counted(paired: ModuleType) -> None:
    done: list[str] = []
    times = paired.turn_about({"a": lambda: done.append("a"), "b": lambda: done.append("b")}, 2)
    assert "".join(done) == "ababab"
    assert {way: len(taken) for way, taken in times.items()} == {"a": 2, "b": 2}


def test_medians_and_ratios_by_hand(paired: ModuleType) -> None:
    times = {"slow": [6.0, 2.0, 4.0], "fast": [3.0, 2.0, 1.0]}
    assert paired.figures(times) == {
        "repeats": 3,
        "slow_s": {"median": 4.0, "quartiles": [2.0, 6.0], "least": 2.0},
        "fast_s": {"median": 2.0, "quartiles": [1.0, 3.0], "least": 1.0},
    }
    # The turns' pairs: 2, 1, 4.
    assert paired.ratio(times["slow"], times["fast"]) == {
        "of_medians": 2.0,
        "of_least": 2.0,
        "of_pairs_quartiles": [1.0, 2.0, 4.0],
    }


def test_a_kept_figure_is_its_benchmarks_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kept = benchmark("kept", monkeypatch)
    for name, figure in (("tmx", 1), ("readers", 2), ("tmx", 3)):
        kept.write(tmp_path / f"kept.jsonl:{name}", {"figure": figure})
    assert kept.read(tmp_path / "kept.jsonl") == {"readers": {"figure": 2}, "tmx": {"figure": 3}}
    kept.write(tmp_path / "alone.json", {"figure": 4})
    assert (tmp_path / "alone.json").read_text() == '{\n  "figure": 4\n}\n'


def conversation(port: int, said: list[bytes], heard: list[int]) -> None:
    """Say all that is `said` and read as many bytes as are to be `heard`, each after the other."""
    with socket.create_connection(("127.0.0.1", port)) as near:
        for words, size in zip(said, heard, strict=True):
            near.sendall(words)
            left = size
            while left:
                left -= len(near.recv(left))


def test_a_forwarder_passes_on_every_byte_and_counts_each_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two connections at once to a server that answers each word with thrice as many bytes."""
    forwarder = benchmark("forwarder", monkeypatch)
    got: list[bytes] = []

    def answer(far: socket.socket) -> None:
        with far:
            while words := far.recv(1 << 20):
                got.append(words)
                far.sendall(3 * words)

    def serve(listener: socket.socket) -> None:
        for _ in range(2):
            threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        with forwarder.Forwarder(listener.getsockname()[1]) as between:
            assert between.moved == {"up": 0, "down": 0}
            talks = [
                threading.Thread(target=conversation, args=(between.port, [letter * 200_000, letter], [600_000, 3]))
                for letter in (b"a", b"b")
            ]
            for talk in talks:
                talk.start()
            for talk in talks:
                talk.join(timeout=20)
            assert sorted(b"".join(got)) == sorted(200_001 * b"ab")
            assert between.moved == {"up": 2 * 200_001, "down": 6 * 200_001}


def test_what_a_forwarder_has_counted_stays_when_a_connection_ends_and_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    forwarder = benchmark("forwarder", monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with forwarder.Forwarder(port) as between:
        with socket.create_connection(("127.0.0.1", between.port)) as near:
            assert near.recv(1) == b""  # nobody is there, and that is what one gets to know
        with socket.create_server(("127.0.0.1", port)) as listener:
            with socket.create_connection(("127.0.0.1", between.port)) as near:
                far, _ = listener.accept()
                with far:
                    near.sendall(b"four")
                    near.shutdown(socket.SHUT_WR)
                    assert b"".join(iter(lambda: far.recv(8), b"")) == b"four"  # and the end of it comes through, too
            ends = time.monotonic() + 60
            while between.moved["up"] != 4 and time.monotonic() < ends:
                time.sleep(0.01)
        assert between.moved == {"up": 4, "down": 0}


def test_the_ratio_is_of_what_passed_to_what_was_counted_with_what_passes_anyhow_and_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    transport = benchmark("transport", monkeypatch)
    counted = {"a": {"up": 1000, "down": 2000}, "b": {"up": 1000, "down": 2000}}
    passed = {"a": {"up": 1010, "down": 2300}, "b": {"up": 1030, "down": 2300}}
    wire = transport.Wire({"up": 1.0, "down": 2.0}, 200)
    up, down = (transport.figures(way, counted, passed, wire, 20.0) for way in ("up", "down"))
    assert (up["counted_bytes"], up["wire_bytes"], up["ratio"], up["ratio_of_messages"]) == (2000, 2040, 1.02, 1.01)
    assert (down["ratio"], down["ratio_of_messages"]) == (1.15, 1.04)
    assert up["ratio_by_site"] == {"a": 1.01, "b": 1.03}


# --- Training and decoding -----------------------------------------------------------------------------------------------------------


def test_text_is_tatoebas_or_the_phrasebooks_in_no_order_of_length(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text_pairs = benchmark("text_pairs", monkeypatch).text_pairs
    direction, pairs = text_pairs(None, 7)
    assert (str(direction), len(pairs)) == ("de-fr", 7)
    (tmp_path / "tatoeba").mkdir()
    with gzip.open(tmp_path / "tatoeba" / "de-en.tsv.gz", "wt", encoding="utf-8") as file:
        file.write("".join(f"{'ja ' * n}\u2028x\t{n}\n" for n in range(50)))
    direction, pairs = text_pairs(tmp_path, 40)
    lengths = [len(pair.source) for pair in pairs]
    assert (str(direction), len(pairs)) == ("de-en", 40)
    assert all(pair.source.endswith("\u2028x") and pair.target.isdigit() for pair in pairs)
    assert lengths != sorted(lengths)
    assert text_pairs(tmp_path, 99)[1] != []


def test_the_trainer_is_given_the_batches_that_a_site_trains_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = benchmark("adapter_training", monkeypatch)
    tiny = module.SIZES["tiny"]
    size = dataclasses.replace(tiny, model=dataclasses.replace(tiny.model, d_model=32, ffn_dim=64), adapter_dim=4)
    site = module.site_of(size, None, 20, tmp_path / "tokenizer")
    model = site.model()
    plain = module.Settings(batch_size=8, learning_rate=1e-3, whole_steps=False)
    for how in (plain, dataclasses.replace(plain, tokens_per_batch=60)):
        seen: list[PairBatch] = []
        names = module.tensor_set(model, "adapters").names
        train_locally(
            model,
            names,
            [site.examples],
            site.codec,
            how,
            module.SEED,
            before_step=lambda step, seen=seen: seen.extend(pad(batch, site.codec) for batch in step),
        )
        given = module.batches_of(site, how)
        assert len(given) == len(seen) > 2
        for one, other in zip(given, seen, strict=True):
            assert all(bool((one[name] == value).all()) for name, value in other.tensors().items())


def test_a_site_and_the_trainer_come_to_the_same_tensors_by_the_same_batches(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = benchmark("adapter_training", monkeypatch)
    tiny = module.SIZES["tiny"]
    size = dataclasses.replace(tiny, model=dataclasses.replace(tiny.model, d_model=32, ffn_dim=64), adapter_dim=4)
    site = module.site_of(size, None, 20, tmp_path / "tokenizer")
    found = module.identical_batches(site, site.model(), 2, tmp_path / "trainer")
    assert found["steps"] == {"ours": 2, "ours_cut": 2, "trainer": 2}
    assert module.too_slow({"a": found}, {"a": {"ours": 0.0, "ours_cut": 1e9}}) == [
        f"a, ours_cut: the Trainer takes {found['trainer_over_ours_cut']['of_medians']} times as long; wanted 1000000000.0"
    ]
    of_length = module.own_batching(site, site.model(), 2, tmp_path / "trainer")
    assert of_length["steps"]["ours"] == of_length["steps"]["trainer"] == 2
    assert found["loss"]["ours"] == pytest.approx(found["loss"]["trainer"], abs=2e-5)
    assert found["loss"]["ours_cut"] == pytest.approx(found["loss"]["trainer"], abs=2e-5)
    untrained = module.Ours(site, site.model(), module.Settings(local_epochs=0))
    untrained()
    assert untrained.loss() > found["loss"]["ours"] + 0.002


def test_a_dry_run_on_the_students_step_gives_every_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    module = benchmark("student_step", monkeypatch)
    result = module.measured(module.TINY, 2)
    timed = {key: set(figures) - {"repeats"} for key, figures in result.items() if key[-3:] in ("_12", "_40")}
    three = {"student_s", "attention_s", "looped_s", "student_over_attention", "student_over_looped"}
    two = {"student_s", "attention_s", "student_over_attention"}
    assert timed == {
        f"{what}_{length}": ways
        for what, ways in (("unit", three), ("training", three), ("decoding", two))
        for length in (12, 40)
    }
    assert module.short_of({**result, **{key: {"student_over_attention": {"interval": [0.9, 1.1]}} for key in timed}}) == []
    slow = {key: {"student_over_attention": {"interval": [1.1, 1.2]}} for key in timed}
    assert [problem.split()[0] for problem in module.short_of({**result, **slow})] == [
        "unit_12",
        "unit_40",
        "training_12",
        "training_40",
    ]


def test_a_loop_over_time_that_forgets_otherwise_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    module = benchmark("student_step", monkeypatch)
    made, pairs = module.models(module.TINY), module.pairs_of(9, 100)
    codec = SimpleNamespace(pad_id=100, start_id=100)
    assert module.difference(made["student"], made["looped"], pairs, codec) < 1e-6
    with torch.no_grad():
        made["looped"].model.decoder.layers[0].self_attn.forget.bias += 0.1
    assert module.difference(made["student"], made["looped"], pairs, codec) > 1e-4


def test_an_interval_of_the_median_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of six, the least and the most: the median is outside in 2 / 64. Of nine, the second and the eighth: 20 / 512."""
    interval = benchmark("student_step", monkeypatch).interval
    assert interval([3.0, 1.0, 2.0, 6.0, 5.0, 4.0], [1.0] * 6) == [1.0, 6.0]
    assert interval([9.0, 1.0, 2.0, 6.0, 5.0, 4.0, 3.0, 8.0, 7.0], [1.0] * 9) == [2.0, 8.0]
    assert interval([2.0, 1.0], [1.0, 2.0]) == [0.5, 2.0]


def test_what_the_head_adds_is_over_the_rest_and_its_share_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    added = benchmark("head_memory", monkeypatch).added
    ways = {"without_head": {"peak_mib": 1000}, "whole": {"peak_mib": 1800}, "in_chunks": {"peak_mib": 1200}}
    assert added(ways) == {"whole_adds_mib": 800, "in_chunks_adds_mib": 200, "share": 0.25}


def test_both_ways_of_decoding_translate_every_sentence_in_its_place(
    monkeypatch: pytest.MonkeyPatch, backbone: Backbone, phrases: dict[str, list[str]]
) -> None:
    module = benchmark("decoding", monkeypatch)
    monkeypatch.setattr(module, "MAX_NEW_TOKENS", 6)
    monkeypatch.setattr(module, "BATCH", 4)
    sentences = random.Random(2).sample(phrases["de"], 9)
    found = module.measured(backbone, sentences, module.Direction("de", "fr"), 2, 2)
    assert found["other_text"] == 0
    assert found["sentences_a_second"]["ours"] > 0


def test_a_dry_run_on_a_gpus_benchmark_gives_every_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    module = benchmark("gpu", monkeypatch)
    shape = dataclasses.replace(module.DRY.shape, layers=1)
    result = module.measured(dataclasses.replace(module.DRY, vocabularies={"mbart-50": 120}, shape=shape), "cpu", 2)
    assert [key for key in result if "," in key] == [f"mbart-50, {what}" for what in ("adapters", "lora", "decoding")]
    assert result["mbart-50, decoding"]["other_text"] == 0
    assert set(result["mbart-50, adapters"]["pairs_a_second"]) == {"ours", "trainer"}
    assert result["sites"]["sites"] == 8
    seen = {"mbart-50, adapters": {"mfu": {"ours": 0.4}, "trainer_over_ours": {"of_medians": 1.9}}}
    short = module.short_of({**seen, "sites": {"sites_over_steps": {"of_medians": 1.3}}})
    assert short == ["trainer_over_ours is 1.9; wanted at least 2.0", "sites_over_steps is 1.3; wanted at most 1.2"]


def test_a_frozen_weight_takes_four_flops_a_token_and_one_that_trains_six(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand, for one pair of 5 and 7 tokens; cross-attention's keys and values are of the source."""
    module = benchmark("gpu", monkeypatch)
    size = dataclasses.replace(module.DRY, shape=dataclasses.replace(module.DRY.shape, layers=1))
    model = module.model_of(size, "nllb-600m", "adapters", "cpu")
    names = module.tensor_set(model, "adapters").names
    d, ffn, adapter, vocabulary = size.shape.d_model, size.shape.ffn_dim, size.adapter_dim, size.vocabularies["nllb-600m"]
    encoder = 4 * (4 * d * d + 2 * d * ffn) + 6 * 2 * (2 * d * adapter)
    of_source, of_target = 4 * 2 * d * d, 4 * (6 * d * d + 2 * d * ffn) + 6 * 3 * (2 * d * adapter)
    attention = 12 * d * (5 * 5 + 7 * 7 + 5 * 7)
    wanted = 5 * (encoder + of_source) + 7 * (of_target + 4 * vocabulary * d) + attention
    assert module.flops(model, names, [PairExample([3] * 5, [3] * 7)]) == wanted


# --- Serving -------------------------------------------------------------------------------------------------------------------------


def test_growth_is_from_the_second_third_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    growth = benchmark("serving", monkeypatch).growth
    found = growth([100.0, 200.0, 300.0, 301.0, 302.0, 303.0, 304.0, 305.0, 306.0])
    assert found == {"memory_mib": {"second_third": 302.0, "last_third": 305.0, "growth": 3.0}}
    assert growth([5.0])["memory_mib"]["growth"] == 0.0


def test_what_clients_heard_is_counted_by_what_was_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    serving = benchmark("serving", monkeypatch)
    heard = serving.Heard(seconds=[0.1] * 99 + [2.0], bad=4, other_text=1)
    heard.statuses.update({200: 90, 503: 10})
    found = serving.figures(heard, 30.0)
    assert (found["sentences"], found["sentences_a_second"], found["statuses"]) == (90, 3.0, {"200": 90, "503": 10})
    assert (found["request_s"]["median"], found["other_text"], found["bad_requests"]) == (0.1, 1, 4)


# --- Coding --------------------------------------------------------------------------------------------------------------------------


def test_what_is_coded_is_what_has_changed_end_to_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    coding = benchmark("coding", monkeypatch)
    before = {"a": np.ones((2, 3), np.float32), "b": np.zeros(2, np.float32)}
    save_file(before, tmp_path / "before.safetensors")
    save_file({name: tensor + index for index, (name, tensor) in enumerate(before.items(), 1)}, tmp_path / "after.safetensors")
    change, shapes = coding.update(tmp_path / "before.safetensors", tmp_path / "after.safetensors")
    assert (change.tolist(), shapes) == ([1] * 6 + [2] * 2, [(2, 3), (2,)])
    rows = coding.sizes(change, shapes)
    assert list(rows) == list(coding.CODES)
    assert (rows["lossless"]["cosine"], rows["sign"]["cosine"]) == (1.0, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("run", ["adapter-families", "adapter-families, float32"])
def test_what_a_deployed_run_counts_is_what_passes_its_sockets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, run: str) -> None:
    """The benchmark itself ends with an error where they differ by more than 2 %."""
    transport = benchmark("transport", monkeypatch)
    monkeypatch.setattr("sys.argv", ["transport", "--run", run, "--rounds", "2", "--to", str(tmp_path / "figures.json")])
    transport.main()


@pytest.mark.slow
def test_the_clock_moves_as_far_as_the_sites_that_are_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asynchronous = benchmark("asynchronous", monkeypatch)
    waiting = asynchronous.played(1, 0, 2, -0.5, tmp_path / "waiting")
    assert (waiting["time"], waiting["updates"], waiting["slow_updates"]) == (20.0, 8, 2)
    buffered = asynchronous.played(1, 2, 4, -0.5, tmp_path / "buffered")
    assert (buffered["time"], buffered["updates"], buffered["slow_updates"]) == (4.0, 12, 0)


def test_a_federation_of_many_sites_and_its_figures_by_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    many = benchmark("many_sites", monkeypatch)
    federation = read_federation(many.federation(120, tmp_path), Path())
    assert len(set(federation.site_names)) == 120
    assert len({(str(site.direction), str(site.corpus)) for site in federation.sites}) == 120
    phase = {"event": "phase", "sites": 4}
    events = [
        {**phase, "phase": "train", "time": 10.0},
        {"event": "reply", "time": 12.0},
        {"event": "round", "time": 18.0},
        {**phase, "phase": "train", "time": 20.0},
        {"event": "round", "time": 24.0},
    ]
    assert many.of_a_site(events, [{"pause_s": {"train": 0.4}}, {"pause_s": {"train": 0.8}}]) == {
        "train": 1.0,
        "longest_pause": 0.2,
    }
    runs = [
        {"sites": 9, "drawn": 9, "server_mib": 500.0, "seconds_a_site": {"train": 0.2}},
        {"sites": 1000, "drawn": 32, "server_mib": 700.0, "seconds_a_site": {"train": 0.25}},
    ]
    assert many.ratios(runs)[1] == {"sites": 1000, "drawn": 32, "train_a_site": 1.25, "memory_over_wanted": 1.0}


def test_what_grows_over_many_rounds_by_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    many = benchmark("many_rounds", monkeypatch)
    looks = [
        {"round": 200, "server_mib": 500.0, "all_mib": 2000.0, "open_files": 320, "files": 30},
        {"round": 1998, "server_mib": 550.0, "all_mib": 2010.0, "open_files": 322, "files": 29},
    ]
    assert many.grown(looks) == {"server_mib": 1.1, "all_mib": 1.005, "open_files": 2, "files": -1}
    watcher = many.Looks(tmp_path, tmp_path / "run", 20)
    assert watcher.number() == 0
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "rounds.jsonl").write_text("{}\n" * 4)
    assert watcher.number() == 3
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    held = many.look(tmp_path, tmp_path / "run")
    assert held["files"] == 1
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        more = many.look(tmp_path, tmp_path / "run")
        process.communicate(b"\n")
    assert more["open_files"] >= held["open_files"] + 3
    assert more["all_mib"] > held["all_mib"]
