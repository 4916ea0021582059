"""MetaSend's module (algorithm 2, lines 5 and 9; eq. 5): what it says, what moves it, and that it finds a theta known to be best."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from fedlingua.common.errors import RunError
from fedlingua.exchange.tensors import TensorSet, TensorSpec
from fedlingua.selection.learned_threshold import MEMORY, ThresholdModel
from fedlingua.selection.meta_gradient import mean_over_sites, own_slope, products
from fedlingua.selection.rules import Keep
from fedlingua.settings.checks import settings_from
from fedlingua.settings.experiment import default_run_config

SPREAD = 0.25
"""sigma as a share of mu, as in a run: nearly all thetas drawn are within half of mu around it, and one in 30,000 is below 0."""
LOSSES = {"a": 2.0, "b": 3.5, "c": 1.0}
SITES = list(LOSSES)


DEFAULTS = settings_from(default_run_config())


def new(sites: Sequence[str], seed: int, spread: float = 0.0, **options: Any) -> ThresholdModel:
    """A new module; with a spread, of the estimator `loss`."""
    explores = {"meta_estimator": "loss"} if spread else {}
    model = ThresholdModel(sites, replace(DEFAULTS, seed=seed, **explores, **options))
    model.spread = spread
    return model


def of_scale(scale: float, *about: Any, **settings: Any) -> ThresholdModel:
    model = new(*about, **settings)
    model.begin([scale])
    return model


def started(seed: int = 1, scale: float = 0.01, **settings: Any) -> ThresholdModel:
    """A module that has said its first theta."""
    model = of_scale(scale, SITES, seed, **settings)
    model.theta(LOSSES)
    return model


def as_bytes(model: ThresholdModel) -> tuple[dict[str, bytes], dict[str, Any]]:
    tensors, values = model.state()
    return {name: tensor.tobytes() for name, tensor in tensors.items()}, values


def later(number: int) -> dict[str, float]:
    """Losses of a later round."""
    return {site: loss * 0.9**number for site, loss in LOSSES.items()}


# --- Where theta begins --------------------------------------------------------------------------------------------------------


def test_the_first_theta_is_the_median_of_the_first_deviations() -> None:
    model = new(SITES, 1)
    model.begin([0.001, math.inf, 0.002, 0.008, 0.0])
    assert model.scale == 0.002
    assert model.theta(LOSSES).value == pytest.approx(0.002)
    model.begin([7.0])
    assert model.scale == 0.002
    assert model.tau == pytest.approx(0.0002)


def test_a_scale_that_follows_is_each_rounds_median_and_stays_where_a_round_has_none() -> None:
    model = new(SITES, 1, meta_scale="round")
    model.begin([0.001, 0.003])
    first = model.theta(LOSSES)
    assert first.value == pytest.approx(0.002)
    model.begin([0.5, 0.7])
    assert (model.scale, model.tau) == (pytest.approx(0.6), pytest.approx(0.06))
    assert model.theta(LOSSES).value == pytest.approx(0.6)
    model.begin([math.inf, 0.0])
    assert model.scale == pytest.approx(0.6)


def test_without_a_deviation_there_is_nowhere_to_begin() -> None:
    with pytest.raises(RunError, match="none of the 2 sites that answered has a tensor whose deviation is finite and above 0"):
        new(SITES, 1).begin([math.inf, 0.0])


@pytest.mark.parametrize("loss", [0.0, 1e3, 1e29, -1e29])
def test_theta_is_above_0_whatever_the_losses(loss: float) -> None:
    for seed in range(4):
        assert 0 < started(seed).theta({"a": loss, "b": -loss, "c": loss}).value < math.inf


@pytest.mark.parametrize("output", [1e4, -1e4])
def test_an_output_counts_as_50_at_most(output: float) -> None:
    model = started(scale=0.01)
    model.weights["theta.output.bias"].data.fill_(output)
    assert 0 < model.theta(LOSSES).value < 51 * 0.01


def learned() -> ThresholdModel:
    """A module whose losses have a say."""
    model = started()
    model.step(5.0)
    return model


def test_every_site_has_its_own_input() -> None:
    assert learned().theta({"a": 3.5, "b": 2.0, "c": 1.0}).value != learned().theta(LOSSES).value
    assert learned().theta({"c": 1.0, "b": 3.5, "a": 2.0}).value == learned().theta(LOSSES).value


@pytest.mark.parametrize("seed", range(4))
def test_only_learning_moves_theta_and_falling_losses_do_not(seed: int) -> None:
    model = started(seed)
    assert [model.theta(later(number)).value for number in range(1, 12)] == [pytest.approx(0.01)] * 11
    model.step(5.0)
    assert model.theta(LOSSES).value < 0.0099


# --- Sites that are not here ---------------------------------------------------------------------------------------------------


def test_for_a_site_that_is_absent_its_last_loss_stands_in_and_is_told() -> None:
    theta = started().theta({"a": 1.9, "c": 0.9})
    assert theta.value == started().theta({"a": 1.9, "b": 3.5, "c": 0.9}).value
    assert theta.replaced == {"b": "it gave no loss; its last, 3.5, is used"}
    assert started().theta(LOSSES).replaced == {}


def test_for_a_site_that_was_never_here_the_mean_of_the_others_stands_in_each_time_anew() -> None:
    model = of_scale(1.0, SITES, 1)
    assert model.theta({"a": 2.0, "b": 3.0}).replaced == {"c": "it gave no loss; the mean of the others, 2.5, is used"}
    other = of_scale(1.0, SITES, 1)
    other.theta({"a": 2.0, "b": 3.0, "c": 2.5})
    assert model.theta({"a": 1.0, "b": 2.0}).value == other.theta({"a": 1.0, "b": 2.0, "c": 1.5}).value


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf, 1e38])
def test_a_loss_that_is_no_number_counts_as_absent_and_is_named(loss: float) -> None:
    theta = started().theta({**later(1), "b": loss})
    assert theta.value == started().theta({**later(1), "b": 3.5}).value
    assert theta.replaced == {"b": f"its loss is {loss}; its last, 3.5, is used"}


def test_no_loss_at_all_makes_no_theta() -> None:
    with pytest.raises(RunError, match="no site gave a training loss"):
        of_scale(1.0, SITES, 1).theta({"a": math.nan})


# --- Steps ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slope", [0.1, -20.0])
def test_the_first_step_of_adam_moves_every_weight_that_counts_by_the_learning_rate(slope: float) -> None:
    """m / sqrt(v) is the sign of the gradient then, so its size does not matter; theta goes against the slope."""
    model = started()
    before, _ = model.state()
    theta = model.theta(LOSSES).value
    assert model.step(slope)
    after, _ = model.state()
    moved = np.abs(after["theta.output.weight"] - before["theta.output.weight"])
    assert set(np.where(moved > 0, (moved / DEFAULTS.meta_learning_rate).round(2), 0)) == {
        0,
        1,
    }  # 0: neurons that ReLU has closed
    assert 10 < (moved > 0).sum() < 100
    assert (model.theta(LOSSES).value < theta) == (slope > 0)


@pytest.mark.parametrize("slope", [math.nan, math.inf, -math.inf, 1e308, 1e30])
def test_a_slope_that_is_no_number_changes_nothing(slope: float) -> None:
    model = started(scale=1.0)
    model.step(0.3)
    model.theta(LOSSES)
    before = as_bytes(model)
    assert not model.step(slope)
    assert as_bytes(model) == before
    assert model.step(0.3)


def test_a_theta_is_good_for_one_step() -> None:
    model = started()
    model.step(1.0)
    with pytest.raises(AssertionError):
        model.step(1.0)


# --- Trying out (estimator loss) -----------------------------------------------------------------------------------------------


def test_what_is_tried_lies_around_the_mlps_theta_and_above_0() -> None:
    model = started(spread=2.0)
    thetas = [model.theta(LOSSES) for _ in range(2000)]
    assert {theta.mu for theta in thetas} == {thetas[0].mu}
    assert all(theta.value == abs(theta.drawn) > 0 for theta in thetas)
    assert any(theta.drawn < 0 for theta in thetas)
    assert np.mean([theta.drawn for theta in thetas]) == pytest.approx(0.01, abs=3 * 0.02 / math.sqrt(2000))
    assert np.std([theta.drawn for theta in thetas]) == pytest.approx(0.02, rel=0.05)


def test_the_baseline_is_of_earlier_losses_and_the_first_loss_only_begins_it() -> None:
    model = started(spread=SPREAD)
    assert not model.step_by_loss({"a": 4.0, "b": 6.0}, HALF)
    assert (model.baselines, dict(model.adam.state)) == ({"a": 4.0, "b": 6.0}, {})
    theta = model.theta(LOSSES)
    assert model.step_by_loss({"a": 3.0, "b": 6.0}, HALF)
    assert model.baselines == pytest.approx({"a": MEMORY * 4 + (1 - MEMORY) * 3, "b": 6.0})
    # A lower loss than before: theta goes where it was drawn.
    assert (model.theta(LOSSES).mu > theta.mu) == (theta.drawn > theta.mu)


def test_a_validation_loss_that_is_no_number_is_left_out_of_the_baseline_too() -> None:
    model = started(spread=SPREAD)
    model.step_by_loss({"a": 4.0}, HALF)
    model.theta(LOSSES)
    assert not model.step_by_loss({"a": math.nan}, HALF)
    assert (model.baselines, dict(model.adam.state)) == ({"a": 4.0}, {})


def test_who_answers_does_not_move_theta() -> None:
    """Sites with other losses come and go, each with the loss it always has: there is nothing to learn from that."""
    model = started(spread=SPREAD)
    model.step_by_loss({"a": 3.0, "b": 5.0}, HALF)
    before = model.theta(LOSSES).mu
    for answered in ({"a": 3.0}, {"b": 5.0}, {"a": 3.0, "b": 5.0}):
        assert model.step_by_loss(answered, HALF)
        assert model.theta(LOSSES).mu == before


# --- The same bytes ------------------------------------------------------------------------------------------------------------


def rounds(model: ThresholdModel, numbers: range) -> list[float]:
    """A run of the estimator `loss`; its thetas."""
    found = []
    for number in numbers:
        found.append(model.theta(later(number)).value)
        model.step_by_loss(dict.fromkeys(SITES, 3 - found[-1] * number), dict.fromkeys(SITES, 1.0))
        model.report([0.0, 0.0, 0.0])
    return found


def test_the_same_seed_says_the_same_thetas_and_another_others() -> None:
    runs = [rounds(of_scale(0.1, SITES, seed, spread=SPREAD), range(6)) for seed in (3, 3, 4)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


@pytest.mark.parametrize("stop", [0, 1, 5])
def test_after_a_stop_it_goes_on_as_if_there_had_been_none(stop: int, tmp_path: Path) -> None:
    whole, first = (of_scale(0.1, SITES, 3, spread=SPREAD) for _ in range(2))
    wanted = rounds(whole, range(8))
    found = rounds(first, range(stop))
    tensors, values = first.state()
    save_file(tensors, tmp_path / "state.safetensors")
    second = new(SITES, 99, spread=SPREAD)
    second.restore(load_file(tmp_path / "state.safetensors"), json.loads(json.dumps(values)))
    assert as_bytes(second) == as_bytes(first)
    assert found + rounds(second, range(stop, 8)) == wanted
    assert as_bytes(second) == as_bytes(whole)


# --- Silence -------------------------------------------------------------------------------------------------------------------


def test_a_theta_that_lets_nobody_send_for_two_rounds_is_reported() -> None:
    model = started()
    nothing = [0.0, 0.0, 0.0]
    assert model.report(nothing) is None
    assert model.report([0.0, 0.1, 0.0]) is None
    assert model.report(nothing) is None
    theta = model.theta(later(3)).value
    assert f"no site has sent anything for two rounds: theta was 0.01, then {theta:.3g}" in str(model.report(nothing))
    assert model.report(nothing)


# --- It learns -----------------------------------------------------------------------------------------------------------------

NUMBER = 40
HALF = {"a": 0.5, "b": 0.5}


class Federation:
    """Two sites with L_j = |W - c_j|^2 / 2 that move every tensor in turn, by 0.05 to 2.1 (its deviation), and want different things.

    On the side of `best` that is kept, a move is good for both sites; on the other it is good for who moved and twice as bad for the other
    one. So who looks at its own loss alone sends everything.
    """

    def __init__(self, keep: Keep, best: float) -> None:
        self.keep = keep
        self.start = {f"{i:02}": np.zeros(1, np.float32) for i in range(NUMBER)}
        self.deviations: dict[str, dict[str, float]] = {"a": {}, "b": {}}
        self.trained: dict[str, dict[str, Any]] = {"a": {}, "b": {}}
        self.wanted: dict[str, dict[str, float]] = {"a": {}, "b": {}}
        for i, name in enumerate(self.start):
            moves, rests = "ab" if i % 2 else "ba"
            deviation = (i + 1) * 2.1 / NUMBER
            good = (deviation >= best) == (keep == "g")
            self.deviations[moves][name], self.deviations[rests][name] = deviation, 0.0
            self.trained[moves][name], self.trained[rests][name] = np.array([deviation], np.float32), self.start[name]
            self.wanted[moves][name], self.wanted[rests][name] = deviation, deviation if good else -2 * deviation
        self.chosen = TensorSet("turns", tuple(TensorSpec(name, (1,), "encoder", 0) for name in self.start))

    def send(self, theta: float) -> dict[str, dict[str, Any]]:
        return {
            site: {n: tensor for n, tensor in tensors.items() if (self.deviations[site][n] >= theta) == (self.keep == "g")}
            for site, tensors in self.trained.items()
        }

    def gradients(self, sent: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Of each L_j at W_s."""
        folded = {n: sum(HALF[site] * sent[site][n] for site in "ab" if n in sent[site]) + self.start[n] for n in self.start}
        return {site: {n: folded[n] - self.wanted[site][n] for n in folded} for site in "ab"}

    def own_of(self, site: str, gradients: dict[str, Any], *about: Any) -> float:
        return own_slope(products(gradients, self.start, self.trained[site]), 0.5, self.deviations[site], *about)

    def own(self, model: ThresholdModel, theta: float) -> float:
        gradients = self.gradients(self.send(theta))
        return mean_over_sites({s: self.own_of(s, gradients[s], theta, model.tau, self.keep) for s in "ab"}, HALF)

    def loss(self, theta: float) -> float:
        """L_val."""
        gradients = self.gradients(self.send(theta))
        return sum(0.5 * sum(float(g[0] ** 2) / 2 for g in gradients[site].values()) for site in "ab")


