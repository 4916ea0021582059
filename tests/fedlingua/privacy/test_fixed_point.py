"""Numbers of a secure sum: what they lose, that they never overflow, and how they are packed."""

import numpy as np
import pytest

from fedlingua.common.errors import ConfigError, ExchangeError
from fedlingua.privacy.fixed_point import Group, counted, decode, encode, next_exponents, pack, totals, unpack


@pytest.mark.parametrize(("sites", "bits", "top"), [(2, 12, 1023), (9, 12, 227), (16, 12, 127), (17, 16, 1927), (64, 16, 511)])
def test_the_smallest_group_in_which_all_sites_fit(sites: int, bits: int, top: int) -> None:
    group = Group.of(sites)
    assert (group.bits, group.top) == (bits, top)
    assert sites * group.top < 2 ** (bits - 1) <= (sites + 1) * (group.top + 1) * 2
    assert group.num_bytes(1000) / 1000 == {12: 1.5, 16: 2.0}[bits]


def test_more_sites_than_any_group_holds_are_refused() -> None:
    with pytest.raises(ConfigError, match="64 sites in a cluster at most, but one has 65"):
        Group.of(65)


@pytest.mark.parametrize("sites", [3, 16, 64])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_of_the_greatest_levels_does_not_overflow(sites: int, sign: int) -> None:
    group, change = Group.of(sites), np.full(5, sign * 0.25, np.float32)
    total = np.zeros(5, np.uint16)
    for site in range(sites):
        total += encode(change, [-2], [5], group, np.random.default_rng(site))[0]
    assert decode(group.reduced(total), [-2], [5], group).tolist() == [sign * 0.25 * sites] * 5


def test_rounding_is_exact_on_average_and_within_a_level() -> None:
    group, sizes = Group.of(12), [40, 60]
    change = np.random.default_rng(1).uniform(-0.9, 0.9, 100).astype(np.float32) * np.repeat([0.5, 0.125], sizes).astype(
        np.float32
    )
    decoded = []
    for seed in range(400):
        levels, cut = encode(change, [-1, -3], sizes, group, np.random.default_rng(seed))
        decoded.append(decode(levels, [-1, -3], sizes, group))
        assert cut == 0
    level = np.repeat([0.5, 0.125], sizes) / group.top
    assert (np.abs(decoded - change) <= level * 1.001).all()
    assert (np.abs(np.mean(decoded, axis=0) - change) < 0.12 * level).all()


def test_what_is_beyond_its_scale_is_cut_and_counted() -> None:
    levels, cut = encode(np.array([0.3, -9.0, 0.25], np.float32), [-2], [3], Group.of(4), np.random.default_rng(0))
    assert decode(levels, [-2], [3], Group.of(4)).tolist() == [0.25, -0.25, 0.25]
    assert cut == 2


def test_what_is_no_number_counts_as_cut_and_not_as_an_error_of_one_site() -> None:
    change = np.array([np.nan, 0.25, np.inf], np.float32)
    levels, cut = encode(change, [-2], [3], Group.of(4), np.random.default_rng(0))
    assert decode(levels, [-2], [3], Group.of(4)).tolist() == [0.0, 0.25, 0.0]
    assert cut == 2
    sums = [counted({"nll_sum": value}, ("nll_sum",)) for value in (np.nan, np.inf, 1e30, -1.0, 2.0**37)]
    assert {tuple(each.tolist()) for each in sums} == {(1 << 20, 1 << 57)}
    assert totals(63 * sums[0], ("nll_sum",)) == {"sites": 63.0, "nll_sum": 63 * 2.0**37}


@pytest.mark.parametrize("bits", [12, 16, 24])
@pytest.mark.parametrize("number", [-(2**40) - 3, -5, 0, 2047, 2**30 + 1])
def test_numbers_wrap_around_to_the_ones_next_to_0(bits: int, number: int) -> None:
    group = Group(bits, 3)
    (found,) = group.signed(group.reduced(np.array([number])))
    assert -(2 ** (bits - 1)) <= found < 2 ** (bits - 1)
    assert (int(found) - number) % 2**bits == 0


@pytest.mark.parametrize("bits", [12, 16, 24])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 1000])
def test_packing_keeps_every_bit(bits: int, count: int) -> None:
    group = Group(bits, 3)
    levels = np.random.default_rng(count).integers(0, 2**bits, count).astype(group.dtype)
    packed = pack(levels, group)
    assert len(packed) == group.num_bytes(count)
    assert unpack(packed, count, group).tolist() == levels.tolist()
    with pytest.raises(ExchangeError, match=f"wanted {group.num_bytes(count)} bytes"):
        unpack(np.append(packed, np.uint8(0)), count, group)


def test_scales_follow_the_mean_and_grow_where_numbers_were_cut() -> None:
    mean = np.array([0.1, -0.2, 0.0, 0.0, 3.0], np.float32)
    assert next_exponents(mean, [2, 2, 1], [1, -7, 5], most=3, cuts=False) == [0, -7, 3]  # 4 x 0.2 <= 2^0; all 0: as before
    assert next_exponents(mean, [2, 2, 1], [1, -7, 5], most=3, cuts=True) == [2, -6, 3]
