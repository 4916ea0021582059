"""What a site refuses of a server that lies about secure sums: each lie over the very objects that a site answers with."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clients.secure_sum import SecureSite, Trust
from fedlingua.backbones.parts import Part
from fedlingua.common.errors import ExchangeError
from fedlingua.consent.keys import make_key
from fedlingua.exchange.protocol import Task
from fedlingua.exchange.tensors import TensorSet, TensorSpec
from fedlingua.privacy.fixed_point import Group
from fedlingua.privacy.roster import Roster, members_hash
from fedlingua.privacy.secrets import SEALED_BYTES
from fedlingua.privacy.sums import CHECKS

NAMES = ("a", "b", "c", "d", "e")
ROUNDS = 3
PARTS: tuple[Part, ...] = ("encoder", "decoder")
CHOSEN = TensorSet("adapters", tuple(TensorSpec(f"{part}.{at}", (3, at + 1), part, at) for part in PARTS for at in range(2)))
SUMS = {"steps": 4, "num_examples": 30, "num_tokens": 500, "nll_sum": 1000.0, "seconds": 1.0}
SCALES = {"encoder": [0, -1], "decoder": [-2, 0]}


class Federation:
    """Five sites, and the server's part of the protocol as plain as it can be."""

    def __init__(self, folder: Path, attempt: int = 1, least: int = 3) -> None:
        self.folder, self.attempt, self.least = folder, attempt, least
        sent = {name: self.site(name).keys(ROUNDS) for name in NAMES}
        channels, keys = (tuple(sent[name][key] for name in NAMES) for key in ("channel", "keys"))
        clusters: Any = {"encoder": {"all": NAMES}, "decoder": {"all": NAMES}}
        self.roster = Roster(NAMES, channels, keys, clusters)

    def site(self, name: str, number: int = 0) -> SecureSite:
        return SecureSite(self.folder / name, Task(name, "run", self.attempt, number), self.least)

    def begin(self) -> "Federation":
        self.sealed = {name: self.site(name).shares(self.roster.record())["sealed"] for name in NAMES}
        return self

    def request(self, holder: str, number: int, survivors: tuple[str, ...]) -> dict[str, Any]:
        at = SEALED_BYTES * (NAMES.index(holder) * ROUNDS + number - 1)
        return {"survivors": list(survivors), "sealed": b"".join(self.sealed[name][at : at + SEALED_BYTES] for name in NAMES)}

    def train(self, name: str, number: int = 1, scales: Mapping[str, Any] = SCALES) -> dict[str, np.ndarray]:
        start = {spec.name: np.zeros(spec.shape, np.float32) for spec in CHOSEN.specs}
        update = {spec.name: np.full(spec.shape, 0.1, np.float32) for spec in CHOSEN.specs}
        return self.site(name, number).masked(update, start, CHOSEN, SUMS, scales, seed=7)


@pytest.fixture
def honest(tmp_path: Path) -> Federation:
    return Federation(tmp_path).begin()


def test_an_honest_server_is_answered(honest: Federation) -> None:
    sent = honest.train("b")
    group = Group.of(5)
    assert {name: len(array) for name, array in sent.items()} == {
        **{part: group.num_bytes(9 + CHECKS) for part in PARTS},
        "counters": 6,
    }
    assert len(honest.site("b", 1).shares_of(honest.request("b", 1, ("a", "b", "c", "e")))["shares"]) == 5 * 32


def test_asked_again_it_gives_the_same(honest: Federation) -> None:
    assert honest.site("a").keys(ROUNDS) == {"channel": honest.roster.channels[0], "keys": honest.roster.keys[0]}
    one, two = honest.train("c"), honest.train("c")
    assert all((one[name] == two[name]).all() for name in one)
    request = honest.request("c", 1, NAMES)
    assert honest.site("c", 1).shares_of(request) == honest.site("c", 1).shares_of(request)
    honest.site("c").shares(honest.roster.record())


