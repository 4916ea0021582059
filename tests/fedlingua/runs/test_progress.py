"""What a run knows after a round: there and back bit for bit, and its choices by hand."""

import json
import math
from typing import Any

import pytest

from fedlingua.runs.progress import Progress, last_phase_rounds, mean_loss
from fedlingua.settings.checks import settings_from


def sums(loss: float, tokens: int = 10, examples: int = 1) -> dict[str, float]:
    return {"nll_sum": loss * tokens, "num_tokens": tokens, "num_examples": examples}


def of_losses(**by_round: Any) -> Progress:
    """r3={"a": 2.0}: site a's dev loss after round 3."""
    losses = {int(key[1:]): {site: sums(loss) for site, loss in sites.items()} for key, sites in by_round.items()}
    return Progress(round=max(losses, default=-1), dev_losses=losses)


def test_progress_comes_back_from_json_bit_for_bit() -> None:
    before = Progress(
        round=3,
        best_round=2,
        dev_losses={
            0: {"a": sums(1 / 3)},
            2: {"a": sums(math.pi), "b": {"nll_sum": 5e-324, "num_tokens": 2**53, "num_examples": 1}},
        },
        traffic=[(10, 20), (2**40, 0)],
        stages={"a": {1: 1, 2: 2}, "b": {}},
        bad_replies={"b": 2},
        digests={"a": "ff"},
        earlier_stages={"a": [(2, 2), (1, 1)]},
    )
    text = json.dumps(before.values())
    after = Progress.of(3, json.loads(text))
    assert Progress.of(3, {**json.loads(text), "random": [3, [1, 2], None]}) == before  # as earlier versions wrote it
    assert after == before
    assert isinstance(after.traffic[0], tuple)


def test_a_copy_shares_nothing_with_what_it_was_read_from() -> None:
    values = Progress(bad_replies={"a": 1}, digests={"a": "f"}).values()
    copy = Progress.of(0, values)
    copy.bad_replies["a"] = copy.bad_replies["b"] = 9
    copy.digests["b"] = "0"
    assert (values["bad_replies"], values["digests"]) == ({"a": 1}, {"a": "f"})


@pytest.mark.parametrize(("number", "stage"), [(0, (0, 0)), (1, (1, 1)), (2, (1, 1)), (3, (3, 2)), (9, (3, 2))])
def test_a_sites_own_tensors_are_those_of_its_last_good_round(number: int, stage: tuple[int, int]) -> None:
    progress = Progress(stages={"a": {3: 2, 1: 1}})
    assert progress.own("a", number) == stage
    assert progress.own("unheard", number) == (0, 0)


def test_a_sites_own_best_round_is_its_lowest_dev_loss_and_of_equal_ones_the_first() -> None:
    progress = of_losses(r0={"a": 0.1}, r1={"a": 3.0, "b": 1.0}, r2={"a": 2.0}, r3={"a": 2.0, "b": 0.5}, r4={"a": 1.0})
    assert [progress.own_best("a", last, "examples") for last in (0, 1, 2, 3, 4)] == [0, 1, 2, 2, 4]
    assert [progress.own_best("b", last, "examples") for last in (2, 4)] == [1, 3]
    assert progress.own_best("unheard", 4, "examples") == 0


def test_a_site_that_is_still_training_measured_last_in_an_earlier_round() -> None:
    """Its last dev loss stands in for it in the rounds after."""
    progress = of_losses(r1={"a": 3.0}, r2={"a": 2.0}, r3={"a": 2.0})
    assert (progress.measured_in("a"), progress.measured_in("unheard")) == (2, -1)


def test_a_sites_own_loss_is_by_token() -> None:
    losses = {
        1: {"a": {"nll_sum": 10.0, "num_tokens": 5, "num_examples": 1}},
        2: {"a": {"nll_sum": 9.0, "num_tokens": 3, "num_examples": 1}},
    }
    assert Progress(dev_losses=losses).own_best("a", 2, "examples") == 1


def test_the_mean_loss_is_weighted_by_sentences_or_pooled_over_tokens() -> None:
    losses = {"a": sums(1.0, tokens=10, examples=3), "b": sums(4.0, tokens=40, examples=1)}
    assert mean_loss(losses, "examples") == pytest.approx((1.0 * 3 + 4.0 * 1) / 4)
    assert mean_loss(losses, "tokens") == pytest.approx((10 + 160) / 50)
    progress = Progress(dev_losses={1: losses, 2: {}})
    assert progress.loss(1, "tokens") == pytest.approx(3.4)
    assert progress.loss(2, "tokens") is None
    assert progress.loss(3, "tokens") is None


