"""How far an honest site can go, by hand and by torch's own Adam; and who is longer than the others lead to expect."""

import math
from collections.abc import Collection
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedlingua.exchange.measured_change import Change
from fedlingua.layers.outliers import (
    BETA1,
    BETA2,
    Distance,
    _bend,
    adam_bounds,
    expected,
    highest_rate_before,
    judge,
    learning_rates,
    out_of_reach,
)
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Settings
from fedlingua.settings.table import KEYS
from fedlingua.training.optimizers import OPTIMIZERS

NAMES = ["w"]


def settings(run_config: dict[str, Any], **keys: Any) -> Settings:
    return settings_from({**run_config, "learning-rate": 0.01, **{KEYS.get(key, key): value for key, value in keys.items()}})


def moved(largest: float, size: float = 0.0) -> Change:
    """Of one tensor of four numbers, one of which moved."""
    return Change(np.array([largest**2]), np.array([largest]), np.array([size]), np.array([4.0]))


def went(change: float, steps: int = 16, rate: float = 0.01, tensor: float | None = None) -> Distance:
    """A site, by its change as a multiple of the rate."""
    return Distance(steps, rate, rate * np.array([change, change if tensor is None else tensor]))


def judged(
    sites: dict[str, Distance], earlier: list[Distance] | None = None, adam: bool = True, opposing: Collection[str] = ()
) -> dict[str, Any]:
    verdicts = judge(sites, earlier or [], adam, 2.5, NAMES, opposing=opposing)
    return {site: "left out" if one.factors is None else one.factors.tolist() for site, one in verdicts.items()}


# --- Reach ---------------------------------------------------------------------------------------------------------------------


def test_the_bounds_of_adams_steps_by_hand() -> None:
    q = BETA1**2 / BETA2
    second = 0.1 / math.sqrt(0.001) * math.sqrt((1 - q**2) / (1 - q)) * math.sqrt(1 - 0.999**2) / (1 - 0.9**2)
    assert adam_bounds(2).tolist() == pytest.approx([1.0, second])
    assert adam_bounds(100_000)[-1] == pytest.approx(0.1 / math.sqrt(0.001) / math.sqrt(1 - q))


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine", "inverse-sqrt"])
@pytest.mark.parametrize("warmup", [0, 5, 40])
def test_no_step_before_a_round_has_a_higher_rate(run_config: dict[str, Any], schedule: str, warmup: int) -> None:
    chosen = settings(run_config, schedule=schedule, warmup_steps=warmup, rounds=9)
    for number in range(2, 10):
        highest = max(learning_rates(chosen, past, 7).max() for past in range(1, number))
        assert highest_rate_before(chosen, number, 7) == pytest.approx(highest)


def test_the_betas_are_those_of_a_sites_adam() -> None:
    for name in ("adam", "adamw"):
        assert OPTIMIZERS[name]([nn.Parameter(torch.zeros(1))], 0.1, 0.0, 1e-8).param_groups[0]["betas"] == (BETA1, BETA2)


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_no_gradients_take_adam_out_of_reach(run_config: dict[str, Any], optimizer: str, decay: float) -> None:
    """Nor do those that take it furthest: alike, growing tenfold, or none but a last one."""
    steps, chosen = 60, settings(run_config, optimizer=optimizer, weight_decay=decay)
    gradients = torch.stack([torch.ones(steps), 10.0 ** torch.linspace(-9, 9, steps), torch.randn(steps), torch.eye(steps)[-1]])
    parameter = nn.Parameter(torch.tensor([3.0, -3.0, 1.0, 0.0]))
    start = parameter.detach().clone()
    torch_optimizer = OPTIMIZERS[optimizer]([parameter], 0.01, decay, 1e-12)
    for step in range(steps):
        parameter.grad = gradients[:, step].clone()
        torch_optimizer.step()
    largest = float((parameter.detach() - start).abs().max())
    rates = learning_rates(chosen, 1, steps)
    assert out_of_reach(moved(largest, 3.0), rates, chosen, NAMES) is None
    assert largest > 0.01 * steps / 2
    assert out_of_reach(moved(4 * largest, 3.0), rates, chosen, NAMES)


