"""One round of the paper's two federations (Liu et al. 2023) at the size of its model: time, memory, and what is exchanged.

    .venv/bin/python benchmarks/paper_round.py [--federation ted2020_m2en] [--accumulation 16] [--to FILE]
    .venv/bin/python benchmarks/paper_round.py --set "send.code=4bit rank 4" --to FILE          # the same with another setting of the run
    .venv/bin/python benchmarks/paper_round.py --shape tiny     # some minutes: whether it works, writes nothing unless told where

mBART-50 with random weights, adapters averaged inside language families, 8 sites of TED2020 and 12 of Europarl on 2 Ray actors, every
site one optimizer step on made-up text that lies as `fedlingua corpus prepare` would leave it. The paper's step is 16 batches of 8
sentences; here it is one batch unless --accumulation says otherwise. Beside the figures stand those of the paper's §2.4: how long a
round's tensors take through 1000 Mbit/s, of the full model and of the adapters. Needs about 5 GB of disk.
"""

import argparse
import gzip
import json
import os
import random
import shutil
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w
from kept import KEPT, write
from measured_run import GIB, Measured, run_measured
from random_mbart import PUBLISHED, TINY, make_backbone

from fedlingua.common.files import APP_DIR
from fedlingua.corpora.split import SPLITS
from fedlingua.desk.experiment import parse_override, read_experiment
from fedlingua.runs.folder import library_versions
from fedlingua.settings.config import Scalar

FEDERATIONS = ("ted2020_m2en", "europarl_m2m")
SHAPES = {"published": PUBLISHED, "tiny": TINY}
RESULT = Path(f"{KEPT}:paper_round")

WORDS = tuple(f"w{number}" for number in range(2000))
WORDS_A_SENTENCE = 24
"""About a sentence of Europarl; every word here is one token."""
BATCH = 8

MODEL_PARAMETERS = 610_900_000
"""mBART-50, as the paper counts it."""
ADAPTER_PARAMETERS = 8_056_576
"""What the paper's public code exchanges: adapters and layer norms."""
MBITS_PER_S = 1000
PAPERS_SITES = 12


def transfer_seconds(num_bytes: float) -> float:
    """Through the server's line of 1000 Mbit/s."""
    return num_bytes * 8 / (MBITS_PER_S * 1e6)


def papers_figures() -> dict[str, float | int]:
    """§2.4: one way, in float32; for all sites one after the other, since they share the server's line."""
    model, adapters = (transfer_seconds(4 * count) for count in (MODEL_PARAMETERS, ADAPTER_PARAMETERS))
    return {
        "mbits_per_s": MBITS_PER_S,
        "sites": PAPERS_SITES,
        "model_parameters": MODEL_PARAMETERS,
        "model_seconds_a_site": round(model, 2),
        "model_seconds_all_sites": round(model * PAPERS_SITES, 1),
        "adapter_parameters": ADAPTER_PARAMETERS,
        "adapter_seconds_a_site": round(adapters, 3),
        "adapter_seconds_all_sites": round(adapters * PAPERS_SITES, 2),
        "saved_share": round(1 - ADAPTER_PARAMETERS / MODEL_PARAMETERS, 4),
    }


def write_federation(name: str, folder: Path, train: int) -> Path:
    """The paper's federation with text of this benchmark's own, in the same places; returns its file, whose data folder is `folder`."""
    raw = tomllib.loads((APP_DIR / f"experiments/federations/{name}.toml").read_text(encoding="utf-8"))
    raw.pop("sizes", None)
    draw = random.Random(name)
    for site in raw["site"]:
        for split in SPLITS:
            site.pop(split, None)
            file = folder / site["splits"].replace("{}", split)
            file.parent.mkdir(parents=True, exist_ok=True)
            lines = (f"{_sentence(draw)}\t{_sentence(draw)}\n" for _ in range(train if split == "train" else 2))
            file.write_bytes(gzip.compress("".join(lines).encode(), mtime=0))
    target = folder / f"{name}.toml"
    target.write_text(tomli_w.dumps(raw), encoding="utf-8")
    return target


