"""MetaSend as a whole: two phases a round, a threshold that learns, and what happens when a site does not play along."""

import json
import math
import time
from types import SimpleNamespace

import numpy as np
import pytest

from fedlingua.exchange import protocol
from fedlingua.exchange.records import opened
from fedlingua.layers import threshold_slope
from fedlingua.selection import learned_threshold
from strategies.methods import metasend
from tests.in_process import failing, rounds, run


@pytest.fixture
def config(four_sites):
    return {
        **four_sites,
        "method": "adapter-fed",
        "send.rule": "metasend-g",
        "rounds": 3,
        "meta.batches": 2,
        "meta.batch-size": 2,
        "meta.learning-rate": 0.01,
    }


@pytest.fixture
def plain(config, run_once):
    """The run that nothing is changed of."""
    return run_once({key: value for key, value in config.items() if key not in ("backbone", "federation", "data-dir")})


def thresholds(folder):
    return [line["threshold"] for line in rounds(folder)[1:]]


def notes(folder):
    return (folder.directory / "progress.jsonl").read_text()


def test_a_probe_answers_with_losses_alone_and_the_threshold_goes_out_alone(config, tmp_path):
    _, live = run({**config, "rounds": 1}, tmp_path / "run")
    probes = [reply for reply in live.received if reply.metadata.message_type == protocol.PROBE]
    sends = [message for message in live.sent if message.metadata.message_type == protocol.SEND]
    assert len(probes) == len(sends) == 4
    assert all(set(reply.content) == {protocol.TASK, protocol.METRICS} for reply in probes)
    assert len({message.content[protocol.THRESHOLD]["theta"] for message in sends}) == 1
    assert all(not message.content[protocol.ARRAYS] for message in sends)


def test_the_first_threshold_is_the_deviations_median_and_then_it_moves(config, plain, tmp_path):
    folder, _ = plain
    told = thresholds(folder)
    assert told[0]["theta"] == pytest.approx(told[0]["scale"], rel=1e-5)
    assert all(one["stepped"] for one in told)
    assert len({one["theta"] for one in told}) == 3
    frozen, _ = run({**config, "meta.frozen": True, "rounds": 2}, tmp_path / "frozen")
    assert thresholds(frozen)[0]["theta"] == told[0]["theta"]
    assert thresholds(frozen)[1]["theta"] != told[1]["theta"]
    assert not any("stepped" in one for one in thresholds(frozen))


def test_the_threshold_is_a_multiple_of_each_rounds_median_or_of_the_firsts(config, plain, tmp_path):
    def told(folder, site, number):
        lines = (folder.directory / "deviations.jsonl").read_text().splitlines()
        found = [one["deviations"] for one in map(json.loads, lines) if (one["site"], one["round"]) == (site, number)]
        return np.median([value for value in found[0] if value])

    first, _ = plain
    follows, _ = run({**config, "meta.scale": "round", "rounds": 2}, tmp_path / "follows")
    for number, one in enumerate(thresholds(follows), start=1):
        medians = [told(follows, site, number) for site in rounds(follows)[number]["sites"]]
        assert one["scale"] == pytest.approx(np.median(medians), rel=1e-4)
    assert len({one["scale"] for one in thresholds(first)}) == 1
    assert thresholds(first)[0] == thresholds(follows)[0]
    assert thresholds(first)[1]["theta"] != thresholds(follows)[1]["theta"]


ESTIMATORS = ["own", "loss"]


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("method", ["adapter-fed", "adapter-families"])
def test_every_estimator_learns_with_and_without_clusters(config, tmp_path, estimator, method):
    folder, live = run({**config, "method": method, "meta.estimator": estimator, "rounds": 2}, tmp_path / "run")
    told = thresholds(folder)
    assert told[-1]["stepped"]
    assert (told[0]["theta"] != told[0]["mu"]) == (estimator == "loss")  # the thresholds that are tried
    answers = [reply.content[protocol.META] for reply in live.received if protocol.META in reply.content]
    assert len(answers) == 8
    slope = ["slope", "slope_seconds"] if estimator != "loss" else []
    assert all(set(one) == {"nll_sum", "num_tokens", "batches_seconds", *slope} for one in answers)