def test_an_adam_with_steps_behind_it_goes_further_in_its_next_one(run_config: dict[str, Any]) -> None:
    chosen = settings(run_config)
    rates = learning_rates(chosen, 1, 1)
    assert out_of_reach(moved(0.05), rates, chosen, NAMES)
    assert out_of_reach(moved(0.05), rates, chosen, NAMES, steps_before=1000) is None


@pytest.mark.parametrize(("optimizer", "is_reached"), [("adam", False), ("adamw", True)])
def test_weight_decay_takes_a_number_further_except_under_adam(
    run_config: dict[str, Any], optimizer: str, is_reached: bool
) -> None:
    """AdamW's first step moves a number of 10 by 0.01 and, by a decay of 0.5, by another 0.01 x 0.5 x 10."""
    chosen = settings(run_config, optimizer=optimizer, weight_decay=0.5)
    assert (out_of_reach(moved(0.05, 10.0), learning_rates(chosen, 1, 1), chosen, NAMES) is None) == is_reached


def test_decay_is_a_share_of_what_a_number_may_have_grown_to(run_config: dict[str, Any]) -> None:
    """From 0, 50 clipped steps of 0.01 lead to 0.5, and a decay of 1 may take as much again."""
    chosen = settings(run_config, optimizer="sgd", clip_norm=1.0, weight_decay=1.0)
    assert out_of_reach(moved(0.6), learning_rates(chosen, 1, 50), chosen, NAMES) is None


def test_what_is_out_of_reach_is_named(run_config: dict[str, Any]) -> None:
    chosen = settings(run_config)
    reason = out_of_reach(moved(54.0), learning_rates(chosen, 1, 1), chosen, NAMES)
    assert reason == (
        "it moves a number of w by 54, and 1 steps of adam at a rate of 0.01 move none further than 0.0101; robust.max-ratio = 0 takes it "
        "all the same"
    )


def test_a_matrix_in_two_factors_is_held_to_its_root_mean_square(run_config: dict[str, Any]) -> None:
    whole, factored = settings(run_config), settings(run_config, send_code="4bit rank 4")
    rates, sent = learning_rates(whole, 1, 1), np.array([100.0])
    one_far = Change(np.array([0.05**2]), np.array([0.05]), np.zeros(1), sent)
    all_far = Change(100 * np.array([0.05**2]), np.array([0.05]), np.zeros(1), sent)
    assert out_of_reach(one_far, rates, whole, NAMES)
    assert out_of_reach(one_far, rates, factored, NAMES) is None
    assert "(root mean square)" in str(out_of_reach(all_far, rates, factored, NAMES))


def test_sgd_has_a_reach_where_it_clips(run_config: dict[str, Any]) -> None:
    free, clips = settings(run_config, optimizer="sgd"), settings(run_config, optimizer="sgd", clip_norm=2.0)
    rates = learning_rates(free, 1, 10)
    assert out_of_reach(moved(1e30), rates, free, NAMES) is None
    assert out_of_reach(moved(0.2), rates, clips, NAMES) is None
    assert out_of_reach(moved(0.21), rates, clips, NAMES)


def test_the_reach_follows_the_schedule(run_config: dict[str, Any]) -> None:
    """Two rounds of two steps, linear: 1, 3/4; 1/2, 1/4."""
    chosen = settings(run_config, schedule="linear", rounds=2)
    assert learning_rates(chosen, 1, 2).tolist() == pytest.approx([0.01, 0.0075])
    assert learning_rates(chosen, 2, 2).tolist() == pytest.approx([0.005, 0.0025])
    assert learning_rates(settings(run_config), 7, 3).tolist() == [0.01] * 3


# --- Growth --------------------------------------------------------------------------------------------------------------------