def _sentence(draw: random.Random) -> str:
    return " ".join(draw.choices(WORDS, k=WORDS_A_SENTENCE))


def measure(name: str, folder: Path, accumulation: int, changes: Mapping[str, Scalar]) -> dict[str, Any]:
    """One federation's round. folder: holds the backbone, and takes everything else. changes: of the run's settings."""
    federation = write_federation(name, folder / "data", BATCH * accumulation)
    keys: dict[str, Scalar] = {
        "method": "adapter-families",
        "federation": str(federation),
        "data-dir": str(folder / "data"),
        "backbone": str(folder / "mbart"),
        "run-dir": str(folder / f"run-{name}"),
        "rounds": 1,
        "batch-size": BATCH,
        "accumulation": accumulation,
        "learning-rate": 0.001,
        "max-tokens": 256,
        "adapter.dim": 64,
        "beam": 1,
        "max-decode-tokens": 4,
        "keep.choose": False,
        **changes,
    }
    sites = len(tomllib.loads(federation.read_text(encoding="utf-8"))["site"])
    return figures(run_measured(read_experiment(APP_DIR / "experiments/demo.toml", keys), sites, folder / f"home-{name}"), sites)


def figures(run: Measured, sites: int) -> dict[str, Any]:
    """What is kept of a run; bytes are one site's, one round's, as they were sent."""
    (told,) = [line for line in run.rounds if line["round"] == 1]
    up, down = run.scores["uplink_bytes_per_round"], run.scores["downlink_bytes_per_round"]
    return {
        "sites": sites,
        "actors": run.actors,
        "round_seconds": told["seconds"],
        "server_seconds": told["server_s"],
        "site_seconds": {site: record["seconds"] for site, record in told["sites"].items()},
        "run_seconds": round(run.seconds, 1),
        "peak_gib": round(run.peak.total / GIB, 2),
        "peak_pss_gib": round(run.peak.pss / GIB, 2),
        "exchanged_parameters": run.scores["exchanged_parameters"],
        "bytes_of_the_run_a_site": run.scores["total_bytes"],
        "uplink_bytes": up,
        "downlink_bytes": down,
        "uplink_over_payload": round(up / (4 * run.scores["exchanged_parameters"]), 5),
        "uplink_transfer_seconds_a_site": round(transfer_seconds(up), 3),
        "uplink_transfer_seconds_all_sites": round(transfer_seconds(up) * sites, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--federation", choices=FEDERATIONS, action="append", help="only this one; again for each")
    parser.add_argument("--shape", choices=SHAPES, default="published", help="size of the model")
    parser.add_argument("--accumulation", type=int, default=1, help="batches of 8 sentences in the one step; the paper: 16")
    parser.add_argument("--to", type=Path, help=f"where the figures go; default, at the published size: {RESULT.name}")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="another key of the run, as send.code=4bit"
    )
    given = parser.parse_args()
    changes = dict(map(parse_override, given.set))
    to = given.to or (RESULT if given.shape == "published" and not changes else None)
    folder = Path(tempfile.mkdtemp(prefix="fedlingua-benchmark-"))
    try:
        make_backbone(folder / "mbart", WORDS, SHAPES[given.shape])
        rounds = {name: measure(name, folder, given.accumulation, changes) for name in given.federation or FEDERATIONS}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    result = {
        "shape": given.shape,
        "cores": os.cpu_count(),
        "sentences_a_step": BATCH * given.accumulation,
        "tokens_a_sentence": WORDS_A_SENTENCE,
        "settings": changes,
        "federations": rounds,
        "paper": papers_figures(),
        "versions": library_versions(),
    }
    print(json.dumps(result, indent=2))
    if to:
        to.parent.mkdir(parents=True, exist_ok=True)
        write(to, result)


if __name__ == "__main__":
    main()
