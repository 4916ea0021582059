"""Run folders as a server leaves them, without one: what suites are made of, in a few honest lines."""

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedlingua.desk.cli.engine import RunStatus
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Scalar, Settings

SUITE = """
title = "Two sites, two methods"
seeds = [1, 2]
[settings]
federation = "{federation}"
rounds = 2
[[row]]
method = "base"
[[row]]
method = "adapter-fed"
[[row]]
name = "adapter-fed+fedavg"
method = "adapter-fed"
aggregation = "fed-avg"
"""


def scores(bleu: Mapping[str, float], sentences: Mapping[str, int], **more: Any) -> dict[str, Any]:
    """A scores.json with these BLEU; the pooled one is made up as 1 above the macro."""
    sites = {
        name: {"direction": "de-fr", "bleu": value, "sentences": sentences[name], "signature": "tok:13a"}
        for name, value in bleu.items()
    }
    macro = sum(bleu.values()) / len(bleu)
    micro = sum(bleu[name] * sentences[name] for name in bleu) / sum(sentences.values())
    averages = {"macro_bleu": macro, "micro_bleu": micro, "pooled_bleu": macro + 1.0}
    costs = {"uplink_bytes_per_round": 100, "downlink_bytes_per_round": 90, "exchanged_parameters": 7}
    return {"sites": sites, **averages, **costs, **more}


def record_round(folder: RunFolder, number: int, train_s: float) -> None:
    """One line of rounds.jsonl: hospital trains for so long, court twice as long, the round takes ten times as long; its phases take
    thrice and once as long."""
    sites = {
        name: {"seconds": {"train": seconds, "evaluate": 0.1}, "uplink_bytes": 100, "downlink_bytes": 90}
        for name, seconds in (("hospital", train_s), ("court", 2 * train_s))
    }
    record = {
        "round": number,
        "seconds": 10 * train_s,
        "dev_loss": 3.0 - number,
        "sites": sites if number else {},
        "failures": [],
        "phase_s": {"train": 3 * train_s, "evaluate": train_s},
        "server_s": {"aggregate": 0.25},
    }
    folder.add_round(record)


def record_completed(settings: Settings, bleu: tuple[float, float] = (20.0, 30.0), run_id: int = 1) -> None:
    """What a whole run leaves in its run-dir: round 0, two rounds, scores of hospital (1 sentence) and court (3)."""
    folder = RunFolder(Path(settings.run_dir))
    folder.open(settings, run_id)
    for number, train_s in enumerate((5.0, 1.0, 2.0)):
        record_round(folder, number, train_s)
    folder.update(rounds=2, best_round=2)
    named = {"method": settings.method, "seed": settings.seed}
    by_site = dict(zip(("hospital", "court"), bleu, strict=True))
    folder.write("scores.json", scores(by_site, {"hospital": 1, "court": 3}, **named))
    folder.close("completed")


class RecordingEngine:
    """Takes runs as an engine does and has them finished at once; those whose aggregation is in `failing` fail."""

    def __init__(self, failing: tuple[str, ...] = ()) -> None:
        self.failing = failing
        self.taken: list[Settings] = []

    def submit(self, run_config: Mapping[str, Scalar], num_nodes: int) -> str:
        settings = settings_from(run_config)
        self.taken.append(settings)
        if settings.aggregation in self.failing:
            folder = RunFolder(Path(settings.run_dir))
            folder.open(settings, len(self.taken))
            folder.close("failed", "site court: no reply; see /somewhere/on/this/machine.log")
        else:
            record_completed(settings, run_id=len(self.taken))
        return str(len(self.taken))

    def status(self, run_id: str) -> RunStatus:
        failed = self.taken[int(run_id) - 1].aggregation in self.failing
        return RunStatus("finished", "failed" if failed else "completed")

    def log_tail(self, run_id: str) -> str:
        return "the log's last lines"


GROUPS = {"Germanic": ("de", "nl", "sv"), "Romance": ("fr", "es", "it"), "Slavic": ("pl", "cs", "sl")}