@pytest.mark.parametrize(
    ("estimator", "phase"),
    [("own", protocol.PROBE), ("loss", protocol.SEND), ("own", protocol.EVALUATE), ("loss", protocol.EVALUATE)],
)
def test_a_site_that_fails_in_one_phase_leaves_the_others_their_threshold(config, tmp_path, estimator, phase):
    config = {**config, "meta.estimator": estimator, "quorum": 0.5, "rounds": 2}
    folder, _ = run(config, tmp_path / "run", tamper=failing("court", phase, 1))
    line = rounds(folder)[1]
    assert [failure["site"] for failure in line["failures"]] == ["court"]
    assert line["threshold"]["theta"] > 0
    assert ("for the threshold" in notes(folder)) == (phase == protocol.PROBE)
    assert len(rounds(folder)) == 3


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_round_tells_how_long_each_part_of_it_took(config, tmp_path, estimator):
    folder, _ = run({**config, "meta.estimator": estimator, "rounds": 1}, tmp_path / "run")
    line = rounds(folder)[1]
    sites = {"train", "select", "evaluate", "meta batches"} | ({"meta slope"} if estimator != "loss" else set())
    assert all(set(site["seconds"]) == sites and min(site["seconds"].values()) > 0 for site in line["sites"].values())
    assert set(line["server_s"]) == {"aggregate", "theta", "step"}
    assert min(line["server_s"].values()) > 0
    assert set(line["phase_s"]) == {"train", "send", "evaluate"}


def test_what_takes_longer_is_told_under_its_own_name(config, tmp_path, monkeypatch):
    """A thousand seconds by the clock in the pass over the batches and the step; the parts beside them stay short."""
    monotonic, passed = time.monotonic, [0.0]
    # Everybody's: the server takes no seconds that its own clock has not seen pass.
    monkeypatch.setattr(time, "monotonic", lambda: monotonic() + passed[0])

    def slow(module, name):
        real = getattr(module, name)

        def waits(*arguments):
            passed[0] += 1000.0
            return real(*arguments)

        monkeypatch.setattr(module, name, waits)

    slow(threshold_slope, "corpus_gradient")
    slow(learned_threshold.ThresholdModel, "step")
    folder, _ = run({**config, "rounds": 1, "method": "adapter-families"}, tmp_path / "run")
    line = rounds(folder)[1]
    assert line["server_s"]["step"] >= 1000
    assert line["server_s"]["aggregate"] < 1000
    for site in line["sites"].values():
        assert site["seconds"]["meta batches"] >= 1000
        assert site["seconds"]["meta slope"] < 1000


@pytest.mark.parametrize(("key", "phase"), [("batches_seconds", protocol.META), ("select_seconds", protocol.METRICS)])
def test_seconds_that_are_none_are_refused(config, tmp_path, key, phase):
    def tamper(request, reply):
        if request.content.get("task", {}).get("site") == "court" and key in reply.content.get(phase, {}):
            reply.content[phase][key] = -1.0
        return reply

    folder, _ = run({**config, "rounds": 1, "quorum": 0.5}, tmp_path / "run", tamper=tamper)
    (failure,) = rounds(folder)[1]["failures"][:1]
    assert (failure["site"], failure["kind"]) == ("court", "refused")
    assert "0 or more" in failure["reason"]


def test_a_slope_that_is_no_number_is_left_out_and_named(config, tmp_path):
    def tamper(request, reply):
        if protocol.META in reply.content and request.content["task"]["site"] == "court":
            reply.content[protocol.META]["slope"] = math.nan
        return reply

    folder, _ = run({**config, "rounds": 1}, tmp_path / "run", tamper=tamper)
    assert "site court: its gradient is nan; left out of the meta step" in notes(folder)
    assert all(one["stepped"] and math.isfinite(one["slope"]) for one in thresholds(folder))


def test_where_all_slopes_are_no_numbers_the_network_stays(config, tmp_path):
    def tamper(request, reply):
        if protocol.META in reply.content:
            reply.content[protocol.META]["slope"] = math.inf
        return reply

    folder, _ = run({**config, "rounds": 2}, tmp_path / "run", tamper=tamper)
    told = thresholds(folder)
    assert [(one["stepped"], one["slope"]) for one in told] == [(False, None)] * 2
    assert told[0]["theta"] == told[1]["theta"]


def test_a_price_on_bytes_raises_the_threshold_of_g(config, plain, tmp_path):
    free, _ = plain
    dear, _ = run({**config, "meta.bytes-weight": 100.0, "rounds": 2}, tmp_path / "dear")
    assert thresholds(dear)[1]["theta"] > thresholds(free)[1]["theta"]


def test_where_nobody_sends_theta_finds_back(config, tmp_path, monkeypatch):
    """A first scale far above all deviations lets nobody send."""

    def tamper(request, reply):
        if request.metadata.message_type == protocol.PROBE and request.content["task"]["round"] == 1:
            reply.content[protocol.METRICS]["deviation"] = 1e4
        return reply

    monkeypatch.setattr(learned_threshold, "TEMPERATURE", 1.0)
    folder, _ = run(config, tmp_path / "run", tamper=tamper)
    told = thresholds(folder)
    assert all(one["stepped"] and one["slope"] for one in told)
    assert len({one["theta"] for one in told}) == 3


