"""A server that lies about secure sums: over the very objects that a site answers with, and what they refuse."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from fedlingua.backbones.parts import Part
from fedlingua.common.errors import ExchangeError
from fedlingua.desk.deployment.site_setup import make_key
from fedlingua.exchange.held import digest_of
from fedlingua.exchange.joined import join
from fedlingua.exchange.protocol import Task
from fedlingua.exchange.tensors import TensorSet, TensorSpec
from fedlingua.layers.secure_site import SecureSite, Trust
from fedlingua.privacy.fixed_point import UNSENT
from fedlingua.privacy.masks import MODELS, WITHOUT
from fedlingua.privacy.roster import SCORES, Roster, dev_loss_sum, members_hash, num_sums, training_sum
from fedlingua.privacy.secrets import SEALED_BYTES
from tests.hostile.attacks import Attack, Outcome

TITLE = "A server that lies about secure sums"
NAMES = ("a", "b", "c", "d", "e")
ROUNDS = 3
PARTS: tuple[Part, ...] = ("encoder", "decoder")
CHOSEN = TensorSet("adapters", tuple(TensorSpec(f"{part}.{at}", (3, at + 1), part, at) for part in PARTS for at in range(2)))
SUMS = {"steps": 4, "num_examples": 30, "num_tokens": 500, "nll_sum": 1000.0, "seconds": 1.0}
DEV = {"num_examples": 5, "num_tokens": 60, "nll_sum": 90.0}
START = {spec.name: np.zeros(spec.shape, np.float32) for spec in CHOSEN.specs}
ONE, TWO = SEALED_BYTES, 2 * SEALED_BYTES
SCALES = {"encoder": [0, -1], "decoder": [-2, 0]}


def models_of(tensors: Mapping[str, np.ndarray]) -> dict[str, str]:
    """What a request says that all sites have received."""
    return {MODELS: json.dumps({part: {"all": digest_of(numbers)} for part, numbers in join(tensors, CHOSEN).items()})}


MODELS_OF_ALL = models_of(START)


class Federation:
    """Five sites, and the server's part of the protocol as plain as it can be."""

    def __init__(self, folder: Path, attempt: int = 1, least: int = 3) -> None:
        self.folder, self.attempt, self.least = folder, attempt, least
        sent = {name: self.site(name).public_keys(ROUNDS) for name in NAMES}
        channels, keys = (tuple(sent[name][key] for name in NAMES) for key in ("channel", "keys"))
        clusters: Any = {"encoder": {"all": NAMES}, "decoder": {"all": NAMES}}
        self.roster = Roster(NAMES, channels, keys, clusters)

    def site(self, name: str, number: int = 0) -> SecureSite:
        return SecureSite(self.folder / name, Task(name, "run", self.attempt, number), self.least)

    def begin(self) -> "Federation":
        self.sealed = {name: self.site(name).accept_roster(self.roster.record())["sealed"] for name in NAMES}
        return self

    def request(self, holder: str, number: int, survivors: tuple[str, ...]) -> dict[str, Any]:
        return self.opening(holder, training_sum(number), survivors)

    def opening(self, holder: str, number: int, survivors: tuple[str, ...] = NAMES) -> dict[str, Any]:
        """A request to open any sum, by its number."""
        at = SEALED_BYTES * (NAMES.index(holder) * num_sums(ROUNDS) + number - 1)
        sealed = b"".join(self.sealed[name][at : at + SEALED_BYTES] for name in NAMES)
        return {"sum": number, "survivors": list(survivors), "sealed": sealed}

    def train(
        self, name: str, number: int = 1, scales: Mapping[str, Any] = SCALES, dev: Mapping[str, float] = MappingProxyType({})
    ) -> dict[str, np.ndarray]:
        update = {spec.name: np.full(spec.shape, 0.1, np.float32) for spec in CHOSEN.specs}
        asked = {**MODELS_OF_ALL, **scales}
        return self.site(name, number).mask_update(update, START, CHOSEN, SUMS, dev, asked, seed=7, size=30, measured=START)


def begun(folder: Path) -> Federation:
    """A federation whose sites have the roster."""
    return Federation(folder).begin()


