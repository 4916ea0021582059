"""Whole runs with secure sums: exact, whoever is lost and whatever the order of replies, and named where there is no sum."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Error, Message
from safetensors.numpy import load

from fedlingua.common.errors import ConfigError, ExchangeError, RunError
from fedlingua.evaluation.totals import score_counters
from fedlingua.exchange import protocol
from fedlingua.layers import secure_sum
from fedlingua.layers.secure_sum import EXPONENTS, SecureSums
from fedlingua.privacy.fixed_point import SITES, TRAINING, UNSENT
from fedlingua.privacy.masks import MODELS
from fedlingua.settings.checks import settings_from
from fedlingua.settings.conflicts import SECURE_SUMS
from tests.hostile.secure_table import signed
from tests.in_process import InProcessGrid, checkpoint_bytes, failing, rounds, run, run_on

ROUNDS = 2


@pytest.fixture
def secure(four_sites: dict[str, Any]) -> dict[str, Any]:
    return {**four_sites, "method": "adapter-fed", "rounds": ROUNDS, "privacy.sum": "secure", "keep.choose": False, "quorum": 0.7}


@pytest.fixture
def whole(secure: dict[str, Any], run_once: Any) -> Any:
    """The folder and the messages of the run that nothing happens to."""
    return run_once({key: value for key, value in secure.items() if key not in ("backbone", "federation")})


def tensors(folder: Any) -> dict[str, np.ndarray]:
    return {name: array for content in checkpoint_bytes(folder).values() for name, array in load(content).items()}


def test_its_mean_is_the_plain_mean_within_a_level_of_every_site(secure: dict[str, Any], tmp_path: Path) -> None:
    config = {**secure, "rounds": 1}
    folder, live = run(config, tmp_path / "secure")
    plain, _ = run({**config, "privacy.sum": "plain", "send.code": "none"}, tmp_path / "plain")
    asked = next(message for message in live.sent if message.metadata.message_type == "train").content[protocol.SECURE]
    level = max(2.0**exponent for part, each in asked.items() if part != MODELS for exponent in each) / 511
    summed, mean = tensors(folder), tensors(plain)
    assert set(summed) == set(mean)
    assert all(np.abs(summed[name] - mean[name]).max() <= level for name in mean)
    assert any((summed[name] != mean[name]).any() for name in mean)
    line, known = rounds(folder)[1], rounds(plain)[1]["sites"]
    assert line["secure_sum"] == {"sites": 4, "cut": 0.0}
    for site in line["sites"].values():
        assert site["steps"] == int(np.mean([each["steps"] for each in known.values()]))


@pytest.mark.parametrize("lost", [False, True])
def test_by_size_it_is_the_mean_weighted_by_the_sites_sentences(lost: bool, secure: dict[str, Any], tmp_path: Path) -> None:
    federation = Path(secure["federation"])
    federation.write_text(federation.read_text().replace("sentences = 48", "sentences = 68", 1))
    config = {**secure, "rounds": 1, "aggregation": "fed-avg", "whole-steps": False}
    tamper = failing("court", "train", 1) if lost else None
    folder, live = run(config, tmp_path / "secure", tamper=tamper)
    plain, _ = run({**config, "privacy.sum": "plain", "send.code": "none"}, tmp_path / "plain", tamper=tamper)
    equal, _ = run(
        {**config, "privacy.sum": "plain", "send.code": "none", "aggregation": "fed-mean"}, tmp_path / "equal", tamper=tamper
    )
    asked = next(message for message in live.sent if message.metadata.message_type == "train").content[protocol.SECURE]
    level = max(2.0**exponent for part, each in asked.items() if part != MODELS for exponent in each) / 511
    summed, mean, other = tensors(folder), tensors(plain), tensors(equal)
    sizes = [about["train"] for about in (folder.read("sites.json") or {}).values()]
    assert max(sizes) > 1.5 * min(sizes)
    factor = sum(sizes) / max(sizes) / len(sizes)  # a level counts for more where small sites are scaled down
    assert all(np.abs(summed[name] - mean[name]).max() <= level / factor for name in mean)
    assert any(np.abs(summed[name] - other[name]).max() > 2 * level for name in mean)


def test_a_site_with_most_of_the_text_is_told_before_any_training(secure: dict[str, Any], tmp_path: Path) -> None:
    federation = Path(secure["federation"])
    federation.write_text(federation.read_text().replace("sentences = 48", "sentences = 900", 1))
    with pytest.raises(
        RunError, match=r"site hospital has .*% of the weight in the secure sum of hospital, .*: raise sampling-temp"
    ):
        run({**secure, "aggregation": "fed-avg"}, tmp_path / "run")


def test_no_single_update_leaves_a_site(whole: Any) -> None:
    _, live = whole
    trained = [reply for reply in live.received if reply.metadata.message_type == "train"]
    assert len(trained) == 4 * ROUNDS
    for reply in trained:
        assert protocol.METRICS not in reply.content
        counters = reply.content[protocol.ARRAYS]["counters"].numpy()
        assert (counters > 2**40).all()  # draws of 64 bits


def test_same_seed_same_bytes_in_any_order_with_other_masks(secure: dict[str, Any], whole: Any, tmp_path: Path) -> None:
    one, _ = whole
    two, _ = run(secure, tmp_path / "two", num_nodes=4, shuffle_seed=2)
    assert checkpoint_bytes(one) == checkpoint_bytes(two)


@pytest.mark.parametrize("phase", ["train", "train.unmask"])
def test_a_site_is_lost(phase: str, secure: dict[str, Any], whole: Any, tmp_path: Path) -> None:
    folder, _ = run(secure, tmp_path / "run", tamper=failing("court", phase, 1))
    lines = rounds(folder)
    assert [line["secure_sum"]["sites"] for line in lines[1:]] == [3 if phase == "train" else 4, 4]
    assert (checkpoint_bytes(folder) == checkpoint_bytes(whole[0])) == (phase == "train.unmask")


def test_a_sum_without_a_site_is_the_mean_of_the_others(secure: dict[str, Any], tmp_path: Path) -> None:
    config = {**secure, "rounds": 1}
    folder, live = run(config, tmp_path / "secure", tamper=failing("court", "train", 1))
    plain, _ = run(
        {**config, "privacy.sum": "plain", "send.code": "none"}, tmp_path / "plain", tamper=failing("court", "train", 1)
    )
    summed, mean = tensors(folder), tensors(plain)
    asked = next(message for message in live.sent if message.metadata.message_type == "train").content[protocol.SECURE]
    level = max(2.0**exponent for part, each in asked.items() if part != MODELS for exponent in each) / 511
    assert all(np.abs(summed[name] - mean[name]).max() <= level for name in mean)


def test_dev_losses_and_scores_are_those_of_all_sites_and_of_none(secure: dict[str, Any], tmp_path: Path) -> None:
    for best_by in ("examples", "tokens"):
        config = {**secure, "keep.choose": True, "keep.passes": 1, "best-by": best_by, "evaluate-every": 1}
        summed, live = run(config, tmp_path / f"sum-{best_by}")
        known, _ = run({**config, "privacy.scores": "sites"}, tmp_path / f"sites-{best_by}")
        assert checkpoint_bytes(summed).keys() == checkpoint_bytes(known).keys()
        losses, wanted = ([line["dev_loss"] for line in rounds(folder)] for folder in (summed, known))
        assert losses == pytest.approx(wanted, rel=1e-6)
        measured = [line["measured"]["dev_loss"] for line in rounds(summed) if "measured" in line]
        assert measured == pytest.approx([line["measured"]["dev_loss"] for line in rounds(known) if "measured" in line], rel=1e-6)
        assert measured
        for reply in live.received:
            assert not {protocol.MEASURED, protocol.METRICS} & set(reply.content)
            assert not [name for name in reply.content if name.startswith(protocol.SCORES_PREFIXES["result"])]
    scores, each = summed.read("scores.json"), known.read("scores.json")
    assert (*scores["sites"],) == ("all sites",)
    assert len(each["sites"]) == 4
    averages = [key for key in each if "macro_" in key or "micro_" in key or "pooled_" in key]
    assert {key: scores[key] for key in averages} == pytest.approx({key: each[key] for key in averages}, abs=1e-5)
    gains = [entry["gain"] for entry in each["sites"].values()]
    beyond_chance = {"gained": sum(gain["low"] > 0 for gain in gains), "lost": sum(gain["high"] < 0 for gain in gains)}
    assert scores["choices"] == {**beyond_chance, "of": 4}
    assert scores["sites"]["all sites"]["sentences"] == sum(entry["sentences"] for entry in each["sites"].values())


@pytest.mark.parametrize("phase", ["evaluate", "evaluate.finish"])
def test_without_a_site_it_is_the_dev_loss_or_the_score_of_the_others(phase: str, secure: dict[str, Any], tmp_path: Path) -> None:
    tamper = failing("court", phase, ROUNDS)
    summed, _ = run(secure, tmp_path / "sum", tamper=tamper)
    known, _ = run({**secure, "privacy.scores": "sites"}, tmp_path / "sites", tamper=tamper)
    assert len(rounds(known)[ROUNDS]["sites"]) == 4
    losses = [[rounds(folder)[number]["dev_loss"] for number in range(ROUNDS + 1)] for folder in (summed, known)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    scores, each = summed.read("scores.json"), known.read("scores.json")
    assert len(each["sites"]) == (4 if phase == "evaluate" else 3)
    assert scores["macro_bleu"] == pytest.approx(each["macro_bleu"], abs=1e-5)
    assert scores["sites"]["all sites"]["sentences"] == sum(entry["sentences"] for entry in each["sites"].values())


def test_a_run_that_was_killed_while_it_opened_the_scores_opens_the_same_again(secure: dict[str, Any], tmp_path: Path) -> None:
    """Court is lost at the end of the first attempt and there again in the second; the sum may not be opened with it."""

    def lost(request: Message, reply: Message) -> Message:
        task, kind = request.content.config_records.get(protocol.TASK, {}), request.metadata.message_type
        opens = kind == "train.unmask" and request.content[protocol.SECURE]["sum"] == 1
        gone = opens or (kind == "evaluate.finish" and task.get("site") == "court")
        return Message(Error(1, "lost"), reply_to=request) if gone else reply

    with pytest.raises(RunError, match=r"the scores|send"):
        run(secure, tmp_path / "killed", tamper=lost)
    resumed = {**secure, "run-dir": str(tmp_path / "killed"), "resume": True}
    folder = run_on(InProcessGrid(resumed, 2), resumed)
    sizes = {site: about["test"] for site, about in (folder.read("sites.json") or {}).items()}
    wanted = sum(size for site, size in sizes.items() if site != "court")
    assert folder.read("scores.json")["sites"]["all sites"]["sentences"] == wanted


def test_a_dev_loss_whose_masks_do_not_cancel_is_never_taken(secure: dict[str, Any], tmp_path: Path) -> None:
    from flwr.app import Array

    def other(content: Any) -> None:
        counters = content[protocol.ARRAYS]["counters"].numpy().copy()
        counters[0] ^= 1
        content[protocol.ARRAYS]["counters"] = Array(counters)

    with pytest.raises(RunError, match="the dev loss of round 2: the masks of the counters did not cancel"):
        run(secure, tmp_path / "dev", tamper=_tampered(other, "evaluate"))
    with pytest.raises(RunError, match="the scores: the masks of the counters did not cancel"):
        run(secure, tmp_path / "end", tamper=_tampered(other, "evaluate.finish"))


def test_too_few_for_a_sum_end_the_run_by_name(secure: dict[str, Any], tmp_path: Path) -> None:
    def two_are_lost(request: Message, reply: Message) -> Message:
        lost = request.content.config_records.get(protocol.TASK, {}).get("site") in ("hospital", "court")
        return Message(Error(1, "lost"), reply_to=request) if lost and request.metadata.message_type == "train" else reply

    with pytest.raises(RunError, match="round 1: 2 of 4 sites sent their part of the sum, and 3 have to open it"):
        run({**secure, "quorum": 0.5}, tmp_path / "run", tamper=two_are_lost)
    folder, _ = run({**secure, "quorum": 0.5, "below-quorum": "go-on"}, tmp_path / "on", tamper=two_are_lost)
    assert all("secure_sum" not in line for line in rounds(folder))


def _tampered(change: Any, kind: str = "train", site: str = "court") -> Any:
    def tamper(request: Message, reply: Message) -> Message:
        task = request.content.config_records.get(protocol.TASK, {})
        if request.metadata.message_type == kind and task.get("site") == site and not reply.has_error():
            change(reply.content)
        return reply

    return tamper


def _killed_while_opening(number: int) -> Any:
    def tamper(request: Message, reply: Message) -> Message:
        opens = request.metadata.message_type == "train.unmask" and request.content[protocol.TASK]["round"] == number
        return Message(Error(1, "killed"), reply_to=request) if opens else reply

    return tamper


def _other_numbers(content: Any) -> None:
    from flwr.app import Array

    array = content[protocol.ARRAYS]["encoder"].numpy().copy()
    array[-1] ^= 0x55
    content[protocol.ARRAYS]["encoder"] = Array(array)


def test_a_wrong_sum_is_never_taken(secure: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(RunError, match="the masks of the encoder cluster all did not cancel"):
        run(secure, tmp_path / "run", tamper=_tampered(_other_numbers))


def test_a_sum_is_opened_over_no_fewer_sites_than_a_cluster_may_have() -> None:
    """Three of four sites could open it, but clusters are of four or more."""
    roster, settings = SimpleNamespace(threshold=3, names=tuple("abcd")), SimpleNamespace(privacy_min_cluster=4)
    failures = list[str]()
    like: Any = SimpleNamespace(roster=roster, settings=settings, _fail=failures.append)
    SecureSums._check_threshold(like, 3, list("abcd"))
    assert failures == []
    SecureSums._check_threshold(like, 3, list("abc"))
    assert failures == ["round 1: 3 of 4 sites sent their part of the sum, and 4 have to open it"]


def test_scales_are_no_larger_than_a_rounds_steps_can_reach() -> None:
    sent = SimpleNamespace(values={EXPONENTS: {"encoder": {"all": [5, -3]}}})
    like: Any = SimpleNamespace(_noise={}, run=SimpleNamespace(sent=sent), _most_exponent=lambda number: 1)
    assert SecureSums._exponents(like, 2, "encoder", "all") == [1, -3]


@pytest.mark.parametrize(
    ("kind", "name", "factor", "said"),
    [
        ("train", "steps", 1000, "round 1: .* steps at all sites; wanted 4 to"),
        ("train", "nll_sum", 1e6, "round 1, training, summed over all sites: nll_sum / num_tokens"),
        ("train", "dev_examples", 2, "the dev loss of round 0 is over .* sentences; the sites have"),
        ("train", "dev_nll", 1e6, "the dev loss of round 0, summed over all sites: nll_sum / num_tokens"),
        ("evaluate.finish", "result.sentences", 9, "the scores, summed over all sites: scores of .* sentences"),
        ("evaluate.finish", "base.bleu.2", 1e6, "the scores, summed over all sites: scores hold BLEU counts"),
    ],
)
def test_a_sum_that_cannot_be_true_is_refused(
    kind: str, name: str, factor: float, said: str, secure: dict[str, Any], tmp_path: Path
) -> None:
    """A site adds to a counter what no sites can have; under its masks nobody sees it."""
    from flwr.app import Array

    names = (SITES, *(TRAINING if kind == "train" else score_counters("translation")))

    def lie(content: Any) -> None:
        counters = content[protocol.ARRAYS]["counters"].numpy().copy()
        counters[names.index(name)] += np.uint64(int(factor * 1000) << 20)
        content[protocol.ARRAYS]["counters"] = Array(counters)

    with pytest.raises(RunError, match=said):
        run(secure, tmp_path / "run", tamper=_tampered(lie, kind))


def test_a_site_whose_reply_was_bad_is_asked_again_and_the_sum_is_that_of_all(
    secure: dict[str, Any], whole: Any, tmp_path: Path
) -> None:
    from flwr.app import MetricRecord

    bad = []

    def once(content: Any) -> None:
        if not bad:
            bad.append(content)
            content[protocol.METRICS] = MetricRecord({"nll_sum": 1.0})

    folder, _ = run({**secure, "quorum": 1.0}, tmp_path / "run", tamper=_tampered(once))
    assert "an unknown 'metrics'" in str(rounds(folder)[1]["failures"])
    assert checkpoint_bytes(folder) == checkpoint_bytes(whole[0])


def test_a_reply_in_the_clear_is_refused(secure: dict[str, Any], tmp_path: Path) -> None:
    from flwr.app import MetricRecord

    def sums(content: Any) -> None:
        content[protocol.METRICS] = MetricRecord({"nll_sum": 1.0})

    folder, _ = run({**secure, "rounds": 1}, tmp_path / "run", tamper=_tampered(sums))
    assert "an unknown 'metrics'" in str(rounds(folder)[1]["failures"])


def test_a_run_that_was_killed_while_it_opened_a_sum_ends_with_the_same_bytes(
    secure: dict[str, Any], whole: Any, tmp_path: Path
) -> None:
    config = {**secure, "quorum": 1.0}
    with pytest.raises(RunError):
        run(config, tmp_path / "killed", tamper=_killed_while_opening(2))
    resumed = {**config, "run-dir": str(tmp_path / "killed"), "resume": True}
    folder = run_on(InProcessGrid(resumed, 2), resumed)
    assert checkpoint_bytes(folder) == checkpoint_bytes(whole[0])


def test_a_resumed_run_opens_a_round_for_the_same_sites_or_not_at_all(secure: dict[str, Any], tmp_path: Path) -> None:
    def one_is_lost_then_all(request: Message, reply: Message) -> Message:
        task = request.content.config_records.get(protocol.TASK, {})
        kind, number = request.metadata.message_type, task.get("round")
        lost = number == 2 and (kind == "train.unmask" or (kind == "train" and task.get("site") == "court"))
        return Message(Error(1, "lost"), reply_to=request) if lost else reply

    with pytest.raises(RunError):
        run(secure, tmp_path / "killed", tamper=one_is_lost_then_all)
    resumed = {**secure, "run-dir": str(tmp_path / "killed"), "resume": True}
    live = InProcessGrid(resumed, 2)
    folder = run_on(live, resumed)
    asked = [m.content[protocol.TASK] for m in live.sent if m.metadata.message_type == "train"]
    assert [task["site"] for task in asked if task["round"] == 2] == ["hospital", "school", "bank"]
    assert [line["secure_sum"]["sites"] for line in rounds(folder)[1:]] == [4, 3]


VALUES: dict[str, dict[str, Any]] = {
    "aggregation": {"aggregation": "by-loss"},
    "send.rule": {"send.rule": "metasend-g"},
    "send.code": {"send.code": "4bit"},
    "strategy": {"strategy": "my_file:MyStrategy"},
    "optimizer": {"optimizer": "sgd"},
    "sites-per-round": {"sites-per-round": 3},
    "robust.max-norm": {"robust.max-norm": 1.0},
    "metrics": {"metrics": "bleu,chrf,ter"},
    "signature.form": {"method": "adapter-gradients"},
}


@pytest.mark.parametrize("key", SECURE_SUMS)
def test_what_is_unsound_with_secure_sums_is_refused_by_name(key: str, secure: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"privacy.sum = 'secure', and {key} = "):
        settings_from({**secure, **VALUES[key]})
    settings_from({**secure, **VALUES[key], "privacy.sum": "plain"})


@pytest.mark.parametrize(
    "sound",
    [
        {"server.optimizer": "adam"},
        {"server.optimizer": "sgd"},
        {"tensor-set": "controllers", "learning-rate": 0.001},
        {"pull": 0.1},
        {"optimizer-state": "kept"},
        {"send.code-down": "4bit"},
        {"tensor-set": "lora"},
        {"send.rule": "dp-g"},
        {"send.rule": "dp-l"},
        {"send.rule": "random-g"},
        {"send.rule": "fixed-l"},
    ],
)
def test_what_is_sound_with_secure_sums_runs(sound: dict[str, Any], secure: dict[str, Any], tmp_path: Path) -> None:
    folder, _ = run({**secure, **sound, "rounds": 2}, tmp_path / "run")
    assert [line["secure_sum"]["sites"] for line in rounds(folder)[1:]] == [4, 4]


@pytest.mark.parametrize("changes", [{"send.rule": "fixed-g", "send.fixed-threshold": "median"}, {"send.rule": "rand-send"}])
def test_all_sites_leave_out_the_same_tensors_by_how_their_mean_moved(
    changes: dict[str, Any], secure: dict[str, Any], tmp_path: Path
) -> None:
    config = {**secure, **changes, "rounds": 4}
    folder, live = run(config, tmp_path / "run")
    asked, sizes = dict[int, list[list[int]]](), dict[int, set[int]]()
    for message in live.sent:
        if message.metadata.message_type == "train":
            number = int(message.content[protocol.TASK]["round"])
            asked.setdefault(number, []).append(list(message.content[protocol.SECURE]["decoder"]))
    for reply in live.received:
        if reply.metadata.message_type == "train":
            number = int(reply.content[protocol.TASK]["round"])
            sizes.setdefault(number, set()).add(reply.content[protocol.ARRAYS]["decoder"].numpy().size)
    assert all(len(each) == 4 and each == each[:1] * 4 for each in asked.values())
    left_out = {number: [exponent == UNSENT for exponent in each[0]] for number, each in asked.items()}
    assert not any(left_out[1])
    assert 0 < sum(left_out[2]) < len(left_out[2])
    assert all(len(each) == 1 for each in sizes.values())
    assert max(sizes[2]) < max(sizes[1])
    if changes["send.rule"] == "fixed-g":  # what was left out is sent in the next round
        assert not any(map(all, zip(left_out[2], left_out[3], strict=True)))
    before, after = (load((folder.directory / f"checkpoints/{n:04d}/decoder.all.safetensors").read_bytes()) for n in (3, 4))
    still = [name for name in before if (before[name] == after[name]).all()]
    assert 0 < len(still) == sum(left_out[4]) < len(before)
    # A run that was killed goes on with the same choice.
    with pytest.raises(RunError):
        run({**config, "quorum": 1.0}, tmp_path / "killed", tamper=_killed_while_opening(3))
    resumed = {**config, "quorum": 1.0, "run-dir": str(tmp_path / "killed"), "resume": True}
    assert checkpoint_bytes(run_on(InProcessGrid(resumed, 2), resumed)) == checkpoint_bytes(folder)


def test_clusters_that_are_too_small_are_refused_before_any_training(secure: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cluster .* has 2 sites .*, and a secure sum needs 3 \(privacy.min-cluster\)"):
        run({**secure, "method": "adapter-random", "cluster.number": 2}, tmp_path / "run")
    folder, _ = run({**secure, "method": "adapter-random", "cluster.number": 2, "privacy.min-cluster": 2}, tmp_path / "two")
    assert rounds(folder)[1]["secure_sum"]["sites"] == 4


def test_a_plain_run_answers_nothing_about_secure_sums(four_sites: dict[str, Any]) -> None:
    from fedlingua.exchange.protocol import Task
    from fedlingua.layers.secure_site import secure_site

    class PlainNode:
        settings = settings_from(four_sites)

    with pytest.raises(ExchangeError, match=r"privacy.sum = 'plain' in this run"):
        secure_site(PlainNode(), Task("one", "run", 1, 1))  # type: ignore[arg-type]


def test_a_sum_that_was_opened_is_not_opened_without_one_of_its_sites(secure: dict[str, Any], tmp_path: Path) -> None:
    """The sites refuse another list for ever, so the server must not take one for the list that they know."""

    with pytest.raises(RunError):
        run(secure, tmp_path / "run", tamper=_killed_while_opening(2))
    resumed = {**secure, "run-dir": str(tmp_path / "run"), "resume": True}
    with pytest.raises(
        RunError, match=r"opened before over hospital, court, school, bank, and court sent none; resume with them"
    ):
        run_on(InProcessGrid(resumed, 2, tamper=failing("court", "train", 2)), resumed)
    folder = run_on(InProcessGrid(resumed, 2), resumed)
    assert [line["secure_sum"]["sites"] for line in rounds(folder)[1:]] == [4, 4]


def test_a_dev_loss_of_the_published_backbone_is_known_as_one_whatever_comes_with_it(
    secure: dict[str, Any], tmp_path: Path
) -> None:
    """Round 0 is measured with the first training; else tensors of the server's choice would give it a second name."""
    folder, _ = run({**secure, "rounds": 1}, tmp_path / "run")
    (opened,) = [file.stem for file in folder.directory.glob("sites/court/**/measured/*.json") if len(file.stem) < 9]
    assert opened == "base"


def test_the_roster_is_named_by_the_hash_that_sites_approve(tmp_path: Path) -> None:
    _, roster, (approved,) = signed(tmp_path)
    assert secure_sum._in_words(roster) == f"secure sums over 5 sites, 4 of them open one; roster {approved[:16]}"
    unsigned = replace(roster, signers=(), signatures=())
    assert secure_sum._in_words(unsigned) == "secure sums over 5 sites, 4 of them open one"
