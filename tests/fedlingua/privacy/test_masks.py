"""Masks cancel in a sum over the survivors, whoever is gone, and in no other; a site's numbers alone show nothing."""

import itertools
import os
import random
from collections.abc import Sequence

import numpy as np
import pytest

from fedlingua.common.errors import ExchangeError
from fedlingua.privacy.fixed_point import counted, totals
from fedlingua.privacy.masks import common_to_all, context, masked, unmasked
from fedlingua.privacy.roster import Roster
from fedlingua.privacy.secrets import SEALED_BYTES, Secrets, check_public, fit_together, public_of, recovered


class World:
    """Sites with their secrets, all in the memory of one test."""

    def __init__(self, sites: int, rounds: int = 2) -> None:
        self.names = tuple(f"site-{number}" for number in range(sites))
        self.secrets = {name: Secrets(os.urandom(32)) for name in self.names}
        half = sites // 2
        self.clusters = {"encoder": {"one": self.names[:half], "two": self.names[half:]}, "shared": {"all": self.names}}
        channels = tuple(secrets.channel.public_key().public_bytes_raw() for secrets in self.secrets.values())
        keys = tuple(secrets.public_keys(rounds) for secrets in self.secrets.values())
        self.roster = Roster(self.names, channels, keys, self.clusters)  # type: ignore[arg-type]
        self.sealed = {name: self.secrets[name].sealed_shares(self.roster, name) for name in self.names}

    def share(self, owner: str, holder: str, number: int) -> tuple[bytes, bytes]:
        at = SEALED_BYTES * (self.names.index(holder) * self.roster.num_sums + number - 1)
        sealed = self.sealed[owner][at : at + SEALED_BYTES]
        return self.secrets[holder].open_share(sealed, self.roster, holder, owner, number)

    def opened(self, survivors: Sequence[str], holders: Sequence[str], number: int) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """Seeds of the survivors and keys of the others, as the server gets them."""
        seeds = {own: recovered({h: self.share(own, h, number)[0] for h in holders}, self.roster) for own in survivors}
        gone = [name for name in self.names if name not in survivors]
        return seeds, {own: recovered({h: self.share(own, h, number)[1] for h in holders}, self.roster) for own in gone}

    def bound(self, number: int = 1, received: str = "hash", cluster: str = "all") -> bytes:
        return context(self.roster, "run", 1, number, "shared", cluster, [0, -3], received)


def vectors(names: Sequence[str], seed: int, dtype: type = np.uint16) -> dict[str, np.ndarray]:
    draws = np.random.default_rng(seed)
    return {name: draws.integers(0, np.iinfo(dtype).max, 17, dtype, endpoint=True) for name in names}


@pytest.mark.parametrize("dtype", [np.uint16, np.uint64])
@pytest.mark.parametrize("gone", [(), ("site-1",), ("site-0", "site-4")])
def test_the_sum_over_the_survivors_is_exact(gone: tuple[str, ...], dtype: type) -> None:
    world, numbers = World(7), vectors([f"site-{each}" for each in range(7)], 5, dtype)
    survivors = [name for name in world.names if name not in gone]
    seeds, keys = world.opened(survivors, survivors[: world.roster.threshold], 2)
    for members in (world.names, world.clusters["encoder"]["two"]):
        bound = world.bound(2, cluster=str(len(members)))
        here = [name for name in members if name in survivors]
        total = np.zeros(17, dtype)
        for name in here:
            total += masked(numbers[name], world.secrets[name], world.roster, name, members, 2, bound)
        opened = unmasked(total, world.roster, members, seeds, keys, 2, bound)
        assert opened.tolist() == np.sum([numbers[name] for name in here], axis=0, dtype=dtype).tolist()


