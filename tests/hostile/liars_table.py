"""Sites that lie in a secure sum, in real runs with their last phase: who is named, and what it does to the others.

Four sites sum under masks, so the server sees none of their parts. Of these one lies, and the others are honest.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
from flwr.app import Array, ConfigRecord, Error, Message

from fedlingua.common.errors import RunError
from fedlingua.exchange import protocol
from fedlingua.privacy.fixed_point import CHECKS, SITES, TRAINING, Group, pack, unpack
from fedlingua.privacy.roster import dev_loss_sum, training_sum
from fedlingua.privacy.secrets import SEALED_BYTES, SECRET_BYTES
from tests.hostile.attacks import Attack, Outcome
from tests.hostile.world import SITE, world
from tests.in_process import Tamper, rounds, run

TITLE = "Sites that lie in a secure sum, beside leaving them out"
NAMES = ("hospital", "court", "school", "bank")
OTHERS = tuple(name for name in NAMES if name != SITE)
SECURE = (("privacy.sum", "secure"), ("keep.choose", True), ("keep.passes", 1), ("send.code", "auto"), ("rounds", 3))
WITHIN = 0.02
"""Of the dev loss."""
Change = Callable[[Message, Message], object]
"""Changes a reply of the liar, given the request."""
LOW_ORDER = bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800")


def lying(kind: str, change: Change, first: int = 0, last: int = 99) -> Tamper:
    """Have the court change its replies of one kind in rounds `first` to `last`."""

    def tamper(request: Message, reply: Message) -> Message:
        task = request.content.config_records.get(protocol.TASK, {})
        asked = request.metadata.message_type == kind and task.get("site") == SITE and first <= int(str(task["round"])) <= last
        if asked and not reply.has_error():
            change(request, reply)
        return reply

    return tamper


# --- Shares that the liar gives -----------------------------------------------------------------------------------------------


def gives(owners: tuple[str, ...], wrong: Callable[[bytes], bytes]) -> Change:
    """Give other shares of these sites' secrets."""

    def change(_: Message, reply: Message) -> None:
        shares = bytes(reply.content.config_records[protocol.SECURE]["shares"])  # type: ignore[arg-type]
        each = {name: shares[SECRET_BYTES * at : SECRET_BYTES * (at + 1)] for at, name in enumerate(NAMES)}
        each |= {name: wrong(each[name]) for name in owners}
        reply.content[protocol.SECURE] = ConfigRecord({"shares": b"".join(each.values())})

    return change


def one_bit(share: bytes) -> bytes:
    return bytes([share[0] ^ 1]) + share[1:]


def drawn(share: bytes) -> bytes:
    return os.urandom(len(share))


# --- Shares that the liar seals -----------------------------------------------------------------------------------------------


def seals(holders: tuple[str, ...], *sums: int, at: int = 0) -> Change:
    """Seal other shares for these sites: with a bit changed at a place of the sealed bytes. sums: those that it is for; none: all."""

    def change(_: Message, reply: Message) -> None:
        sealed = bytearray(reply.content.config_records[protocol.SECURE]["sealed"])  # type: ignore[arg-type]
        count = len(sealed) // SEALED_BYTES // len(NAMES)
        for holder in holders:
            for number in sums or range(1, count + 1):
                sealed[SEALED_BYTES * (NAMES.index(holder) * count + number - 1) + at] ^= 1
        reply.content[protocol.SECURE] = ConfigRecord({"sealed": bytes(sealed)})

    return change


# --- Keys ---------------------------------------------------------------------------------------------------------------------


def has_key(of: str, place: int, key: bytes) -> Change:
    """Send another key. of: "channel" or "keys". place: which of them."""

    def change(_: Message, reply: Message) -> None:
        record = dict(reply.content.config_records[protocol.SECURE])
        keys = bytearray(record[of])  # type: ignore[arg-type]
        keys[32 * place : 32 * (place + 1)] = key
        reply.content[protocol.SECURE] = ConfigRecord({**record, of: bytes(keys)})

    return change


# --- Numbers ------------------------------------------------------------------------------------------------------------------