def test_another_attempt_has_other_secrets(honest: Federation) -> None:
    again = Federation(honest.folder, attempt=2).begin()
    assert not set(again.roster.keys) & set(honest.roster.keys)
    assert (again.train("a")["encoder"] != honest.train("a")["encoder"]).mean() > 0.9


def _record(federation: Federation, **change: Any) -> dict[str, Any]:
    return {**federation.roster.record(), **change}


ROSTERS: dict[str, tuple[Any, str]] = {
    "another key in the place of its own": (
        lambda f: _record(f, keys=bytes(32) + f.roster.record()["keys"][32:]),
        "does not have site a with the keys that it sent",
    ),
    "another key for its shares": (
        lambda f: _record(f, channels=b"".join([f.roster.channels[1], *f.roster.channels[1:]])),
        "does not have site a with the keys that it sent",
    ),
    "keys for fewer rounds": (
        lambda f: _record(f, keys=b"".join(keys[:32] for keys in f.roster.keys[::-1])),
        "does not have site a with the keys that it sent",
    ),
    "a roster without it": (
        lambda f: Roster(NAMES[1:], f.roster.channels[1:], f.roster.keys[1:], {"encoder": {"all": NAMES[1:]}}).record(),
        "does not have site a",
    ),
    "alone in a cluster": (
        lambda f: Roster(
            NAMES, f.roster.channels, f.roster.keys, {"encoder": {"one": ("a",), "two": NAMES[1:]}, "decoder": {"all": NAMES}}
        ).record(),
        "the encoder cluster one has 1 sites; this site takes part in sums of 3 or more",
    ),
    "in a cluster of two": (
        lambda f: Roster(
            NAMES, f.roster.channels, f.roster.keys, {"encoder": {"all": NAMES}, "decoder": {"one": ("a", "b"), "two": NAMES[2:]}}
        ).record(),
        "the decoder cluster one has 2 sites",
    ),
    "a site twice": (lambda f: _record(f, names=["a", "a", "c", "d", "e"]), "the roster of the secure sum is not one"),
}


@pytest.mark.parametrize("lie", ROSTERS)
def test_a_roster_that_lies_is_refused(lie: str, tmp_path: Path) -> None:
    federation = Federation(tmp_path)
    made, said = ROSTERS[lie]
    with pytest.raises(ExchangeError, match=said):
        federation.site("a").shares(made(federation))
    federation.begin()  # nothing was stored of the lie


def test_a_second_roster_in_an_attempt_is_refused(honest: Federation) -> None:
    fewer = Roster(NAMES[:4], honest.roster.channels[:4], honest.roster.keys[:4], {"encoder": {"all": NAMES[:4]}})
    with pytest.raises(ExchangeError, match="got another roster in attempt 1"):
        honest.site("a").shares(fewer.record())


def _opens(change: Any = None, holder: str = "a", survivors: tuple[str, ...] = NAMES, number: int = 1) -> Any:
    def lie(federation: Federation) -> None:
        request = federation.request(holder, number, survivors)
        federation.site("a", 1).shares_of(change(request, federation) if change else request)

    return lie