def test_one_huge_slope_counts_as_ten_times_what_an_update_may_be():
    slopes, steps = {"a": 1.0, "b": 1.0, "c": -1e9}, []
    like = SimpleNamespace(
        by_loss=False,
        settings=SimpleNamespace(max_update_ratio=2.5, meta_bytes_weight=0.0),
        phases=SimpleNamespace(record=SimpleNamespace(about={"threshold": {}})),
        _site_weights=lambda answers: dict.fromkeys(answers, 1.0),
    )
    answers = {site: {"slope": slope} for site, slope in slopes.items()}
    metasend.MetaSend._learn(like, 1, SimpleNamespace(answers=answers, model=SimpleNamespace(step=steps.append), filter=None))
    assert steps == [pytest.approx((1 + 1 - 25) / 3)]


def test_by_loss_every_loss_has_the_price_of_the_mean_share_that_was_sent():
    losses, steps = {"a": 1.0, "b": 3.0}, []

    def step_by_loss(paid, weights):
        steps.append(paid)
        return True

    record = SimpleNamespace(about={"threshold": {}}, sites={"a": {"numbers_share": 0.2}, "b": {"numbers_share": 0.4}})
    like = SimpleNamespace(
        by_loss=True,
        settings=SimpleNamespace(max_update_ratio=2.5, meta_bytes_weight=0.5),
        phases=SimpleNamespace(record=record),
        _site_weights=lambda answers: dict.fromkeys(answers, 1.0),
    )
    answers = {site: {"nll_sum": 7 * loss, "num_tokens": 7} for site, loss in losses.items()}
    meta = SimpleNamespace(answers=answers, shares=losses, model=SimpleNamespace(step_by_loss=step_by_loss), filter=None)
    metasend.MetaSend._learn(like, 1, meta)
    assert steps == [pytest.approx({site: loss + 0.5 * 0.3 for site, loss in losses.items()})]


@pytest.mark.parametrize(("aggregation", "weights"), [("fed-avg", {"a": 2.0, "b": 3.0}), ("by-loss", {"a": 1.0, "b": 1.0})])
def test_dev_losses_are_weighted_as_updates_are_by_size(aggregation, weights):
    """Of 4 and 9 sentences at a temperature of 2."""
    like = SimpleNamespace(
        settings=SimpleNamespace(aggregation=aggregation, sampling_temperature=2.0),
        registry=SimpleNamespace(about={"a": {"train": 4}, "b": {"train": 9}}),
    )
    assert metasend.MetaSend._site_weights(like, {"a": {}, "b": {}}) == weights


@pytest.mark.parametrize("estimator", ["own", "loss"])
def test_a_second_filter_leaves_out_more_as_its_price_rises(config, tmp_path, monkeypatch, estimator):
    config = {**config, "meta.second-filter": True, "meta.estimator": estimator, "meta.learning-rate": 1.0, "rounds": 2}
    monkeypatch.setattr(threshold_slope, "PRICE", 0.0)
    free, live = run(config, tmp_path / "free")
    monkeypatch.setattr(threshold_slope, "PRICE", 1000.0)
    dear, _ = run(config, tmp_path / "dear")
    assert all(one["filtered"] for one in thresholds(dear))
    assert dear.read("scores.json")["number_saving"] > free.read("scores.json")["number_saving"]
    sends = [message for message in live.sent if message.metadata.message_type == protocol.SEND]
    assert all(opened(message.content.array_records[protocol.FILTER])[protocol.FILTER].size == 25 for message in sends)


@pytest.mark.parametrize("changes", [{"meta.estimator": "own"}, {"meta.second-filter": True}], ids=["own", "filter"])
def test_what_is_learned_goes_by_the_deviations_that_the_site_sent_by(config, tmp_path, monkeypatch, changes):
    """Those against its own last round, in every round."""
    used = []
    answer = threshold_slope.own_slope

    def watched(of_tensors, weight, deviations, *about):
        used.append([float(f"{each:.6g}") if math.isfinite(each) else None for each in deviations.values()])
        return answer(of_tensors, weight, deviations, *about)

    monkeypatch.setattr(threshold_slope, "own_slope", watched)
    folder, _ = run({**config, **changes, "rounds": 2}, tmp_path / "run")
    told = [json.loads(line)["deviations"] for line in (folder.directory / "deviations.jsonl").read_text().splitlines()]
    assert sorted(map(str, used)) == sorted(3 * list(map(str, told)))  # once a part
    assert len(used) == 2 * 12