def adds(
    levels: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]], parts: tuple[str, ...] = ("encoder", "decoder")
) -> Change:
    """Add levels to the masked numbers. levels: (a fixed direction of ones) -> what is added."""

    def change(request: Message, reply: Message) -> None:
        group, record = Group.of(len(NAMES)), reply.content.array_records[protocol.ARRAYS]
        for part in parts:
            packed = record[part].numpy()
            count = 2 * len(packed) // 3
            direction = np.random.default_rng(len(packed)).choice([-1, 1], count - CHECKS)
            added = np.concatenate([levels(direction), np.zeros(CHECKS)]).astype(np.int64)
            total = unpack(packed, count, group).astype(np.int64) + added
            record[part] = Array(pack(group.reduced(total), group))

    return change


def falsely(name: str, more: float, change: Change) -> Change:
    """Change the masked numbers, and add to one of the counters."""

    def both(request: Message, reply: Message) -> None:
        change(request, reply)
        counters = reply.content.array_records[protocol.ARRAYS]["counters"].numpy().copy()
        at = (SITES, *TRAINING).index(name)
        counters[at : at + 1] += np.uint64(int(more * (1 << 20)) % (1 << 64))
        reply.content.array_records[protocol.ARRAYS]["counters"] = Array(counters)

    return both


# --- What comes of it ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Played:
    """loss: The dev loss of all sites after the best round. said: What was said of failures and in notes, of whom."""

    loss: float
    said: tuple[tuple[str, str], ...]
    sums: tuple[int, ...]


def played(tamper: Tamper | None, place: Path, **keys: Any) -> Played:
    config = {**world(*SECURE).config, **keys}
    folder, _ = run(config, place / "run", num_nodes=4, tamper=tamper)
    events = [json.loads(line) for line in (folder.directory / "progress.jsonl").read_text(encoding="utf-8").splitlines()]
    said = [(str(each["site"]), str(each["reason"])) for each in events if each["event"] == "failure"]
    said += [("", str(each["text"])) for each in events if each["event"] == "note"]
    best = (folder.read("run.json") or {})["best_round"]
    lines = rounds(folder)
    sums = tuple(line["secure_sum"]["sites"] if "secure_sum" in line else 0 for line in lines[1:])
    return Played(next(line["dev_loss"] for line in lines if line["round"] == best) or base(), tuple(said), sums)


def silent(request: Message, reply: Message) -> Message:
    task = request.content.config_records.get(protocol.TASK, {})
    gone = request.metadata.message_type in (protocol.TRAIN, protocol.EVALUATE) and task.get("site") == SITE
    return Message(Error(1, "left out"), reply_to=request) if gone else reply


@cache
def without() -> Played:
    """The run in which the liar sends nothing to be summed."""
    return played(silent, Path(mkdtemp()))


@cache
def honest() -> Played:
    return played(None, Path(mkdtemp()))


@cache
def base() -> float:
    """The dev loss before the first round."""
    folder, _ = run({**world(*SECURE).config, "rounds": 1}, Path(mkdtemp()) / "run", num_nodes=4)
    return float(rounds(folder)[0]["dev_loss"])


def goes_on(kind: str, change: Change, named: str, sums: tuple[int, ...], place: Path, first: int = 0, last: int = 99) -> Outcome:
    """Held: the run is as good as without the liar, no other site is named, and every sum that is opened is over these many sites."""
    outcome = played(lying(kind, change, first, last), place)
    most = max(without().loss, honest().loss)
    innocent = [site for site, reason in outcome.said if site in OTHERS]
    words = [reason for site, reason in outcome.said if (site == SITE or SITE in reason) and named in reason]
    said = f"dev loss {outcome.loss:.4f}, without it {most:.4f}; {(words or ['nothing'])[0]}"
    return Outcome(outcome.loss <= most * (1 + WITHIN) and not innocent and bool(words) and outcome.sums == sums, said)


def harmless(change: Change, place: Path, first: int = 1, **keys: Any) -> Outcome:
    """Held: what the liar adds is noted, no other site is named, and the sites get no worse model than before their first round."""
    outcome = played(lying(protocol.TRAIN, change, first), place, **keys)
    words = [reason for _, reason in outcome.said if any(told in reason for told in DOUBTED)]
    innocent = [site for site, _ in outcome.said if site in OTHERS]
    said = f"dev loss {outcome.loss:.4f}, of the base {base():.4f}; {(words or ['nothing'])[0]}"
    return Outcome(outcome.loss <= base() * (1 + 1e-6) and bool(words) and not innocent, said)


def ends(kind: str, change: Change, said: str, place: Path) -> Outcome:
    """Held: before any training the run ends, names the liar, and no other site."""
    try:
        played(lying(kind, change), place)
    except RunError as error:
        told = str(error)
        named = SITE in told and said in told and not any(name in told for name in OTHERS)
        return Outcome(named and not (place / "run" / "rounds.jsonl").exists(), told)
    return Outcome(False, "the run went on")


