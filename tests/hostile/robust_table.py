"""Updates that no honest site would send, in real runs under default settings: what they do to the honest sites' dev loss.

Sites that lie train as all others do, and send something else than what they came to. Beside each run stands the same one in which their
training fails, so that they are left out.
"""

import json
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
from flwr.app import Error, Message

from fedlingua.desk.pretraining.build import build_model, build_tokenizer
from fedlingua.desk.pretraining.settings import ModelSize
from fedlingua.exchange import protocol
from fedlingua.exchange.records import from_record, to_record
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.experiment import default_run_config
from fedlingua_demo import phrasebook
from tests.federations import phrasebook_federation
from tests.hostile.attacks import Attack, Outcome
from tests.in_process import Tamper, checkpoint_bytes, rounds, run

TITLE = "Updates that lie: dev loss of the honest sites, beside leaving the lying ones out"
WITHIN = 0.02
"""Of the dev loss."""

Numbers = np.ndarray[Any, Any]
Forge = Callable[[Numbers, Numbers], Numbers]
"""(what the site was given, what it came to) -> what it sends; one part's numbers, flat."""

DIRECTIONS = ("de-fr", "nl-es", "pl-sv", "cs-de", "sv-sl", "fr-cs", "es-it", "it-nl")
REGISTERS = ("hospital", "court", "school", "bank", "harbour", "museum", "farm", "station")


def flipped(times: float, start: Numbers, trained: Numbers) -> Numbers:
    """The site's change, so many times as long and the other way."""
    return start - np.float32(times) * (trained - start)


def noise(times: float, start: Numbers, trained: Numbers) -> Numbers:
    """A random change, so many times as long as the site's."""
    drawn = np.random.default_rng(7).standard_normal(len(start)).astype(np.float32)
    return start + np.float32(times * np.linalg.norm(trained - start) / np.linalg.norm(drawn)) * drawn