def signed(folder: Path) -> tuple[dict[str, SecureSite], Roster, set[str]]:
    """Sites with node keys, their roster, and what their owners approved."""
    approved: set[str] = set()
    lines = {name: make_key(folder / name / "site.key") for name in NAMES}
    sites = {
        name: SecureSite(folder / name, Task(name, "run", 1, 0), 3, Trust(folder / name / "site.key", approved)) for name in NAMES
    }
    sent = {name: site.public_keys(ROUNDS) for name, site in sites.items()}
    channels, keys, signers, signatures = (
        tuple(sent[name][key] for name in NAMES) for key in ("channel", "keys", "signer", "signature")
    )
    clusters: Any = {"encoder": {"all": NAMES}, "decoder": {"all": NAMES}}
    approved.add(members_hash({name: f"{line} a comment" for name, line in lines.items()}))
    return sites, Roster(NAMES, channels, keys, clusters, signers, signatures), approved


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
    "of a run with other settings": (
        lambda f: _record(f, settings="other"),
        "other settings than this site was asked to run with",
    ),
    "nearly all of the weight": (lambda f: _record(f, sizes=[900, 1, 1, 1, 1]), "site a has 100% of the weight"),
    "sizes of some sites alone": (lambda f: _record(f, sizes=[30, 30]), "the roster of the secure sum is not one"),
}


def _opens(change: Any = None, holder: str = "a", survivors: tuple[str, ...] = NAMES, number: int = 1) -> Any:
    def lie(federation: Federation) -> None:
        request = federation.request(holder, number, survivors)
        federation.site("a", 1).give_shares(change(request, federation) if change else request)

    return lie


OPENINGS: dict[str, tuple[Any, str]] = {
    "a stranger among the survivors": (_opens(survivors=("a", "b", "c", "x")), "wanted sites of the roster in its order"),
    "a survivor twice": (_opens(survivors=("a", "b", "b", "c", "d")), "wanted sites of the roster in its order"),
    "survivors in another order": (_opens(survivors=("b", "a", "c", "d")), "wanted sites of the roster in its order"),
    "it is not among the survivors": (_opens(survivors=("b", "c", "d", "e")), "a among them"),
    "a sum over itself": (_opens(survivors=("a",)), "asked to open a sum over 1 of 5 sites; wanted 4"),
    "nobody": (_opens(survivors=()), "a sum over nobody"),
    "fewer than the threshold": (_opens(survivors=("a", "b", "c")), "asked to open a sum over 3 of 5 sites; wanted 4"),
    "another round's sum": (_opens(number=2), "asked in round 1 to open round 2"),
    "shares of another round": (
        _opens(lambda r, f: {**r, "sealed": f.request("a", 2, NAMES)["sealed"]}),
        "the share of a for sum 3 is not sealed for this site",
    ),
    "a sum without keys": (_opens(lambda r, f: {**r, "sum": 9}), "asked about sum 9; the roster has keys for 1 to 8"),
    "shares for another site": (_opens(holder="b"), "is not sealed for this site"),
    "shares of two sites exchanged": (
        lambda f: f.site("a", 1).give_shares(
            (lambda r: {**r, "sealed": r["sealed"][ONE:TWO] + r["sealed"][:ONE] + r["sealed"][TWO:]})(f.request("a", 1, NAMES))
        ),
        "is not sealed for this site",
    ),
    "a share too few": (_opens(lambda r, f: {**r, "sealed": r["sealed"][:-ONE]}), f"got {4 * ONE} bytes of sealed shares"),
    "a share that was changed": (
        _opens(lambda r, f: {**r, "sealed": bytes([r["sealed"][0] ^ 1]) + r["sealed"][1:]}),
        "is not sealed",
    ),
    "no survivors at all": (_opens(lambda r, f: {"sealed": r["sealed"]}), "has its number, its survivors and sealed"),
}


def _second_roster(federation: Federation) -> None:
    fewer = Roster(NAMES[:4], federation.roster.channels[:4], federation.roster.keys[:4], {"encoder": {"all": NAMES[:4]}})
    federation.site("a").accept_roster(fewer.record())


