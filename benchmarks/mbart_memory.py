"""Memory of a simulation at full model size: 8 sites on 2 Ray actors, a randomly initialised mBART-50, one local step each.

    .venv/bin/python benchmarks/mbart_memory.py [--to results.json]

Needs about 5 GB of disk and some minutes on two cores. Counts the proportional set size of all processes (so pages that are shared
count once) plus what lies in /dev/shm, sampled every half second; prints the peak beside the wanted 10 GiB.
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path

from kept import write
from measured_run import GIB, run_measured
from random_mbart import make_backbone

from fedlingua.common.files import APP_DIR
from fedlingua.desk.experiment import read_experiment
from fedlingua_demo import phrasebook

WANTED_GIB = 10.0
DIRECTIONS = ("de-fr", "nl-pl", "sv-sl", "fr-cs", "es-sv", "it-de", "pl-es", "cs-nl")


def write_federation(file: Path) -> None:
    sites = "".join(
        f'[[site]]\nname = "{register}"\ndirection = "{direction}"\nphrasebook = "{register}"\nsentences = 24\n'
        for register, direction in zip(phrasebook.REGISTERS, DIRECTIONS, strict=False)
    )
    file.write_text(f"[split]\nmax-train = 8\nmax-dev = 2\nmax-test = 2\ntrain = 0.5\ndev = 0.25\ntest = 0.25\n{sites}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, help="also write the figures as JSON")
    to = parser.parse_args().to
    folder = Path(tempfile.mkdtemp(prefix="fedlingua-benchmark-"))
    try:
        text = phrasebook.register_corpus("hospital", 200, 1)
        make_backbone(folder / "mbart", (word for lines in text.values() for line in lines for word in line.split()))
        write_federation(folder / "federation.toml")
        result = measure(folder)
        print(json.dumps(result, indent=2))
        if to:
            write(to, result)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure(folder: Path) -> dict[str, float | int | str]:
    settings = read_experiment(
        APP_DIR / "experiments" / "demo.toml",
        {
            "federation": str(folder / "federation.toml"),
            "backbone": str(folder / "mbart"),
            "run-dir": str(folder / "run"),
            "rounds": 1,
            "batch-size": 8,
            "accumulation": 1,
            "adapter.dim": 64,
            "beam": 1,
            "max-decode-tokens": 4,
        },
    )
    run = run_measured(settings, 8, folder / "home")
    scores = run.scores
    return {
        "peak_gib": round(run.peak.total / GIB, 2),
        "peak_pss_gib": round(run.peak.pss / GIB, 2),
        "wanted_gib": WANTED_GIB,
        "uplink_bytes": scores["uplink_bytes_per_round"],
        "uplink_over_payload": round(scores["uplink_bytes_per_round"] / (4 * scores["exchanged_parameters"]), 5),
        "exchanged_parameters": scores["exchanged_parameters"],
        "seconds": round(run.seconds, 1),
    }


if __name__ == "__main__":
    main()