@pytest.mark.parametrize(
    ("by_round", "best"),
    [
        ({}, 0),
        ({"r0": {"a": 0.1}}, 0),  # before any training
        ({"r0": {"a": 0.1}, "r1": {"a": 2.0}, "r2": {"a": 1.0}, "r3": {"a": 1.5}}, 2),
        ({"r1": {"a": 1.0}, "r2": {"a": 1.0}}, 1),
        ({"r1": {"a": 2.0, "b": 2.0}, "r2": {"a": 0.5}}, 1),  # a loss over fewer sites is no better loss
        ({"r1": {"a": 2.0}, "r2": {"b": 1.0}, "r3": {"c": 3.0}}, 2),  # each site measured another round
        ({"r2": {"a": 0.5}, "r1": {"a": 2.0, "b": 2.0}, "r3": {"a": 1.0, "b": 2.0}}, 3),
    ],
)
def test_the_best_round_is_the_lowest_loss_that_most_sites_measured(by_round: dict[str, Any], best: int) -> None:
    progress = of_losses(**by_round)
    progress.best_round = 99
    progress.choose_best("examples", range(10))
    assert progress.best_round == best


def test_a_site_with_most_of_the_sentences_is_never_left_out() -> None:
    sizes = {"a": 8, "b": 1, "c": 1}
    by_round = {1: {"a": 3.0, "b": 1.0, "c": 1.0}, 2: {"a": 1.0, "b": 1.5, "c": 1.5}}
    losses = {n: {site: sums(loss, examples=sizes[site]) for site, loss in of.items()} for n, of in by_round.items()}
    progress = Progress(round=2, dev_losses=losses)
    assert progress.best_up_to(2, "examples") == (2, "")


def test_a_round_whose_checkpoint_is_gone_is_not_chosen_any_more() -> None:
    """Under async.buffer a late loss may make an earlier round the best again."""
    progress = of_losses(r1={"a": 1.0}, r2={"a": 2.0}, r3={"a": 1.5})
    progress.best_round = 3
    progress.choose_best("examples", {0, 2, 3})
    assert progress.best_round == 3
    progress.choose_best("examples", {0, 1, 3})
    assert progress.best_round == 1


def test_a_run_is_stale_after_so_many_rounds_without_enough_gain() -> None:
    """Losses 4, 3, 2.9, 2.8, 2.75: each below the one before, but from round 2 on by less than a tenth of the lowest that counted."""
    losses = [4.0, 3.0, 2.9, 2.8, 2.75]
    progress = of_losses(r0={"a": 5.0}, **{f"r{number}": {"a": loss} for number, loss in enumerate(losses, start=1)})
    assert not progress.is_stale(1, 0.0, "examples")
    assert progress.is_stale(3, 0.1, "examples")
    assert not progress.is_stale(4, 0.1, "examples")
    assert not progress.is_stale(0, 0.1, "examples")  # 0 never stops
    # 2.75 is a twelfth below 3.0, 2.8 a fifteenth.
    assert not progress.is_stale(1, 0.08, "examples")


def test_the_loss_before_training_and_a_round_without_one_are_no_gain() -> None:
    progress = of_losses(r0={"a": 9.0}, r1={"a": 3.0})
    progress.round = 3  # rounds 2 and 3 were skipped
    assert progress.is_stale(2, 0.0, "examples")
    assert not progress.is_stale(3, 0.0, "examples")
    assert not of_losses(r0={"a": 1.0}, r1={"a": 3.0}).is_stale(1, 0.0, "examples")


def test_the_last_round_is_the_last_that_trained_whatever_its_loss() -> None:
    progress = of_losses(r0={"a": 1.0}, r1={"a": 1.0, "b": 1.0}, r2={"a": 9.0, "b": 9.0}, r4={"a": 9.0})
    progress.stages = {"a": {1: 1, 2: 1, 3: 2}, "b": {1: 1, 2: 1}}  # round 4 was skipped
    progress.aggregated = [1, 2, 3]
    assert [progress.best_up_to(last, "last")[0] for last in (0, 1, 2, 3, 4)] == [0, 1, 2, 3, 3]
    assert [progress.own_best("b", last, "last") for last in (0, 1, 4)] == [0, 1, 2]
    progress.choose_best("last", range(5))
    assert progress.best_round == 3
    assert Progress(round=2).best_up_to(2, "last") == (0, "")
    assert progress.is_stale(3, 0.0, "last") == progress.is_stale(3, 0.0, "examples") is True
    assert progress.loss(1, "last") == progress.loss(1, "examples")


def test_the_last_phase_is_as_long_as_the_passes_and_translations_that_it_may_take(run_config: dict[str, Any]) -> None:
    def rounds(**keys: Any) -> float:
        settings = {**run_config, "rounds": 8, "beam": 2, **{key.replace("_", "."): value for key, value in keys.items()}}
        return last_phase_rounds(settings_from({"keep.choose": True, **settings}), {"train": 100.0, "dev": 10.0, "test": 50.0})

    assert rounds(method="adapter-fed") == (8 + 2 * 8) + 8 * 2 * 0.5 + 6 * 0.1
    assert rounds(keep_passes=2, keep_ensemble=False, keep_by="loss") == (8 + 2 * 2) + 4 * 2 * 0.5
    assert rounds(sample_share=0.25, sample_replacement=False) == ((2 + 2 * 2) + 8 * 2 * 0.5 + 6 * 0.1) / 0.25
    assert rounds(keep_choose=False) == 2 * 2 * 0.5