def _other_size(federation: Federation) -> None:
    federation.roster = replace(federation.roster, sizes=(20, 30, 30, 30, 30))
    federation.begin().train("a")


def _most_of_the_weight_left(federation: Federation) -> None:
    federation.roster = replace(federation.roster, sizes=(60, 25, 1, 1, 50))
    federation.begin().site("a", 1).give_shares(federation.request("a", 1, NAMES[:4]))


def _opened_again(federation: Federation, attempt: int) -> None:
    federation.train("a")
    federation.site("a", 1).give_shares(federation.request("a", 1, NAMES))
    again = federation if attempt == 1 else Federation(federation.folder, attempt).begin()
    again.train("a")
    again.site("a", 1).give_shares(again.request("a", 1, NAMES[:4]))


def _dev_loss_over_others(federation: Federation) -> None:
    """The dev loss of the same tensors, first among a round's counters, then by itself and over one site fewer."""
    federation.train("a", 2, dev=DEV)
    federation.site("a", 2).give_shares(federation.request("a", 2, NAMES))
    federation.site("a", 1).mask_dev_loss(DEV, START, CHOSEN, MODELS_OF_ALL)
    federation.site("a", 1).give_shares(federation.opening("a", dev_loss_sum(1), NAMES[:4]))


def _opened_before_it_has_sent(federation: Federation) -> None:
    """A round's sum before the site trained: what it holds could then not be told apart from a dev loss over one site fewer."""
    federation.site("a", 2).give_shares(federation.request("a", 2, NAMES))


def _scores_over_others(federation: Federation) -> None:
    federation.site("a", 3).mask_scores("translation", {}, START, CHOSEN, MODELS_OF_ALL)
    federation.site("a", 3).give_shares(federation.opening("a", SCORES))
    federation.site("a", 3).give_shares(federation.opening("a", SCORES, NAMES[:4]))


def _of_fewer_than_allowed(folder: Path, number: int) -> None:
    federation = Federation(folder, least=5).begin()
    federation.site("a", 1).give_shares(federation.opening("a", number, NAMES[:4]))


def _dev_loss_of_other_tensors(federation: Federation) -> None:
    """Another dev loss under the same masks."""
    federation.site("a", 1).mask_dev_loss(DEV, START, CHOSEN, MODELS_OF_ALL)
    moved = {name: array + 1 for name, array in START.items()}
    federation.site("a", 1).mask_dev_loss({**DEV, "nll_sum": 80.0}, moved, CHOSEN, models_of(moved))


def _asked_otherwise(federation: Federation, **changes: Any) -> None:
    """A round once more, in another attempt, with other clusters or scales."""
    federation.train("a")
    again = Federation(federation.folder, 2)
    again.roster = replace(again.roster, **{key: value for key, value in changes.items() if key != "scales"})
    again.begin().train("a", scales=changes.get("scales", SCALES))


def _from_another_stage(federation: Federation) -> None:
    """A round once more, in another attempt, trained on from something else that the site stored."""
    again, asked = Federation(federation.folder, 2).begin(), {**MODELS_OF_ALL, **SCALES}
    update = {spec.name: np.full(spec.shape, 0.1, np.float32) for spec in CHOSEN.specs}
    for each, stored in ((federation, "of round 1"), (again, "")):
        each.site("a", 2).mask_update(update, START, CHOSEN, SUMS, {}, asked, seed=7, size=30, measured=START, stored=stored)


def _another_update(federation: Federation) -> None:
    """A second update under the masks of the first, from the same tensors."""
    asked = {**MODELS_OF_ALL, **SCALES}
    for size in (0.1, 0.2):
        update = {spec.name: np.full(spec.shape, size, np.float32) for spec in CHOSEN.specs}
        federation.site("a", 1).mask_update(update, START, CHOSEN, SUMS, {}, asked, seed=7, size=30, measured=START)


def _without(federation: Federation, *gone: str) -> dict[str, np.ndarray]:
    return federation.train("a", scales={**SCALES, WITHOUT: list(gone)})


