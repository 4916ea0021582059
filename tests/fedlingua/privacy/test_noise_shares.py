"""Noise in shares: its distribution, what rounding adds to the sensitivity, and its divergence beside Skellam's own, by brute force."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import ive, logsumexp

from fedlingua.common.errors import ConfigError
from fedlingua.exchange.tensors import TensorSet, TensorSpec
from fedlingua.privacy import noise_shares
from fedlingua.privacy.accounting import noise_for
from fedlingua.privacy.fixed_point import Group
from fedlingua.privacy.noise_shares import PartNoise, Skellam, planned
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Settings

SHARES = {
    "method": "adapter-fed",
    "privacy.sum": "secure",
    "dp.epsilon": 8.0,
    "dp.noise": "shares",
    "local-epochs": 1,
    "aggregation": "fed-avg",
    "rounds": 20,
}


def divergence(variance: float, moved: int, order: int) -> float:
    """The Rényi divergence of Skellam numbers from the same plus `moved`, summed term by term."""
    reach = int(30 * math.sqrt(variance)) + 60
    at = np.arange(-reach, reach + 1)
    with np.errstate(divide="ignore"):
        here, there = (np.log(ive(np.abs(at - by), variance)) for by in (0, moved))
    inside = np.isfinite(here) & np.isfinite(there)
    return float(logsumexp((order * here - (order - 1) * there)[inside]) / (order - 1))


@pytest.mark.parametrize("variance", [4.0, 30.0, 1000.0])
@pytest.mark.parametrize("moved", [1, 2, 5])
@pytest.mark.parametrize("order", [2, 3, 8, 32])
def test_the_divergence_of_skellam_noise_is_hardly_below_its_bound(variance: float, moved: int, order: int) -> None:
    gaussian = order * moved**2 / (2 * variance)
    found = divergence(variance, moved, order)
    assert found <= gaussian * (1 + 9 / (4 * variance))
    if variance >= 1000:
        assert found >= 0.99 * gaussian


@pytest.mark.parametrize("variance", [0.7, 12.0, 5000.0])
def test_the_numbers_are_skellams_and_0_comes_as_often_as_it_should(variance: float) -> None:
    drawn = Skellam(variance, b"k" * 32).draw(200_000)
    edges = np.unique(stats.skellam.ppf(np.linspace(0.02, 0.98, 25), variance / 2, variance / 2))
    below = stats.skellam.cdf(edges, variance / 2, variance / 2)
    expected = np.diff([0, *below, 1]) * len(drawn)
    counts = np.bincount(np.searchsorted(edges, drawn), minlength=len(expected))
    assert stats.chisquare(counts, expected).pvalue > 1e-4
    zeros, wanted = np.count_nonzero(drawn == 0), stats.skellam.pmf(0, variance / 2, variance / 2) * len(drawn)
    assert abs(zeros - wanted) < 5 * math.sqrt(wanted)
    assert np.var(drawn) == pytest.approx(variance, rel=0.02)


def test_shares_add_up_to_skellam_noise_of_the_whole_variance() -> None:
    total = sum(Skellam(3.0, bytes([site]) * 32).draw(100_000) for site in range(3))
    values = np.arange(-8, 9)
    counts = [np.count_nonzero(total < -8), *(np.count_nonzero(total == value) for value in values), np.count_nonzero(total > 8)]
    tail = stats.skellam.cdf(-9, 4.5, 4.5)
    expected = np.array([tail, *stats.skellam.pmf(values, 4.5, 4.5), tail]) * len(total)
    assert stats.chisquare(counts, expected * (sum(counts) / expected.sum())).pvalue > 1e-4


def without_noise(scale: float, top: int = 10_000, bits: int = 16) -> PartNoise:
    return PartNoise(scale, 0.5, 0.0, top, Group(bits, 9))


def test_rounding_keeps_to_its_bound_and_comes_close_to_its_expectation() -> None:
    """Random neighbours: the sum over all sentences with and without one, whose gradient has the norm of a clip."""
    rng, size, scale = np.random.default_rng(3), 400, 12.0
    part, squares, expected = without_noise(scale), [], []
    most = math.sqrt(math.log(1e12) / 2)
    bound = size / 4 + (2 * scale + math.sqrt(size)) * most
    for number in range(300):
        gradient = rng.standard_normal(size) * (rng.random(size) < rng.choice([0.01, 0.1, 1.0]))
        gradient *= 0.5 / max(np.linalg.norm(gradient), 1e-9)
        one = rng.standard_normal(size)
        seed = number.to_bytes(32)
        with_it, without_it = (part.levels(each.astype(np.float32), seed) for each in (one + gradient, one))
        e = (with_it - without_it).view(np.int16).astype(float)
        moved = gradient / 0.5 * scale
        assert np.all(np.abs(e - moved) < 1 + 1e-3)
        squares.append(float(e @ e))
        fraction = moved - np.floor(moved)
        expected.append(float(moved @ moved + (fraction * (1 - fraction)).sum()))
        assert squares[-1] <= scale**2 + bound
    assert np.mean(squares) == pytest.approx(np.mean(expected), rel=0.02)
    assert max(squares) > scale**2 + size / 8  # without what rounding adds the bound would not hold


def test_levels_follow_from_the_seed_and_are_cut_before_the_noise() -> None:
    part, sums = PartNoise(10.0, 0.5, 50.0, 200, Group(16, 9)), np.linspace(-30, 30, 5000).astype(np.float32)
    one, same, other = (part.levels(sums, seed) for seed in (b"a" * 32, b"a" * 32, b"b" * 32))
    assert (one == same).all()
    assert (one != other).mean() > 0.8
    exact = without_noise(10.0, 200).levels(sums, b"a" * 32).view(np.int16)
    assert (exact.min(), exact.max()) == (-200, 200)
    assert np.std((one.view(np.int16) - exact).astype(float)) == pytest.approx(50**0.5, rel=0.05)
    assert one.view(np.int16).max() > 205  # the noise itself is not cut


def test_rounding_and_noise_are_drawn_by_secrets_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    purposes, derived = [], noise_shares.derived

    def record_purpose(secret: bytes, purpose: str) -> bytes:
        purposes.append(purpose)
        return derived(secret, purpose)

    monkeypatch.setattr(noise_shares, "derived", record_purpose)
    PartNoise(10.0, 0.5, 50.0, 200, Group(16, 9)).levels(np.zeros(3, np.float32), b"a" * 32)
    assert len(set(purposes)) == len(purposes) == 2


@pytest.mark.parametrize("bits", [16, 24])
def test_a_sum_of_levels_is_the_step_along_the_mean_clipped_gradient(bits: int) -> None:
    part, sums = without_noise(100.0, bits=bits), np.array([0.5, -1.0, 2.0], np.float32)
    total = part.group.reduced(part.levels(sums, b"a" * 32) + part.levels(2 * sums, b"b" * 32))
    assert part.change(total, 0.1, 50) == pytest.approx(-0.1 * 3 * sums / 50, abs=2 * 0.1 * 0.5 / 100 / 50)


def chosen(encoder: int, decoder: int) -> TensorSet:
    return TensorSet("adapters", (TensorSpec("a", (encoder,), "encoder", 0), TensorSpec("b", (decoder // 2, 2), "decoder", 0)))


CLUSTERS: Any = {"encoder": {"all": tuple("abcdefghi")}, "decoder": {"x": ("a", "b", "c"), "y": tuple("defghi")}}


@pytest.fixture
def settings(run_config: dict[str, Any]) -> Settings:
    return settings_from({**run_config, **SHARES})


@pytest.mark.parametrize(
    ("encoder", "decoder", "factor", "bits"),
    [(9000, 40_000, 1.05, 16), (120_000, 120_000, 1.1, 16), (300_000, 80_000, 1.05, 24), (4_000_000, 8_000_000, 1.05, 24)],
)
def test_the_least_sum_has_the_noise_that_the_sensitivity_of_both_parts_asks_for(
    settings: Settings, encoder: int, decoder: int, factor: float, bits: int
) -> None:
    plan, noise = planned(settings, CLUSTERS, chosen(encoder, decoder), 1), noise_for(8.0, 1e-5, 1.0, 20, moments=True)
    most, squared, spent = math.sqrt(math.log(1e12) / 2), 1.0, 0.0
    for part, size, sites in (("encoder", encoder, 9), ("decoder", decoder, 6)):
        each = plan[part]
        rounded = size / 4 + (2 * each.scale + math.sqrt(size)) * most
        squared += rounded / each.scale**2
        # Of the gradient's squared norm each part may have a share; what it moves is greatest beside the noise with all of it.
        variance = 3 * each.variance
        spent += (rounded / variance) * (1 + 9 / (4 * variance))
        assert each.group == Group(bits, sites)
        assert 6 * math.sqrt(sites * each.variance) + sites * each.top <= 2 ** (bits - 1) - 1
        assert each.clip == settings.dp_clip
    assert squared == pytest.approx(factor**2)
    of_gradient = max((each.scale**2 / (3 * each.variance)) * (1 + 9 / (12 * each.variance)) for each in plan.values())
    assert of_gradient + spent == pytest.approx(1 / noise**2, rel=1e-5)
    assert of_gradient + spent <= 1 / noise**2 * (1 + 1e-9)


def test_noise_that_is_too_large_for_so_many_parameters_is_refused_with_what_to_change(settings: Settings) -> None:
    told = (
        r"noise of 9 sites for epsilon = 8 over 20 rounds, 2\.86 clips in a sum of 3, is too large .* 900,000,000 and 4,000,000 parameters"
        r"; train fewer parameters .* larger privacy.min-cluster or dp.epsilon, or fewer rounds"
    )
    with pytest.raises(ConfigError, match=told):
        planned(settings, CLUSTERS, chosen(900_000_000, 4_000_000), 1)


def test_numbers_grow_wider_rather_than_cut_the_sum_of_many_sentences(settings: Settings) -> None:
    plans = {
        sentences: planned(settings, CLUSTERS, chosen(20_000, 20_000), sentences)["encoder"] for sentences in (100, 400, 50_000)
    }
    reach = {sentences: each.top / each.scale for sentences, each in plans.items()}
    assert [each.group.bits for each in plans.values()] == [16, 16, 24]
    assert reach[100] > 3
    assert reach[400] > 12
    assert plans[100].scale == plans[50_000].scale > plans[400].scale
    assert reach[50_000] > 1500


@pytest.mark.parametrize(("sites", "size"), [(50, 20_000), (200, 1000), (200, 10_000)])
def test_among_many_sites_too_the_sum_of_one_may_reach_a_clip(settings: Settings, sites: int, size: int) -> None:
    plan = planned(settings, {"encoder": {"all": tuple(map(str, range(sites)))}}, chosen(size, 0), 1)["encoder"]
    assert plan.top >= plan.scale


def test_the_widest_noise_is_skellams() -> None:
    """At the largest variance it is normal to a thousandth."""
    drawn = Skellam(1e9, b"k" * 32).draw(200_000) / math.sqrt(1e9)
    assert stats.kstest(drawn, "norm").pvalue > 1e-4