def schedules(count: int, seed: int) -> None:
    """Sites that are lost before they train, after it, and before they send shares: exact, or refused by name; never a wrong sum."""
    draws, worlds, told = random.Random(seed), {n: World(n, 1) for n in range(3, 13)}, {"exact": 0, "refused": 0}
    for _ in range(count):
        world = worlds[draws.randrange(3, 13)]
        share = draws.choice([0.0, 0.15, 0.3, 0.5])
        survivors = [name for name in world.names if draws.random() >= share]
        holders = [name for name in survivors if draws.random() >= share]
        numbers, bound, total = vectors(world.names, draws.randrange(1 << 30)), world.bound(), np.zeros(17, np.uint16)
        for name in survivors:
            total += masked(numbers[name], world.secrets[name], world.roster, name, world.names, 1, bound)
        if len(holders) < world.roster.threshold:
            with pytest.raises(ExchangeError, match=f"wanted {world.roster.threshold} of {len(world.names)}"):
                world.opened(survivors, holders, 1)
            told["refused"] += 1
            continue
        seeds, keys = world.opened(survivors, holders, 1)
        opened = unmasked(total, world.roster, world.names, seeds, keys, 1, bound)
        assert opened.tolist() == np.sum([numbers[name] for name in survivors], axis=0, dtype=np.uint16).tolist()
        told["exact"] += 1
    assert min(told.values()) > count / 10, told


def test_sixty_drawn_schedules_of_lost_sites() -> None:
    schedules(60, 2022)


@pytest.mark.slow
def test_a_thousand_drawn_schedules_of_lost_sites() -> None:
    schedules(1000, 2023)


def test_a_third_of_ten_sites_may_be_lost_and_one_of_four() -> None:
    assert {n: n - World(n, 1).roster.threshold for n in (3, 4, 6, 10, 12)} == {3: 0, 4: 1, 6: 1, 10: 3, 12: 3}