def record_whole_run(
    folder: Path, sites: int = 12, rounds: int = 25, tensors: int = 89, spell: str = "site-{}", words: str = ""
) -> Path:
    """A finished run of which every part of the page has something to show: made-up numbers, as many as a run's.

    spell: a site's name, from its number. words: stand in every sentence of a site's text.
    """
    drawn, names = random.Random(sites * rounds), [spell.format(number) for number in range(1, sites + 1)]
    languages = [language for group in GROUPS.values() for language in group]
    directions = {name: f"{languages[i % 9]}-{languages[(i + 4) % 9]}" for i, name in enumerate(names)}
    records = [_recorded_round(number, names, drawn) for number in range(rounds + 1)]
    signature = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
    told = {
        name: {"direction": directions[name], "sentences": 200 + i, "bleu": 25.0 + i, "base_bleu": 20.0 + 1.2 * i}
        | {"chrf": 50.0 + i, "base_chrf": 45.0 + i, "signature": signature, "chrf_signature": signature}
        for i, name in enumerate(names)
    }
    averages = {f"{mean}_bleu": 25.0 + sites / 2 for mean in ("macro", "micro", "pooled")} | {
        "base_macro_bleu": 20.0 + 0.6 * sites
    }
    bytes_ = {"uplink_bytes_per_round": 1.7e6, "downlink_bytes_per_round": 6.2e6, "exchanged_parameters": 1_094_016}
    config = {"keep-translations": 3, "learning-rate": 0.01, "federation": "experiments/federations/made-up.toml"}
    run = {
        "name": "made-up",
        "status": "completed",
        "method": "metasend-g",
        "seed": 2022,
        "config": config,
        "versions": {"flwr": "1.39.0"},
    }
    run |= {"seconds": 1500.0, "rounds": rounds, "best_round": rounds, "trained_parameters": 1_094_016}
    run |= {"backbone": {"name": "demo", "parameters": 1_094_016}, "config_hash": "0" * 12, "started": "2026-01-01T00:00:00Z"}
    account = {"read": 1000, "kept": 985, "dropped": {"too-short": 10, "copy": 5}}
    counts = {"train": 600, "dev": 150, "test": 200, "node": 0}
    message = {"uplink_bytes": 1_700_000, "downlink_bytes": 6_200_000}
    contents: dict[str, Any] = {
        "run.json": run,
        "scores.json": {"method": "metasend-g", "seed": 2022, "split": "test", "sites": told, **averages, **bytes_},
        "sites.json": {name: counts | {"directions": [of], "accounts": {of: account}} for name, of in directions.items()},
        "clusters.json": {part: _groups(directions, place) for place, part in enumerate(("encoder", "decoder"))},
        "traffic.json": {name: dict.fromkeys(("describe", "evaluate", "probe", "send", "finish"), message) for name in names},
        "signatures.json": _signatures(names, drawn),
        "rounds.jsonl": records,
        "deviations.jsonl": [
            {"round": number, "site": name, "deviations": [round(drawn.lognormvariate(-3, 1.2), 6) for _ in range(tensors)]}
            for number in range(1, rounds + 1)
            for name in names
        ],
    }
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in contents.items():
        lines = content if file.endswith("l") else [content]
        (folder / file).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    for place, (name, direction) in enumerate(directions.items()):
        _keep_translations(folder / "sites" / f"{place}" / "translations-by-round", name, direction, rounds, words)
    return folder


def _recorded_round(number: int, names: Sequence[str], drawn: random.Random) -> dict[str, Any]:
    def one(place: int) -> dict[str, Any]:
        dev = {"dev_loss": 1.0 + 4.0 / (1 + number) + place / 20 + drawn.random() / 10, "dev_tokens": 1500}
        if not number:
            return {**dev, "seconds": {"evaluate": 0.3}, "uplink_bytes": 0, "downlink_bytes": 0}
        seconds = {"train": 2 + drawn.random(), "select": 0.02, "evaluate": 0.3, "meta batches": 1.0, "meta slope": 0.001}
        shares = {"tensors_share": 0.3 + drawn.random() / 3, "numbers_share": 0.3 + drawn.random() / 3, "deviation": 0.06}
        bytes_ = {"uplink_bytes": 1_700_000 + 1000 * place, "downlink_bytes": 6_200_000}
        return {
            **dev,
            "train_loss": dev["dev_loss"] - 0.2,
            "seconds": seconds,
            **shares,
            **bytes_,
            "steps": 12,
            "tensors_sent": 42,
        }

    failures = [{"site": names[-1], "phase": "train", "reason": "no reply in time"}] if number == 3 else []
    learned = (
        {"threshold": {"theta": 0.06 - number / 1000, "mu": 0.06, "scale": 0.06, "tau": 0.006, "stepped": True}} if number else {}
    )
    loss = {"dev_loss": 1.2 + 4.0 / (1 + number), "sites": {name: one(place) for place, name in enumerate(names)}}
    took = {
        "seconds": 6.0,
        "phase_s": {"train": 4.0, "send": 0.6, "evaluate": 1.0},
        "server_s": {"aggregate": 0.01, "theta": 0.001},
    }
    return {"round": number, "attempt": 1, **loss, **learned, **took, "failures": failures}


def _groups(directions: Mapping[str, str], place: int) -> dict[str, list[str]]:
    """Cluster -> its sites, by the language on one side."""
    return {
        group: [name for name, direction in directions.items() if direction.split("-")[place] in languages]
        for group, languages in GROUPS.items()
    }


def _signatures(names: Sequence[str], drawn: random.Random) -> dict[str, Any]:
    """Sites that are joined one after another, each farther from those before."""
    count = len(names)
    distances = [[0.0 if a == b else round((1 + max(a, b)) / count, 3) for b in range(count)] for a in range(count)]
    merges = [
        [place if place == 0 else count + place - 1, place + 1, (place + 2) / count, place + 2] for place in range(count - 1)
    ]
    return {
        "form": "raw",
        "adapter": "decoder.1.encoder_attn",
        "dimensions": 2048,
        "examples": dict.fromkeys(names, 600),
        "distance": "cosine",
        "algorithm": "k-means",
        "sites": [*names],
        "distances": distances,
        "merges": merges,
        "num_clusters": 3,
        "chosen_by": "silhouette",
        "silhouettes": {"2": 0.3, "3": 0.4},
        "uplink_bytes": 8192,
        "clusters": {name: f"gradients-{1 + drawn.randrange(3)}" for name in names},
        **dict.fromkeys(("epsilon", "delta", "noise", "clip")),
    }


def _keep_translations(folder: Path, name: str, direction: str, rounds: int, words: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(rounds + 1):
        lines = [
            {
                "round": number,
                "text": name,
                "direction": direction,
                "sentence": sentence,
                "source": f"{words} the {sentence}th sentence",
            }
            | {"reference": f"{words} of {sentence} words", "translation": f"{words} of {sentence + max(0, 9 - number)} words"}
            for sentence in (1, 2, 3)
        ]
        (folder / f"{number:04d}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
