"""Seconds of a run's last phase beside those of its rounds: four sites of 300 pairs, default settings, the demo's backbone.

    .venv/bin/python benchmarks/last_phase.py [--set KEY=VALUE] [--to experiments/results/benchmarks/kept.jsonl:last_phase]

The run is simulated as `fedlingua run` does it, first on a machine that has trained no such model alone, then once more in another
folder. `pieces_s` are the sites' seconds, added up. Wanted: a last phase at most as long as the rounds. Ten minutes on two cores.
"""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from kept import keep, parser_of

from fedlingua.common.cache import cache_dir
from fedlingua.desk.processes import program

SITES = (("hospital", "de-fr"), ("hospital", "es-fr"), ("court", "de-nl"), ("court", "es-nl"))
RULES = 'name = "last-phase"\n[split]\nkey = "last-phase"\n[sizes]\ntrain = 180\ndev = 60\ntest = 60\n'
SITE = '[[site]]\nname = "{trade}-{direction}"\ndirection = "{direction}"\nphrasebook = "{trade}"\n'
WANTED = 1.0


def figures_of(run: Path) -> dict[str, Any]:
    """Return the seconds of a run's rounds and of its last phase, their ratio, and what the sites did in the latter."""
    rounds = [json.loads(line)["seconds"] for line in (run / "rounds.jsonl").read_text(encoding="utf-8").splitlines()]
    events = [json.loads(line) for line in (run / "progress.jsonl").read_text(encoding="utf-8").splitlines()]
    last = max(each["seconds"] for each in events if each["event"] == "reply" and each["phase"] == "finish")
    choices = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(run.glob("sites/*/choice/choice.json"))]
    pieces = {"choosing": sum(each["seconds"] for each in choices), "training": sum(each["training_seconds"] for each in choices)}
    return {
        "rounds_s": round(sum(rounds), 1),
        "last_phase_s": round(last, 1),
        "ratio": round(last / sum(rounds), 2),
        "pieces_s": {name: round(seconds, 1) for name, seconds in pieces.items()},
        "kept": {each["site"]: each["kept"] for each in choices},
        "macro_bleu": round(json.loads((run / "scores.json").read_text(encoding="utf-8"))["macro_bleu"], 2),
    }


def main() -> None:
    """Print the figures, and keep them where `--to` says."""
    parser = parser_of(__doc__, repeats=1)
    parser.add_argument("--set", action="append", default=[], help="a key of the run, as for fedlingua run")
    given, result = parser.parse_args(), dict[str, Any]()
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "four.toml"
        file.write_text(RULES + "".join(SITE.format(trade=trade, direction=of) for trade, of in SITES), encoding="utf-8")
        experiment = Path(place) / "defaults.toml"
        experiment.touch()
        (Path(place) / "fedlingua").mkdir()
        if (cache_dir() / "backbones").is_dir():
            (Path(place) / "fedlingua" / "backbones").symlink_to(cache_dir() / "backbones")
        for which in ("first", "again"):
            run = Path(place) / which
            keys = [word for key in (f'federation="{file}"', *given.set) for word in ("--set", key)]
            command = [program("fedlingua"), "run", str(experiment), "--to", str(run), *keys]
            subprocess.run(command, env={**os.environ, "XDG_CACHE_HOME": place}, check=True)
            result[which] = figures_of(run)
    keep(
        {"benchmark": "last_phase", "sites": len(SITES), "pairs": 300, "wanted": WANTED, **result},
        given.to,
        "torch",
        "flwr",
        "ray",
    )


if __name__ == "__main__":
    main()
