"""Run folders as a server leaves them, without one: what suites are made of, in a few honest lines."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedlingua.cli.engine import RunStatus
from fedlingua.config import Scalar, Settings
from fedlingua.config_checks import settings_from
from fedlingua.runs import RunFolder

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

    def log_tail(self, lines: int = 40, run_id: str = "") -> str:
        return "the log's last lines"