def test_under_adam_the_others_exponent_says_how_far_a_site_goes() -> None:
    """8 = 16^0.75, so 64 steps lead to 64^0.75, and 4 steps to 4^0.75."""
    others = [went(8.0), went(8.0), went(1.0, 1)]
    for steps in (64, 4):
        assert expected(steps, 0.01, others, adam=True).tolist() == pytest.approx([0.01 * steps**0.75] * 2)
    assert expected(9, 0.01, [went(0.1), went(0.2)], adam=True).tolist() == pytest.approx([0.03, 0.03])  # a random walk at least
    assert expected(9, 0.01, [went(99.0), went(99.0)], adam=True).tolist() == pytest.approx(
        [0.09] * 2
    )  # and a straight line at most


def test_a_site_of_a_single_step_says_nothing_of_the_exponent() -> None:
    others = [went(8.0), went(5.0, 1), went(5.0, 1)]
    assert expected(16, 0.01, others, adam=True)[0] == pytest.approx(0.08)


def test_sites_whose_steps_differ_by_half_show_how_the_exponent_bends() -> None:
    steps = np.array([10.0, 16.0, 25.0])
    assert _bend(steps, 0.8 - 0.04 * np.log(steps)) == pytest.approx(-0.04)


def test_the_exponent_is_bent_on_for_sites_of_other_sizes() -> None:
    """0.8 at e^2 steps and 0.76 at e^3: 0.72 at e^4."""
    sizes = {2: 0.8, 3: 0.76, 3.5: 0.74}
    others = [went(round(math.e**x) ** e, round(math.e**x)) for x, e in sizes.items()]
    found = expected(round(math.e**4), 1.0, others, adam=True)[0]
    assert math.log(found) / 4 == pytest.approx(0.72, abs=0.005)


def test_the_bend_of_many_sites_is_that_of_some_of_them_in_any_order() -> None:
    """Between 20 and 2,000 steps e falls by 0.04 a unit of ln(steps), give or take 0.01; one in ten went five times as far."""
    drawn = Random(1)
    steps = [round(math.e ** drawn.uniform(3.0, 7.6)) for _ in range(400)]
    e = [0.8 - 0.04 * math.log(each) + drawn.gauss(0, 0.01) for each in steps]
    others = [went((1 if place % 10 else 5) * each ** e[place], each) for place, each in enumerate(steps)]
    wanted = expected(1500, 0.01, others, adam=True)
    assert math.log(wanted[0] / 0.01) / math.log(1500) == pytest.approx(0.8 - 0.04 * math.log(1500), abs=0.02)
    drawn.shuffle(others)
    assert expected(1500, 0.01, others, adam=True).tolist() == wanted.tolist()


def test_under_sgd_changes_grow_by_steps_at_most_and_shrink_by_their_root() -> None:
    others = [went(6.0), went(6.0), went(6.0)]
    assert expected(32, 0.01, others, adam=False)[0] == pytest.approx(0.12)
    assert expected(4, 0.01, others, adam=False)[0] == pytest.approx(0.03)


@pytest.mark.parametrize("adam", [True, False])
def test_what_is_too_long_is_scaled_down_and_longer_left_out(adam: bool) -> None:
    """The others lead to expect 8: up to 16 is whole, up to 20 scaled to 16, more is left out."""
    honest = {site: went(8.0) for site in "abc"}
    assert judged({**honest, "d": went(16.0)}, adam=adam) == {}
    assert judged({**honest, "d": went(19.0)}, adam=adam) == {"d": pytest.approx([16 / 19])}
    assert judged({**honest, "d": went(20.1)}, adam=adam) == {"d": "left out"}


def test_a_single_tensor_is_judged_too() -> None:
    honest = {site: went(8.0) for site in "abc"}
    for tensor, verdict in ((31.0, {}), (36.0, {"d": pytest.approx([2 * 16 / 36])}), (41.0, {"d": "left out"})):
        assert judged({**honest, "d": went(8.0, tensor=tensor)}) == verdict  # in 16 steps, straight on would be 16