OPENINGS: dict[str, tuple[Any, str]] = {
    "a stranger among the survivors": (_opens(survivors=("a", "b", "c", "x")), "wanted sites of the roster in its order"),
    "a survivor twice": (_opens(survivors=("a", "b", "b", "c", "d")), "wanted sites of the roster in its order"),
    "survivors in another order": (_opens(survivors=("b", "a", "c", "d")), "wanted sites of the roster in its order"),
    "it is not among the survivors": (_opens(survivors=("b", "c", "d", "e")), "a among them"),
    "a sum over itself": (_opens(survivors=("a",)), "asked to open a sum over 1 of 5 sites; wanted 4"),
    "nobody": (_opens(survivors=()), "a sum over nobody"),
    "fewer than the threshold": (_opens(survivors=("a", "b", "c")), "asked to open a sum over 3 of 5 sites; wanted 4"),
    "shares of another round": (_opens(number=2), "the share of a for round 1 is not sealed for this site"),
    "shares for another site": (_opens(holder="b"), "is not sealed for this site"),
    "shares of two sites exchanged": (
        lambda f: f.site("a", 1).shares_of(
            (lambda r: {**r, "sealed": r["sealed"][80:160] + r["sealed"][:80] + r["sealed"][160:]})(f.request("a", 1, NAMES))
        ),
        "is not sealed for this site",
    ),
    "a share too few": (_opens(lambda r, f: {**r, "sealed": r["sealed"][:-80]}), "got 320 bytes of sealed shares"),
    "a share that was changed": (
        _opens(lambda r, f: {**r, "sealed": bytes([r["sealed"][0] ^ 1]) + r["sealed"][1:]}),
        "is not sealed",
    ),
    "no survivors at all": (_opens(lambda r, f: {"sealed": r["sealed"]}), "has its survivors and sealed shares"),
}


@pytest.mark.parametrize("lie", OPENINGS)
def test_an_opening_that_lies_is_refused(lie: str, honest: Federation) -> None:
    ask, said = OPENINGS[lie]
    with pytest.raises(ExchangeError, match=said):
        ask(honest)
    honest.site("a", 1).shares_of(honest.request("a", 1, NAMES[:4]))  # nothing was entered in the ledger


def test_a_round_is_opened_for_one_list_of_survivors_in_all_attempts(honest: Federation) -> None:
    honest.site("a", 1).shares_of(honest.request("a", 1, NAMES))
    with pytest.raises(ExchangeError, match="asked to open round 1 for a, b, c, d, but it was opened for a, b, c, d, e"):
        honest.site("a", 1).shares_of(honest.request("a", 1, NAMES[:4]))
    again = Federation(honest.folder, attempt=2).begin()
    with pytest.raises(ExchangeError, match="but it was opened for a, b, c, d, e"):
        again.site("a", 1).shares_of(again.request("a", 1, NAMES[:4]))
    again.site("a", 1).shares_of(again.request("a", 1, NAMES))


def test_a_cluster_with_too_few_survivors_is_not_opened(tmp_path: Path) -> None:
    federation = Federation(tmp_path, least=2)
    clusters: Any = {"encoder": {"one": ("a", "b"), "two": ("c", "d", "e")}, "decoder": {"all": NAMES}}
    federation.roster = Roster(NAMES, federation.roster.channels, federation.roster.keys, clusters)
    federation.begin()
    with pytest.raises(ExchangeError, match="a sum over 1 sites of the encoder cluster one; wanted 2"):
        federation.site("a", 1).shares_of(federation.request("a", 1, ("a", "c", "d", "e")))


@pytest.mark.parametrize(
    ("number", "scales", "said"),
    [
        (0, SCALES, "asked for masks of round 0; the roster has keys for 1 to 3"),
        (4, SCALES, "asked for masks of round 4"),
        (1, {"encoder": [0], "decoder": [0, 0]}, "the scales of the encoder are .*; wanted 2 whole numbers"),
        (1, {**SCALES, "decoder": [0, 61]}, "the scales of the decoder"),
        (1, {**SCALES, "decoder": [0, 0.5]}, "the scales of the decoder"),
        (1, {"encoder": [0, 0]}, "the scales of the decoder are None"),
    ],
)
def test_masks_that_cannot_be_had(number: int, scales: dict[str, Any], said: str, honest: Federation) -> None:
    with pytest.raises(ExchangeError, match=said):
        honest.train("a", number, scales)


def test_nothing_is_answered_before_a_roster(tmp_path: Path) -> None:
    federation = Federation(tmp_path)
    with pytest.raises(ExchangeError, match="no roster came before in attempt 1"):
        federation.train("a")
    with pytest.raises(ExchangeError, match="no roster came before in attempt 1"):
        federation.site("a", 1).shares_of({"survivors": ["a"], "sealed": b""})