GIVE, SEAL, KEY = protocol.UNMASK, protocol.SHARES, protocol.KEYS
WRONG, DOUBT = "and it is one of each two", "one of them lies"
DOUBTED = ("too long to be true", "cannot have sent", "times that after round")


def attacks() -> list[Attack]:
    """By what the site lies about: the shares that it gives and seals, its keys, its numbers."""
    found, whole = [], (4, 4, 4)

    def add(name: str, play: Callable[..., Outcome], *about: Any, **more: Any) -> None:
        found.append(Attack(name, partial(_in, partial(play, *about, **more))))

    for name, owners, wrong, named in (
        ("one bit of every share", NAMES, one_bit, WRONG),
        ("random shares of all other sites", OTHERS, drawn, WRONG),
        ("its own share wrong", (SITE,), one_bit, WRONG),
        ("zeros for two sites", OTHERS[:2], lambda share: bytes(len(share)), WRONG),
        ("one wrong share of one site", OTHERS[:1], one_bit, DOUBT),
        ("one random share of the last site", OTHERS[2:], drawn, DOUBT),
    ):
        add(f"gives {name}", goes_on, GIVE, gives(owners, wrong), named, whole)
    add("gives wrong shares in round 2 alone", goes_on, GIVE, gives(OTHERS, drawn), WRONG, whole, first=2, last=2)
    for name, holders, sums, at, named, over in (
        ("garbage for one honest site", OTHERS[:1], (), 0, DOUBT, whole),
        ("garbage for another honest site", OTHERS[2:], (), 9, DOUBT, whole),
        ("the wrong hash of a seed's share for one site", OTHERS[1:2], (), SEALED_BYTES - 32, DOUBT, whole),
        ("garbage for one site in round 2", OTHERS[:1], (training_sum(2),), 3, DOUBT, whole),
        ("garbage for all other sites", OTHERS, (), 0, "goes on without site court", (0, 3, 3)),
        ("garbage for two honest sites", OTHERS[:2], (), 0, "goes on without site court", (0, 3, 3)),
        ("garbage for two sites in round 2", OTHERS[1:], (training_sum(2),), 0, "goes on without site court", (4, 0, 3)),
        ("garbage for two sites in the last dev loss", OTHERS[1:], (dev_loss_sum(3),), 0, "goes on without site court", whole),
        ("its key's hash wrong, which nobody needs", OTHERS, (), SEALED_BYTES - 1, "goes on without site court", (0, 3, 3)),
    ):
        add(f"seals {name}", goes_on, SEAL, seals(holders, *sums, at=at), named, over)
    for name, of, key_at, key in (
        ("zeros for sealing", "channel", 0, bytes(32)),
        ("a key of low order for sealing", "channel", 0, LOW_ORDER),
        ("zeros for the masks of round 1", "keys", 2, bytes(32)),
        ("a key of low order for the masks of the scores", "keys", 0, LOW_ORDER),
    ):
        add(f"has {name}", ends, KEY, has_key(of, key_at, key), "of low order")
    both = ("encoder", "decoder")
    for name, change in (
        ("1,600 levels, where an honest site has 511 at most", adds(lambda ones: 1600 * ones, both)),
        ("1,000 levels to the decoder alone", adds(lambda ones: 1000 * ones, ("decoder",))),
        ("half of all levels, which has no sign", adds(lambda ones: np.full_like(ones, 2048), both)),
        ("1,600 levels, and takes the rise from the dev loss", falsely("dev_nll", -1.0, adds(lambda ones: 1600 * ones, both))),
    ):
        for first in (1, 2):
            add(f"adds {name}, from round {first} on", harmless, change, first=first)
    for how, keys in (
        ("weights by size", {"aggregation": "fed-avg"}),
        ("a server optimizer", {"server.optimizer": "adam", "server.learning-rate": 0.01}),
        ("dev losses by site", {"privacy.scores": "sites"}),
    ):
        add(f"adds 1,600 levels under {how}", harmless, adds(lambda ones: 1600 * ones, both), **keys)
    return found


def _in(play: Callable[[Path], Outcome], place: Path) -> Outcome:
    return play(place=place)  # type: ignore[call-arg]


ATTACKS: list[Attack] = attacks()
