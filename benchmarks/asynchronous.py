"""What rounds that do not wait (`async.buffer`) are worth where one site is ten times slower than the others: BLEU and time.

    PYTHONPATH=. python benchmarks/asynchronous.py [--seeds 2022] [--to experiments/results/benchmarks/kept.jsonl:asynchronous_four]
    … --sites 9 --buffer 8 --rounds 48 120 --exponents 0 [--to experiments/results/benchmarks/kept.jsonl:asynchronous]

Four of the demo's sites, or with `--sites 9` all, train for real, in one process. Time is counted, not waited for: a site's training takes
one unit, the slow site's ten, the server and the network none, so the figures are those of any machine. BLEU on test is macro over sites,
of the federation's best round, before any site chooses.
"""

import argparse
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flwr.app import Message
from kept import keep

from fedlingua.exchange import protocol
from fedlingua.settings.experiment import default_run_config
from fedlingua.settings.kinds import flat_keys
from tests.in_process import InProcessGrid, rounds, run_on

ROOT = Path(__file__).parents[1]
FOUR = ("hospital-de", "hospital-pl", "court-de", "court-pl")
SLOW, TIMES = "court-pl", 10


class Clocked(InProcessGrid):
    """Replies to a training come in after the time that it takes; the clock moves when the server finds nothing."""

    def __init__(self, config: dict[str, Any], num_sites: int) -> None:
        super().__init__(config, num_sites)
        self.now = 0.0
        self.ready: dict[str, float] = {}
        self.missed: set[str] = set()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        self.missed.clear()  # what a sweep finds does not depend on the order of its questions
        numbers = list(super().push_messages(messages))
        for number, message in zip(numbers, messages, strict=True):
            if message.metadata.message_type == protocol.TRAIN:
                site = message.content.config_records[protocol.TASK]["site"]
                self.ready[number] = self.now + (TIMES if site == SLOW else 1)
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        (number,) = message_ids  # as `pull_one` asks
        if self.ready.get(number, 0) > self.now:
            if number in self.missed:  # a whole sweep found nothing
                self.now = min(at for waiting, at in self.ready.items() if waiting in self.replies)
                self.missed.clear()
            self.missed.add(number)
        if self.ready.get(number, 0) > self.now:
            return []
        self.missed.clear()
        return super().pull_messages([number])


def federation(folder: Path, num_sites: int) -> Path:
    """Write the federation file of the four or nine sites and return its path."""
    folder.mkdir(parents=True)
    text = (ROOT / "experiments" / "federations" / "phrasebook_trades.toml").read_text(encoding="utf-8")
    head, *sites = text.split("[[site]]")
    chosen = [site for site in sites if num_sites == len(sites) or any(f'"{name}"' in site for name in FOUR)]
    (folder / "sites.toml").write_text("[[site]]".join([head, *chosen]), encoding="utf-8")
    return folder / "sites.toml"


def played(seed: int, num_sites: int, buffer: int, num_rounds: int, exponent: float, to: Path) -> dict[str, float]:
    """Run one federation and return its figures."""
    demo = flat_keys(tomllib.loads((ROOT / "experiments" / "demo.toml").read_text(encoding="utf-8")))
    own = {
        "federation": str(federation(to, num_sites)),
        "seed": seed,
        "rounds": num_rounds,
        "async.buffer": buffer,
        "keep.choose": False,
        "async.age-exponent": exponent,
    }
    how = {"sample.replacement": True, "evaluate-every": 8 if buffer else 4, "patience": 0 if buffer else 12}
    config = {**default_run_config(), **demo, **own, **how, "run-dir": str(to / "run")}
    grid = Clocked(config, num_sites)
    folder = run_on(grid, config)
    scores, lines = folder.read("scores.json") or {}, rounds(folder)
    trained = [site for line in lines for site, figures in line["sites"].items() if "train_loss" in figures]
    sites = {site: about["bleu"] for site, about in scores["sites"].items()}
    return {
        "bleu": scores["macro_bleu"],
        "slow_bleu": sites[SLOW],
        "fast_bleu": sum(score for site, score in sites.items() if site != SLOW) / (num_sites - 1),
        "dev_loss": min(line["dev_loss"] for line in lines if line["dev_loss"] is not None),
        "time": grid.now,
        "rounds": len(lines) - 1,
        "updates": len(trained),
        "slow_updates": trained.count(SLOW),
        "bytes_up": scores["total_bytes"]["up"],
        "bytes_down": scores["total_bytes"]["down"],
    }


def main() -> None:
    """Print the figures, and keep them where `--to` says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[2022, 2023, 2024])
    parser.add_argument("--rounds", type=int, nargs=2, default=[48, 129], metavar=("WAITING", "BUFFERED"))
    parser.add_argument("--sites", type=int, choices=(4, 9), default=4)
    parser.add_argument("--buffer", type=int, default=2)
    parser.add_argument("--exponents", type=float, nargs="+", default=[-0.5, 0.0, 0.5])
    parser.add_argument("--to", type=Path)
    given = parser.parse_args()
    ways = {"waiting": (0, given.rounds[0], -0.5)}
    ways |= {f"buffered {exponent:+g}": (given.buffer, given.rounds[1], exponent) for exponent in given.exponents}
    figures = dict[str, dict[str, float]]()
    with tempfile.TemporaryDirectory() as place:
        for way, how in ways.items():
            runs = [played(seed, given.sites, *how, Path(place) / way / str(seed)) for seed in given.seeds]
            figures[way] = {key: round(sum(run[key] for run in runs) / len(runs), 4) for key in runs[0]}
            print(way, figures[way], file=sys.stderr, flush=True)
    about = {
        "seeds": given.seeds,
        "sites": given.sites,
        "buffer": given.buffer,
        "slow_site_times": TIMES,
        "mean_over_seeds": figures,
    }
    keep(about, given.to, "torch", "flwr")


if __name__ == "__main__":
    main()