def signed(folder: Path) -> tuple[dict[str, SecureSite], Roster, set[str]]:
    """Sites with node keys, their roster, and what their owners approved."""
    approved: set[str] = set()
    lines = {name: make_key(folder / name / "site.key") for name in NAMES}
    sites = {
        name: SecureSite(folder / name, Task(name, "run", 1, 0), 3, Trust(folder / name / "site.key", approved)) for name in NAMES
    }
    sent = {name: site.keys(ROUNDS) for name, site in sites.items()}
    channels, keys, signers, signatures = (
        tuple(sent[name][key] for name in NAMES) for key in ("channel", "keys", "signer", "signature")
    )
    clusters: Any = {"encoder": {"all": NAMES}, "decoder": {"all": NAMES}}
    approved.add(members_hash({name: f"{line} a comment" for name, line in lines.items()}))
    return sites, Roster(NAMES, channels, keys, clusters, signers, signatures), approved


def test_a_roster_that_the_owner_approved_and_all_sites_signed_is_accepted(tmp_path: Path) -> None:
    sites, roster, _ = signed(tmp_path)
    assert Roster.of(roster.record()) == roster
    assert len(sites["a"].shares(roster.record())["sealed"]) == SEALED_BYTES * 5 * ROUNDS


@pytest.mark.parametrize("what", ["channels", "keys"])
def test_keys_that_the_server_put_in_place_of_a_sites_are_refused(what: str, tmp_path: Path) -> None:
    sites, roster, _ = signed(tmp_path)
    lie = (*getattr(roster, what)[:2], bytes(len(getattr(roster, what)[2])), *getattr(roster, what)[3:])
    with pytest.raises(ExchangeError, match="the keys of site c in the roster are not signed by its node key"):
        sites["a"].shares(replace(roster, **{what: lie}).record())
    sites["a"].shares(roster.record())


def test_sites_that_the_owner_did_not_approve_are_refused(tmp_path: Path) -> None:
    sites, roster, approved = signed(tmp_path)
    stranger = make_key(tmp_path / "stranger.key")
    for lie in (
        replace(roster, signers=(*roster.signers[:4], stranger)),
        replace(roster, signers=(), signatures=()),
        replace(roster, names=("a", "b", "c", "d", "x"), clusters={"encoder": {"all": ("a", "b", "c", "d", "x")}}),
    ):
        with pytest.raises(
            ExchangeError, match=r"make [0-9a-f]{64}, which this site has not approved; at the site: `fedlingua site"
        ):
            sites["a"].shares(lie.record())
    again = replace(roster, signatures=roster.signatures[::-1])
    with pytest.raises(ExchangeError, match="the keys of site a in the roster are not signed"):
        sites["a"].shares(again.record())
    approved.clear()
    with pytest.raises(ExchangeError, match="which this site has not approved"):
        sites["a"].shares(roster.record())


def test_signatures_of_another_attempt_are_refused(tmp_path: Path) -> None:
    _, roster, approved = signed(tmp_path)
    later = SecureSite(tmp_path / "a", Task("a", "run", 2, 0), 3, Trust(tmp_path / "a" / "site.key", approved))
    sent = later.keys(ROUNDS)
    mixed = replace(
        roster,
        **{
            of: (sent[key], *getattr(roster, of)[1:])
            for of, key in (("channels", "channel"), ("keys", "keys"), ("signatures", "signature"))
        },
    )
    with pytest.raises(ExchangeError, match="the keys of site b in the roster are not signed"):
        later.shares(mixed.record())


def test_secrets_can_be_read_by_the_site_alone(honest: Federation) -> None:
    assert (honest.folder / "a" / "secure").stat().st_mode & 0o077 == 0