def one_number(start: Numbers, trained: Numbers) -> Numbers:
    """All true but one number."""
    forged = trained.copy()
    forged[len(forged) // 2] += 54
    return forged


def zeros(start: Numbers, trained: Numbers) -> Numbers:
    """Nothing but zeros."""
    return np.zeros_like(trained)


def unchanged(start: Numbers, trained: Numbers) -> Numbers:
    """What the site was given."""
    return start.copy()


FORGERIES: dict[str, Forge] = {
    "sign-flipped x 5": partial(flipped, 5.0),
    "sign-flipped x 90": partial(flipped, 90.0),
    "noise x 90": partial(noise, 90.0),
    "one number + 54": one_number,
    "all zeros": zeros,
}


def forging(liars: Sequence[str], forge: Forge | None, first: int = 1) -> Tamper:
    """Sites that send something else than they came to, from round `first` on; without `forge` their training fails."""

    def tamper(request: Message, reply: Message) -> Message:
        task = request.content.config_records.get(protocol.TASK, {})
        if request.metadata.message_type != protocol.TRAIN or task["site"] not in liars or int(task["round"]) < first:
            return reply
        if forge is None:
            return Message(Error(1, "left out"), reply_to=request)
        given, trained = (from_record(message.content.array_records[protocol.ARRAYS]) for message in (request, reply))
        reply.content.array_records[protocol.ARRAYS] = to_record({part: forge(given[part], trained[part]) for part in trained})
        return reply

    return tamper


@cache
def backbone() -> Path:
    """Directory of a tiny M2M-100 with random weights."""
    place = Path(mkdtemp()) / "tiny"
    sentences = [sentence for lines in phrasebook.base_corpus(300, 1).values() for sentence in lines]
    tokenizer = build_tokenizer(sentences, phrasebook.LANGUAGES, 300, place)
    size = ModelSize(d_model=32, encoder_layers=1, decoder_layers=1, heads=2, ffn_dim=64, vocab_size=300, max_positions=64)
    build_model(size, tokenizer, seed=7).save_pretrained(place)
    return place


def config_of(folder: Path, sizes: Sequence[int], **keys: Any) -> dict[str, Any]:
    """Default settings, but for the model and how long a run takes. sizes: of the sites, in sentences."""
    folder.mkdir(parents=True, exist_ok=True)
    sites = {name: (direction, size) for name, direction, size in zip(REGISTERS, DIRECTIONS, sizes, strict=False)}
    (folder / "sites.toml").write_text(phrasebook_federation("lying", **sites))
    short = {"adapter.dim": 4, "batch-size": 4, "beam": 1, "rounds": 1, "max-tokens": 24, "max-decode-tokens": 4}
    place = {"backbone": str(backbone()), "federation": str(folder / "sites.toml"), "method": "adapter-fed"}
    return {**default_run_config(), "keep.choose": False, "send.code": "none", **short, **place, **keys}


def honest_loss(folder: RunFolder, liars: Sequence[str]) -> float:
    """Mean dev loss of the honest sites after the best round."""
    best = json.loads((folder.directory / "run.json").read_text())["best_round"]
    sites = next(line["sites"] for line in rounds(folder) if line["round"] == best)
    return float(np.mean([told["dev_loss"] for site, told in sites.items() if site not in liars]))


@cache
def left_out(
    sizes: tuple[int, ...], liars: tuple[str, ...], first: int, keys: tuple[tuple[str, Any], ...]
) -> tuple[float, dict[str, bytes]]:
    """(the honest sites' dev loss, the newest tensors) of the run in which the liars' training fails."""
    place = Path(mkdtemp())
    config = {**config_of(place, sizes, **dict(keys)), "quorum": 0.1}
    folder, _ = run(config, place / "run", num_nodes=1, tamper=forging(liars, None, first))
    return honest_loss(folder, liars), checkpoint_bytes(folder)


def played(sizes: tuple[int, ...], liars: tuple[str, ...], forge: Forge, place: Path, first: int = 1, **keys: Any) -> Outcome:
    """Run it, and hold the honest sites' loss against that of leaving the liars out."""
    folder, _ = run(config_of(place, sizes, **keys), place / "run", num_nodes=1, tamper=forging(liars, forge, first))
    loss, (wanted, tensors) = honest_loss(folder, liars), left_out(sizes, liars, first, tuple(sorted(keys.items())))
    lines = rounds(folder)
    reasons = [failure["reason"] for line in lines for failure in line["failures"]]
    same = "the same bytes; " if checkpoint_bytes(folder) == tensors else ""
    said = f"dev loss {loss:.4f}, without them {wanted:.4f}; {same}{(reasons or ['taken whole'])[0]}"
    return Outcome(abs(loss / wanted - 1) <= WITHIN, said)


def attacks() -> list[Attack]:
    """By number of sites, and by what the liars among them send."""
    five, eight, unlike = (40,) * 5, (40,) * 8, (300, 12, 24, 40, 80)
    flip, court = FORGERIES["sign-flipped x 5"], ("court",)
    found = []
    for sizes, liars, who in ((five, court, "1 of 5 sites"), (eight, ("court", "farm"), "2 of 8 sites")):
        found += [Attack(f"{who}: {name}", partial(played, sizes, liars, forge)) for name, forge in FORGERIES.items()]
    full = {"method": "model-fed", "learning-rate": 1e-3}
    for name in ("sign-flipped x 5", "all zeros"):
        found.append(Attack(f"full model, 1 of 5 sites: {name}", partial(played, five, court, FORGERIES[name], **full)))
    for liar, size in (("hospital", "the largest"), ("court", "the smallest"), ("bank", "the middle one")):
        name = f"sites of 6 to 150 sentences, {size}: sign-flipped x 5"
        found.append(Attack(name, partial(played, unlike, (liar,), flip)))
    found.append(Attack("1 of 5 sites: says that it trained, sends what it got", partial(played, five, court, unchanged)))
    found.append(
        Attack("1 of 2 sites, from round 2 on: sign-flipped x 5", partial(played, (40, 40), court, flip, first=2, rounds=2))
    )
    return found


ATTACKS: list[Attack] = attacks()