def test_a_tensor_that_only_one_other_site_sent_is_not_judged() -> None:
    sends = {"a": went(8.0), "b": went(8.0, tensor=math.nan), "c": went(8.0, tensor=math.nan)}
    assert judged({**sends, "d": went(8.0, tensor=300.0)}) == {}


def test_a_tensor_whose_change_a_code_had_left_out_before_may_go_further() -> None:
    sites = {**{site: went(8.0) for site in "abc"}, "d": went(8.0, tensor=60.0)}
    assert judged(sites) == {"d": "left out"}
    assert judge(sites, [], True, 2.5, NAMES, stretch=2.0) == {}


def test_half_of_the_sites_cannot_make_the_other_half_look_long() -> None:
    assert judged({"a": went(6.0), "b": went(6.0), "c": went(0.01), "d": went(0.01)}) == {}


def test_sites_a_hundred_times_as_large_are_whole_and_their_flips_left_out() -> None:
    """As measured: exponents that fall from 0.66 to 0.50 between 3 and 375 steps."""
    honest = dict(zip("abcde", (went(2.06, 3), went(5.4, 12), went(9.7, 37), went(14.9, 125), went(19.5, 375)), strict=True))
    assert judged(honest) == {}
    for site, own in honest.items():
        flip = Distance(own.steps, own.rate, 5 * own.change)
        assert judged({**honest, site: flip}) == {site: "left out"}


def test_of_two_sites_the_longer_is_scaled_down_and_left_out_once_there_is_a_history() -> None:
    sites = {"a": went(8.0), "b": went(40.0)}
    assert judged(sites) == {"b": pytest.approx([2.5 * 8 / 40])}
    earlier = [went(8.0), went(9.0)]
    assert judged(sites, earlier) == {"b": "left out"}
    assert judged({"a": went(8.0), "b": went(9.0)}, earlier) == {}


def test_of_one_update_nothing_can_be_said() -> None:
    assert judged({"a": went(1e30)}) == judged({}) == {}


def test_a_site_that_changes_nothing_has_not_trained() -> None:
    sites = {"a": went(8.0), "b": went(8.0), "c": went(0.0)}
    (verdict,) = judge(sites, [], True, 2.5, NAMES).values()
    assert (verdict.reason, verdict.factors) == ("it says that it took 16 steps, and changes nothing", None)
    assert judged({site: went(0.0) for site in "abc"}, adam=False) == {}


def test_what_a_site_did_not_send_is_not_judged() -> None:
    sends = {site: went(8.0, tensor=math.nan) for site in "ab"}
    assert judged({**sends, "c": went(8.0, tensor=800.0), "d": Distance(16, 0.01, np.full(2, np.nan))}) == {}


def test_lengths_come_back_from_json() -> None:
    own = went(1 / 3, tensor=math.nan)
    told = own.values()
    assert told == {"steps": 16, "rate": 0.01, "change": [own.change[0], None]}
    np.testing.assert_array_equal(np.array(told["change"], float), own.change)


def test_who_opposes_the_others_goes_no_further_than_honest_sites_do() -> None:
    """Of 8 times the rate expected: under Adam 1.25 times that is taken, 1.5 times scaled down to it, and 1.6 times left out."""
    others = {name: went(8.0) for name in "abcd"}
    for times, verdict in ((1.2, {}), (1.5, {"e": [1.25 / 1.5]}), (1.6, {"e": "left out"})):
        sites = {**others, "e": went(8.0 * times)}
        found = judged(sites, opposing={"e"})
        assert found == ({"e": [pytest.approx(verdict["e"][0])]} if times == 1.5 else verdict)
        assert judged(sites) == judged(sites, adam=False, opposing={"e"}) == {}


def test_an_update_of_next_to_nothing_is_left_out_unless_half_of_all_are() -> None:
    sites = {name: went(8.0) for name in "abcd"}
    assert judged({**sites, "e": went(8.0 * 0.04)}) == {"e": "left out"}
    assert judged({**sites, "e": went(8.0 * 0.06)}) == {}
    assert judged({"a": went(8.0), "b": went(8.0), "c": went(1e-30), "d": went(1e-30)}) == {}
