"""Updates of sites that know the bounds of length and stay just under them, in eight rounds under default settings on the demo's backbone.

All sites have one direction, so that their changes agree and there is much to undo. What sites send is coded in four bits, as by default,
and so is what a liar sends. The last phase is left out: it comes after these rounds and changes nothing of them (`defaults_table`).
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
from flwr.app import Error, Message

from fedlingua.exchange import protocol
from fedlingua.exchange.coding.coder import decode, encode, generator_of
from fedlingua.exchange.records import from_record, to_record
from fedlingua.settings.checks import settings_from
from fedlingua.settings.experiment import default_run_config
from tests.federations import phrasebook_federation
from tests.hostile.attacks import Attack, Outcome
from tests.hostile.robust_table import REGISTERS, honest_loss
from tests.in_process import Tamper, _start, rounds, run

TITLE = "Updates just under every bound, eight rounds: dev loss of the honest sites, beside leaving the lying ones out"
WITHIN, NAMED = 0.1, 3
"""Of the dev loss; or the site is left out in each of the first rounds in which it lies, so many."""
ROUNDS, SENTENCES = 8, 100

Numbers = np.ndarray[Any, Any]
Forge = Callable[[Numbers], Numbers]
"""The change that the site came to -> the change that it sends; one part's numbers, flat."""


def signs(times: float, change: Numbers) -> Numbers:
    """The signs of the site's change the other way, so many times as long."""
    return np.float32(-times * np.sqrt(np.mean(change**2))) * np.sign(change)


FORGERIES: dict[str, Forge] = {
    "signs the other way x 1.9": partial(signs, 1.9),
    "signs the other way x 1.5": partial(signs, 1.5),
}


def forging(liars: Sequence[str], forge: Forge | None, config: dict[str, Any]) -> Tamper:
    """Liars that send another change, coded; without `forge` their training fails."""
    settings = settings_from(config)
    tensor_set, code = _start(settings)[0], settings.code_up

    def tamper(request: Message, reply: Message) -> Message:
        task = request.content.config_records.get(protocol.TASK, {})
        if request.metadata.message_type != protocol.TRAIN or task["site"] not in liars:
            return reply
        if forge is None:
            return Message(Error(1, "left out"), reply_to=request)
        number, coded = int(task["round"]), dict[str, Numbers]()
        for part, payload in from_record(reply.content.array_records[protocol.ARRAYS]).items():
            shapes = tensor_set.shapes_of(part)
            forged = np.ascontiguousarray(forge(decode(payload.tobytes(), shapes, code)), np.float32)
            coded[part] = np.frombuffer(encode(forged, shapes, code, generator_of(1, number, str(task["site"]), part)), np.uint8)
        reply.content.array_records[protocol.ARRAYS] = to_record(coded)
        return reply

    return tamper


def config_of(place: Path, number: int, **keys: Any) -> dict[str, Any]:
    sites = dict.fromkeys(REGISTERS[:number], ("de-fr", SENTENCES))
    (place / "sites.toml").write_text(phrasebook_federation("adaptive", **sites))
    quick = {"keep.choose": False, "rounds": ROUNDS, "batch-size": 8, "beam": 1, "max-decode-tokens": 4}
    where = {"backbone": "demo", "federation": str(place / "sites.toml"), "method": "adapter-fed"}
    return {**default_run_config(), **quick, **where, **keys}


@cache
def left_out(number: int, liars: tuple[str, ...]) -> float:
    """The honest sites' dev loss where the liars' training fails."""
    place = Path(mkdtemp())
    config = config_of(place, number, quorum=0.1, **{"robust.max-bad-replies": 0})
    folder, _ = run(config, place / "run", num_nodes=1, tamper=forging(liars, None, config))
    return honest_loss(folder, liars)


def played(number: int, liars: tuple[str, ...], forge: Forge, place: Path) -> Outcome:
    """Run it, and hold the honest sites' loss against that of leaving the liars out."""
    config = config_of(place, number)
    folder, _ = run(config, place / "run", num_nodes=1, tamper=forging(liars, forge, config))
    loss, wanted, lines = honest_loss(folder, liars), left_out(number, liars), rounds(folder)[1:]
    out = [{failure["site"] for failure in line["failures"] if failure["kind"] == "refused"} for line in lines]
    reasons = [failure["reason"] for line in lines for failure in line["failures"]]
    said = f"dev loss {loss:.3f}, without them {wanted:.3f}; left out in {sum(map(bool, out))} of {ROUNDS} rounds"
    named = all(set(liars) <= sites for sites in out[NAMED - 1 :])
    honest = all(sites <= set(liars) for sites in out)
    return Outcome(honest and (named or loss / wanted - 1 <= WITHIN), f"{said}; {(reasons or ['taken whole'])[0]}")


def attacks() -> list[Attack]:
    found = [Attack(f"1 of 5 sites: {name}", partial(played, 5, ("court",), forge)) for name, forge in FORGERIES.items()]
    found += [Attack(f"2 of 8 sites: {name}", partial(played, 8, ("court", "farm"), forge)) for name, forge in FORGERIES.items()]
    return [
        *found,
        Attack("2 of 5 sites: signs the other way x 1.9", partial(two_of_five, FORGERIES["signs the other way x 1.9"])),
    ]


def two_of_five(forge: Forge, place: Path) -> Outcome:
    """Too many to be told from the others; the run goes on to its end."""
    config, liars = config_of(place, 5, rounds=2), ("court", "bank")
    folder, _ = run(config, place / "run", num_nodes=1, tamper=forging(liars, forge, config))
    losses = [line["dev_loss"] for line in rounds(folder)]
    return Outcome(
        len(losses) == 3,
        f"the run ended after its {len(losses) - 1} rounds, with the dev losses {losses[0]:.2f}, {losses[-1]:.2f}",
    )


ATTACKS: list[Attack] = attacks()