def test_two_lists_of_survivors_cannot_both_be_opened_by_sites_that_each_open_one() -> None:
    for sites in range(3, 51):
        assert 2 * (2 * sites // 3 + 1) - sites > sites // 3 - 1


def test_sites_that_are_told_different_things_have_masks_that_do_not_cancel() -> None:
    world, numbers = World(4), vectors([f"site-{each}" for each in range(4)], 9)
    seeds, keys = world.opened(world.names, world.names, 1)
    about = {
        "tensors": world.bound(received="other"),
        "round": world.bound(2),
        "cluster": world.bound(cluster="other"),
        "scales": context(world.roster, "run", 1, 1, "shared", "all", [0, -4], "hash"),
        "attempt": context(world.roster, "run", 2, 1, "shared", "all", [0, -3], "hash"),
        "run": context(world.roster, "other", 1, 1, "shared", "all", [0, -3], "hash"),
        "roster": context(World(4).roster, "run", 1, 1, "shared", "all", [0, -3], "hash"),
        "part": context(world.roster, "run", 1, 1, "encoder", "all", [0, -3], "hash"),
    }
    true = np.sum([*numbers.values()], axis=0, dtype=np.uint16)
    for what, lie in about.items():
        total = np.zeros(17, np.uint16)
        for name in world.names:
            bound = lie if name == "site-2" else world.bound()
            total += masked(numbers[name], world.secrets[name], world.roster, name, world.names, 1, bound)
        for bound in (world.bound(), lie):
            opened = unmasked(total, world.roster, world.names, seeds, keys, 1, bound)
            assert (opened == true).mean() < 0.3, what


def test_sites_that_are_asked_in_another_round_or_to_measure_another_one_have_other_things_in_common() -> None:
    assert len({common_to_all({}, measure, number) for measure in (None, 0, 1) for number in (1, 2)}) == 6


def test_masked_numbers_are_uniform_and_of_two_sites_they_are_not_the_same() -> None:
    world, zeros = World(3), np.zeros(60_000, np.uint16)
    sent = [masked(zeros, world.secrets[name], world.roster, name, world.names, 1, world.bound()) for name in world.names]
    for one, other in itertools.pairwise(sent):
        assert (one == other).mean() < 0.001
    counts = np.bincount(sent[0] >> 8, minlength=256)
    assert ((counts - 60_000 / 256) ** 2 / (60_000 / 256)).sum() < 340  # chi square, 255 degrees: p = 3e-4


def test_fewer_shares_than_the_threshold_make_no_secret() -> None:
    world = World(6)
    shares = {holder: world.share("site-0", holder, 1)[1] for holder in world.names}
    assert recovered(shares, world.roster) == world.secrets["site-0"].private_key(1)
    assert public_of(recovered(shares, world.roster)) == world.roster.public_key("site-0", 1)
    fewer = dict(list(shares.items())[: world.roster.threshold - 1])
    with pytest.raises(ExchangeError, match="4 sites gave their share of a secret; wanted 5 of 6"):
        recovered(fewer, world.roster)
    damaged = {**shares, "site-1": bytes(32)}
    assert recovered(damaged, world.roster) != world.secrets["site-0"].private_key(1)
    assert fit_together(shares, world.roster)
    assert not fit_together(damaged, world.roster)
    assert not fit_together({**shares, "site-5": bytes(32)}, world.roster)  # beyond the threshold


def test_no_two_secrets_of_a_site_are_alike() -> None:
    secrets = World(3).secrets["site-0"]
    of_sums = [secret(number) for secret in (secrets.own_seed, secrets.private_key) for number in range(1, 9)]
    assert len({*of_sums, secrets.channel.private_bytes_raw()}) == 17


def test_a_share_opens_for_its_holder_round_and_sender_alone() -> None:
    world = World(4)
    at = SEALED_BYTES * world.roster.num_sums
    sealed = world.sealed["site-0"][at : at + SEALED_BYTES]  # for site-1, round 1
    holder = world.secrets["site-1"]
    assert len(holder.open_share(sealed, world.roster, "site-1", "site-0", 1)[0]) == 32
    other = Roster(world.names, world.roster.channels, world.roster.keys, {"shared": world.clusters["shared"]})  # type: ignore[dict-item]
    for secrets, roster, site, sender, number, what in (
        (holder, world.roster, "site-1", "site-0", 2, sealed),
        (holder, world.roster, "site-1", "site-2", 1, sealed),
        (world.secrets["site-2"], world.roster, "site-2", "site-0", 1, sealed),
        (holder, other, "site-1", "site-0", 1, sealed),
        (holder, world.roster, "site-1", "site-0", 1, sealed[:-1] + bytes([sealed[-1] ^ 1])),
        (holder, world.roster, "site-1", "site-0", 1, sealed[:-17] + bytes([sealed[-17] ^ 1]) + sealed[-16:]),  # its seed's hash
        (holder, world.roster, "site-1", "site-0", 1, b""),
        (holder, world.roster, "site-1", "site-0", 1, world.sealed["site-1"][:SEALED_BYTES]),  # its own for site-0
    ):
        with pytest.raises(ExchangeError, match="is not sealed for this site"):
            secrets.open_share(what, roster, site, sender, number)


def test_a_key_that_everybody_shares_is_refused() -> None:
    world = World(3)
    weak = Roster(world.names, world.roster.channels, (bytes(64), *world.roster.keys[1:]), world.clusters)  # type: ignore[arg-type]
    with pytest.raises(ExchangeError, match="public key is none, or one of low order"):
        masked(np.zeros(1, np.uint16), world.secrets["site-1"], weak, "site-1", world.names, 1, world.bound())


LOW_ORDER = tuple(
    bytes.fromhex(each)
    for each in (
        "00" * 32,
        "01" + "00" * 31,
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    )
)
"""All points of order 8 and less that X25519 reads: https://cr.yp.to/ecdh.html, "validate"."""


@pytest.mark.parametrize("weak", LOW_ORDER)
def test_a_key_of_low_order_is_found_among_others(weak: bytes) -> None:
    good = World(3).roster.keys[0]
    check_public(good)
    with pytest.raises(ExchangeError, match="of low order"):
        check_public(good + weak)


def test_counters_add_up_to_totals() -> None:
    names = ("steps", "num_tokens", "nll_sum", "cut")
    one = counted({"steps": 3, "num_tokens": 2**36 + 1, "nll_sum": 1234.5678, "cut": 2}, names)
    two = counted({"steps": 5, "num_tokens": 900, "nll_sum": 0.25}, names)
    wanted = {"sites": 2, "steps": 8, "num_tokens": 2**36 + 901, "nll_sum": 1234.8178, "cut": 2}
    assert totals(one + two, names) == pytest.approx(wanted, rel=1e-15, abs=2e-6)