def _with_another_list(federation: Federation) -> None:
    """A round's masks once more, now without those of another site."""
    federation.train("a")
    _without(federation, "e")


def _without_most_of_a_cluster(federation: Federation) -> None:
    clusters: Any = {"encoder": {"all": NAMES}, "decoder": {"one": NAMES[:2], "two": NAMES[2:]}}
    federation.roster = replace(federation.roster, clusters=clusters)
    federation.least = 2
    _without(federation.begin(), "b")


def _another_sites_share(folder: Path) -> Outcome:
    """A share that another site has not sealed as it should, or that the server has changed: the site gives no more than the others."""
    federation = begun(folder)
    federation.train("a")
    request, held = federation.request("a", 1, NAMES), federation.sealed["b"]
    request["sealed"] = request["sealed"][:ONE] + bytes(ONE) + request["sealed"][TWO:]
    shares = federation.site("a", 1).give_shares(request)["shares"]
    good = [shares[32 * at : 32 * (at + 1)] for at in range(5)]
    untouched = len(held) == ONE * len(NAMES) * num_sums(ROUNDS) and all(good[:1] + good[2:])
    return Outcome(good[1] == bytes(32) and untouched, "zeros for the share of b, and those of the others")


def _signed_lie(folder: Path, change: Callable[[Roster, set[str]], Roster]) -> None:
    sites, roster, approved = signed(folder)
    sites["a"].accept_roster(change(roster, approved).record())


def _in_place(what: str, roster: Roster, _: set[str]) -> Roster:
    given = getattr(roster, what)
    changes: dict[str, Any] = {what: (*given[:2], bytes(len(given[2])), *given[3:])}
    return replace(roster, **changes)


def _stranger(roster: Roster, _: set[str]) -> Roster:
    names = ("a", "b", "c", "d", "x")
    return replace(roster, names=names, clusters={"encoder": {"all": names}})


def _not_approved(roster: Roster, approved: set[str]) -> Roster:
    approved.clear()
    return roster


SIGNED: dict[str, tuple[Callable[[Roster, set[str]], Roster], str]] = {
    "a key for shares in place of another site's": (
        partial(_in_place, "channels"),
        "keys of site c in the roster are not signed",
    ),
    "keys for masks in place of another site's": (partial(_in_place, "keys"), "keys of site c in the roster are not signed"),
    "signatures of other sites": (
        lambda roster, _: replace(roster, signatures=roster.signatures[::-1]),
        "keys of site a in the roster are not signed",
    ),
    "no signatures": (lambda roster, _: replace(roster, signers=(), signatures=()), "which this site has not approved"),
    "a site that nobody approved": (_stranger, "which this site has not approved"),
    "sites that the owner did not approve": (_not_approved, "which this site has not approved"),
}


def refused(play: Callable[[Path], object], said: str, folder: Path) -> Outcome:
    """Whether a lie was refused in these words."""
    try:
        play(folder)
    except ExchangeError as error:
        return Outcome(re.search(said, str(error)) is not None, str(error))
    return Outcome(False, "answered")


