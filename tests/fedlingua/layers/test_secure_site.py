"""One site's side of secure sums: what it answers, and that what it refused left no trace. Lies are in tests/hostile/secure_table.py."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from clients.node import DeployedNode
from fedlingua.common.errors import ExchangeError
from fedlingua.consent.limits import SiteLimits
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.protocol import Task
from fedlingua.layers import secure_site as secure_sum
from fedlingua.layers.secure_site import SecureSite, Trust
from fedlingua.privacy.fixed_point import CHECKS, TRAINING, UNSENT, Group, unpack
from fedlingua.privacy.masks import MODELS, common_to_all, context, unmasked
from fedlingua.privacy.noise_shares import SEED, PartNoise
from fedlingua.privacy.roster import Roster, num_sums, training_sum
from fedlingua.privacy.secrets import SEALED_BYTES, recovered
from fedlingua.settings.checks import settings_from
from tests.hostile.secure_table import (
    CHOSEN,
    NAMES,
    OPENINGS,
    PARTS,
    ROSTERS,
    ROUNDS,
    SCALES,
    START,
    SUMS,
    Federation,
    begun,
    models_of,
    signed,
)


@pytest.fixture
def honest(tmp_path: Path) -> Federation:
    return begun(tmp_path)


def test_an_honest_server_is_answered(honest: Federation) -> None:
    sent = honest.train("b")
    group = Group.of(5)
    assert {name: len(array) for name, array in sent.items()} == {
        **{part: group.num_bytes(9 + CHECKS) for part in PARTS},
        "counters": 1 + len(TRAINING),
    }
    assert len(honest.site("b", 1).give_shares(honest.request("b", 1, ("a", "b", "c", "e")))["shares"]) == 5 * 32


def test_asked_again_it_gives_the_same(honest: Federation) -> None:
    assert honest.site("a").public_keys(ROUNDS) == {"channel": honest.roster.channels[0], "keys": honest.roster.keys[0]}
    one, two = honest.train("c"), honest.train("c")
    assert all((one[name] == two[name]).all() for name in one)
    request = honest.request("c", 1, NAMES)
    assert honest.site("c", 1).give_shares(request) == honest.site("c", 1).give_shares(request)
    honest.site("c").accept_roster(honest.roster.record())


def mask_gradients(federation: Federation, plan: Any, seed: bytes = b"a" * 32) -> dict[str, Any]:
    """What site a sends in round 1 where noise is made in shares."""
    sums = {spec.name: np.full(spec.shape, 0.1, np.float32) for spec in CHOSEN.specs} | {SEED: np.frombuffer(seed, np.uint8)}
    asked, site = {**SCALES, **models_of(START)}, federation.site("a", 1)
    return site.mask_update(sums, START, CHOSEN, {"steps": 1}, {}, asked, seed=7, size=30, measured=START, plan=plan)


@pytest.mark.parametrize("bits", [16, 24])
def test_noise_in_shares_is_drawn_once_and_the_sum_is_as_wide_as_planned(honest: Federation, bits: int) -> None:
    def plan(clusters: Any, chosen: Any, sentences: int) -> dict[str, PartNoise]:
        assert (clusters, chosen, sentences) == (honest.roster.clusters, CHOSEN, 1)
        return dict.fromkeys(PARTS, PartNoise(100.0, 0.1, 900.0, 1000, Group(bits, 5)))

    one, again = mask_gradients(honest, plan), mask_gradients(honest, plan)
    assert all((one[name] == again[name]).all() for name in one)
    assert {part: len(one[part]) for part in PARTS} == dict.fromkeys(PARTS, bits // 8 * (9 + CHECKS))
    with pytest.raises(ExchangeError, match="now with another update; masks are used once"):
        mask_gradients(honest, plan, b"b" * 32)


def test_every_part_has_noise_of_its_own(honest: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = []

    def levels(_: PartNoise, sums: Numbers, seed: bytes) -> Numbers:
        seeds.append(seed)
        return np.zeros(len(sums), np.uint16)

    monkeypatch.setattr(PartNoise, "levels", levels)
    mask_gradients(honest, lambda *_: dict.fromkeys(PARTS, PartNoise(100.0, 0.1, 900.0, 1000, Group(16, 5))))
    assert len(set(seeds)) == len(PARTS)


def test_noise_in_shares_is_planned_for_the_largest_site(tmp_path: Path) -> None:
    federation, planned_for = Federation(tmp_path), []
    federation.roster = replace(federation.roster, sizes=(30, 20, 30, 30, 40))

    def plan(clusters: Any, chosen: Any, sentences: int) -> dict[str, PartNoise]:
        planned_for.append(sentences)
        return dict.fromkeys(PARTS, PartNoise(100.0, 0.1, 900.0, 1000, Group(16, 5)))

    mask_gradients(federation.begin(), plan)
    assert planned_for == [40]


def test_rounding_is_drawn_anew_for_every_site_round_and_part(honest: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    states, encode = [], secure_sum.encode

    def record_state(change: Any, exponents: Any, sizes: Any, group: Group, draws: np.random.Generator) -> tuple[Numbers, int]:
        states.append(draws.bit_generator.state["state"]["state"])
        return encode(change, exponents, sizes, group, draws)

    monkeypatch.setattr(secure_sum, "encode", record_state)
    for site, number in (("a", 1), ("b", 1), ("a", 2)):
        honest.train(site, number)
    assert len(set(states)) == len(states) == 3 * len(PARTS)


@pytest.mark.parametrize(("noise", "least"), [("site", 2), ("shares", 4)])
def test_where_noise_is_made_in_shares_a_site_opens_no_sum_of_fewer_than_make_it_whole(
    noise: str, least: int, run_config: dict[str, Any]
) -> None:
    settings = settings_from({**run_config, "method": "adapter-fed", "privacy.sum": "secure", "privacy.min-cluster": 4})
    file = SimpleNamespace(limits=SiteLimits(min_cluster=2))
    node = SimpleNamespace(_file=file, settings=replace(settings, dp_epsilon=8.0, dp_noise=noise))
    assert DeployedNode.least_sites.fget(node) == least


def test_masks_cancel_only_where_all_sites_have_received_the_same(honest: Federation) -> None:
    """Also of the other part: sites whose decoder stalls would leave the sum of encoders to the one whose decoder is honest."""
    update = {spec.name: np.full(spec.shape, 0.1, np.float32) for spec in CHOSEN.specs}
    stalled = {name: array + 9 * name.startswith("decoder") for name, array in START.items()}

    def sum_of_encoders(tensors_of: dict[str, Any]) -> Any:
        sent = {}
        for name in NAMES:
            start = tensors_of.get(name, START)
            asked = {**SCALES, **models_of(start)}
            sent[name] = honest.site(name, 1).mask_update(update, start, CHOSEN, SUMS, {}, asked, seed=7, size=30, measured=start)
        shares = {name: honest.site(name, 1).give_shares(honest.request(name, 1, NAMES))["shares"] for name in NAMES}
        seeds = {
            owner: recovered({name: shares[name][32 * at : 32 * at + 32] for name in NAMES}, honest.roster)
            for at, owner in enumerate(NAMES)
        }
        group, number = Group.of(5), training_sum(1)
        common = common_to_all(json.loads(models_of(START)[MODELS]), None, 1)
        bound = context(honest.roster, "run", 1, number, "encoder", "all", SCALES["encoder"], common)
        total = sum((unpack(each["encoder"], 9 + CHECKS, group) for each in sent.values()), np.zeros(9 + CHECKS, np.uint16))
        return group.reduced(unmasked(total, honest.roster, NAMES, seeds, {}, number, bound))[9:]

    assert (sum_of_encoders({}) == 5).all()
    shutil.rmtree(honest.folder)
    honest.__init__(honest.folder)  # type: ignore[misc]
    honest.begin()
    assert (sum_of_encoders(dict.fromkeys(NAMES[1:], stalled)) != 5).any()


def test_what_was_refused_leaves_no_trace(tmp_path: Path) -> None:
    federation = Federation(tmp_path)
    for made, said in ROSTERS.values():
        with pytest.raises(ExchangeError, match=said):
            federation.site("a").accept_roster(made(federation))
    federation.begin()
    for ask, said in OPENINGS.values():
        with pytest.raises(ExchangeError, match=said):
            ask(federation)
    federation.train("a")
    federation.site("a", 1).give_shares(federation.request("a", 1, NAMES[:4]))


def test_another_attempt_has_other_secrets(honest: Federation) -> None:
    again = Federation(honest.folder, attempt=2).begin()
    assert not set(again.roster.keys) & set(honest.roster.keys)
    assert (again.train("a")["encoder"] != honest.train("a")["encoder"]).mean() > 0.9


def test_a_round_is_opened_for_one_list_of_survivors_in_all_attempts(honest: Federation) -> None:
    honest.train("a")
    honest.site("a", 1).give_shares(honest.request("a", 1, NAMES))
    with pytest.raises(ExchangeError, match="asked to open round 1 for a, b, c, d, but it was opened for a, b, c, d, e"):
        honest.site("a", 1).give_shares(honest.request("a", 1, NAMES[:4]))
    again = Federation(honest.folder, attempt=2).begin()
    again.train("a")
    with pytest.raises(ExchangeError, match="but it was opened for a, b, c, d, e"):
        again.site("a", 1).give_shares(again.request("a", 1, NAMES[:4]))
    again.site("a", 1).give_shares(again.request("a", 1, NAMES))


def test_a_cluster_with_too_few_survivors_is_not_opened(tmp_path: Path) -> None:
    federation = Federation(tmp_path, least=2)
    clusters: Any = {"encoder": {"one": ("a", "b"), "two": ("c", "d", "e")}, "decoder": {"all": NAMES}}
    federation.roster = Roster(NAMES, federation.roster.channels, federation.roster.keys, clusters)
    federation.begin()
    with pytest.raises(ExchangeError, match="a sum over 1 sites of the encoder cluster one; wanted 2"):
        federation.site("a", 1).give_shares(federation.request("a", 1, ("a", "c", "d", "e")))


@pytest.mark.parametrize(
    ("number", "scales", "said"),
    [
        (0, SCALES, "asked for masks of round 0; sites train in rounds from 1 on"),
        (4, SCALES, "asked about sum 9; the roster has keys for 1 to 8"),
        (1, {"encoder": [0], "decoder": [0, 0]}, "the scales of the encoder are .*; wanted 2 whole numbers"),
        (1, {**SCALES, "decoder": [0, 62]}, "the scales of the decoder"),
        (1, {**SCALES, "decoder": [0, -61]}, "the scales of the decoder"),
        (1, {**SCALES, "decoder": [0, 0.5]}, "the scales of the decoder"),
        (1, {"encoder": [0, 0]}, "the scales of the decoder are None"),
    ],
)
def test_masks_that_cannot_be_had(number: int, scales: dict[str, Any], said: str, honest: Federation) -> None:
    with pytest.raises(ExchangeError, match=said):
        honest.train("a", number, scales)


def test_tensors_that_are_left_out_are_not_in_the_sum_and_no_other_choice_is_masked_after(honest: Federation) -> None:
    whole = honest.train("a", 1, SCALES)["decoder"]
    honest.train("b", 1, {**SCALES, "decoder": [0, UNSENT]})
    part = honest.train("c", 1, {**SCALES, "decoder": [UNSENT, UNSENT]})["decoder"]
    assert len(part) == 3 * CHECKS // 2 < len(whole)
    with pytest.raises(ExchangeError, match=r"asked for .* again, now for other clusters, sizes, scales or tensors"):
        honest.train("b", 1, SCALES)


@pytest.mark.parametrize("change", ["clusters", "tensors"])
def test_a_round_is_not_masked_again_for_other_sites_under_the_same_names_or_from_other_tensors(
    change: str, honest: Federation
) -> None:
    honest.train("a")
    again, start = Federation(honest.folder, attempt=2), START
    if change == "clusters":
        others: Any = {"encoder": {"all": NAMES}, "decoder": {"all": NAMES[:3], "rest": NAMES[3:]}}
        again.roster = replace(again.roster, clusters=others)
    else:
        start = {name: array + 1 for name, array in START.items()}
    again.site("a").accept_roster(again.roster.record())
    update = {spec.name: np.full(spec.shape, 0.1, np.float32) for spec in CHOSEN.specs}
    asked = {**SCALES, **models_of(start)}
    with pytest.raises(ExchangeError, match="again, now for other clusters, sizes, scales or tensors"):
        again.site("a", 1).mask_update(update, start, CHOSEN, SUMS, {}, asked, seed=7, size=30, measured=start)


def test_nothing_is_answered_before_a_roster(tmp_path: Path) -> None:
    federation = Federation(tmp_path)
    with pytest.raises(ExchangeError, match="no roster came before in attempt 1"):
        federation.train("a")
    with pytest.raises(ExchangeError, match="no roster came before in attempt 1"):
        federation.site("a", 1).give_shares({"sum": 3, "survivors": ["a"], "sealed": b""})


def test_a_roster_that_the_owner_approved_and_all_sites_signed_is_accepted(tmp_path: Path) -> None:
    sites, roster, _ = signed(tmp_path)
    assert Roster.of(roster.record()) == roster
    assert len(sites["a"].accept_roster(roster.record())["sealed"]) == SEALED_BYTES * 5 * num_sums(ROUNDS)


def test_signatures_of_another_attempt_are_refused(tmp_path: Path) -> None:
    _, roster, approved = signed(tmp_path)
    later = SecureSite(tmp_path / "a", Task("a", "run", 2, 0), 3, Trust(tmp_path / "a" / "site.key", approved))
    sent = later.public_keys(ROUNDS)
    mixed = replace(
        roster,
        **{
            of: (sent[key], *getattr(roster, of)[1:])
            for of, key in (("channels", "channel"), ("keys", "keys"), ("signatures", "signature"))
        },
    )
    with pytest.raises(ExchangeError, match="the keys of site b in the roster are not signed"):
        later.accept_roster(mixed.record())


def test_secrets_can_be_read_by_the_site_alone(honest: Federation) -> None:
    assert (honest.folder / "a" / "secure").stat().st_mode & 0o077 == 0