def learnt(federation: Federation, estimator: str, number: int, scale: float | None = None) -> list[float]:
    """The MLP's theta in each of so many rounds, tensors really sent or not sent."""
    model = new("ab", 0, spread=SPREAD if estimator == "loss" else 0)
    model.begin([scale] if scale else [value for of_site in federation.deviations.values() for value in of_site.values()])
    random, found = Random(0), []
    for _ in range(number):
        theta = model.theta({site: random.gauss(2, 0.1) for site in "ab"})
        found.append(theta.mu)
        if estimator == "loss":
            model.step_by_loss(dict.fromkeys("ab", federation.loss(theta.value)), HALF)
        else:
            model.step(federation.own(model, theta.value))
    return found


@pytest.mark.parametrize("best", [0.6, 1.6])
def test_by_loss_theta_is_where_it_is_best_within_a_seventh_after_many_rounds(best: float) -> None:
    assert np.mean(learnt(Federation("g", best), "loss", 1000)[-300:]) == pytest.approx(best, rel=1 / 7)


@pytest.mark.parametrize("keep", ["g", "l"])
def test_by_own_everything_is_sent_where_sites_are_at_odds(keep: Keep) -> None:
    federation = Federation(keep, best=1.6 if keep == "g" else 0.6)
    end = learnt(federation, "own", 200)[-1]
    assert sum(map(len, federation.send(end).values())) >= 0.9 * NUMBER


def test_a_theta_past_all_deviations_finds_back() -> None:
    """Nothing is sent, and what was trained is heard of all the same."""
    assert learnt(Federation("g", 1.6), "own", 40, scale=5.0)[-1] < 2