def attacks() -> list[Attack]:
    """By what the server lies about: the roster, the opening of a sum, keys, scales."""
    found = []

    def add(name: str, said: str, play: Callable[[Path], object]) -> None:
        found.append(Attack(name, partial(refused, play, said)))

    for name, (made, said) in ROSTERS.items():
        add(f"roster: {name}", said, lambda folder, made=made: (f := Federation(folder)).site("a").accept_roster(made(f)))
    add("roster: a second one in an attempt", "got another roster in attempt 1", lambda folder: _second_roster(begun(folder)))
    for name, (change, said) in SIGNED.items():
        add(f"roster: {name}", said, partial(_signed_lie, change=change))
    for name, (ask, said) in OPENINGS.items():
        add(f"opening: {name}", said, lambda folder, ask=ask: ask(begun(folder)))
    again = "was opened for a, b, c, d, e; two such sums give away"
    add("opening: one site fewer than before", again, lambda folder: _opened_again(begun(folder), 1))
    add("opening: one site fewer, in another attempt", again, lambda folder: _opened_again(begun(folder), 2))
    add(
        "opening: the dev loss of the same tensors, one site fewer",
        "asked to open the dev loss of these tensors for a, b, c, d, but it was opened for a, b, c, d, e",
        lambda folder: _dev_loss_over_others(begun(folder)),
    )
    add(
        "opening: before the site has sent its part",
        "asked to open round 2, to which this site has sent nothing yet",
        lambda folder: _opened_before_it_has_sent(begun(folder)),
    )
    add("opening: the scores, one site fewer", "was opened for a, b, c, d, e", lambda folder: _scores_over_others(begun(folder)))
    for name, number in (("the dev loss", dev_loss_sum(1)), ("the scores", SCORES)):
        add(
            f"opening: {name} of fewer sites than the site's file allows",
            "asked to open a sum over 4 of 5 sites; wanted 5",
            lambda folder, number=number: _of_fewer_than_allowed(folder, number),
        )
    add("masks: of a round without keys", "asked about sum 9", lambda folder: begun(folder).train("a", 4))
    add("masks: of training in round 0", "sites train in rounds from 1 on", lambda folder: begun(folder).train("a", 0))
    add(
        "masks: of two dev losses",
        "asked about the dev loss of round 1 again, now of other numbers",
        lambda folder: _dev_loss_of_other_tensors(begun(folder)),
    )
    otherwise = "asked for round 1 again, now for other clusters, sizes, scales or tensors"
    add("masks: other weights in another attempt", otherwise, lambda f: _asked_otherwise(begun(f), sizes=(30,) * 5))
    other = {**SCALES, "decoder": [-1, 0]}
    add("masks: other scales in another attempt", otherwise, lambda f: _asked_otherwise(begun(f), scales=other))
    fewer = {**SCALES, "decoder": [0, UNSENT]}
    add("masks: without a tensor in another attempt", otherwise, lambda f: _asked_otherwise(begun(f), scales=fewer))
    add(
        "masks: from another stage in another attempt",
        otherwise.replace("round 1", "round 2"),
        lambda f: _from_another_stage(begun(f)),
    )
    add("masks: of two updates", "again, now with another update; masks are used once", lambda f: _another_update(begun(f)))
    moved = models_of({name: array + 1 for name, array in START.items()})
    add("masks: on other tensors than came", "this site has received", lambda f: begun(f).train("a", scales={**SCALES, **moved}))
    unsaid = {**SCALES, MODELS: ""}
    add("masks: on tensors that are not said", "has to say which tensors", lambda f: begun(f).train("a", scales=unsaid))
    far = {**SCALES, "decoder": [0, 62]}
    add("masks: a scale of 2^62", "the scales of the decoder", lambda folder: begun(folder).train("a", 1, far))
    add(
        "masks: another size than its own",
        "weighs site a by 20 sentences; it has 30",
        lambda folder: _other_size(Federation(folder)),
    )
    add(
        "masks: without the site itself",
        "without a; wanted sites of the roster, each once, not a",
        lambda f: _without(begun(f), "a"),
    )
    add("masks: without a stranger", "without x; wanted sites of the roster", lambda f: _without(begun(f), "x"))
    add("masks: without a site twice", "without e, e; wanted sites of the roster", lambda f: _without(begun(f), "e", "e"))
    add("masks: without two of five", "asked for a sum of 3 of 5 sites; wanted 4", lambda f: _without(begun(f), "d", "e"))
    add(
        "masks: without the other of two",
        "over 1 sites of the decoder cluster one",
        lambda f: _without_most_of_a_cluster(Federation(f, least=2)),
    )
    add(
        "masks: without another site than before",
        "now with another update; masks are used once",
        lambda f: _with_another_list(begun(f)),
    )
    found.append(Attack("opening: a share of another site that is none", _another_sites_share))
    most = "site a has 69% of the weight in the secure sum of a, b, c, d"
    add("opening: nearly all of the weight left", most, lambda folder: _most_of_the_weight_left(Federation(folder)))
    add("masks: before any roster", "no roster came before", lambda folder: Federation(folder).train("a"))
    return found


ATTACKS = attacks()
