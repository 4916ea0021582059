"""Five short runs of different methods, and the hashes of what they made: `python -m experiments.five_runs --to after.json`.

A change that is to leave behaviour alone gives the same file before and after: `--against before.json` compares, and names what differs.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

from fedlingua.common.files import json_hash

ROOT = Path(__file__).resolve().parents[1]
SHORT = ["rounds=2", "beam=1", "evaluate-share=0.5", "deadline.phase-s=900", "keep.choose=false"]
RUNS: dict[str, tuple[str, list[str]]] = {
    "families": ("deployment/demo.toml", ["method=adapter-families"]),
    "gradients": ("deployment/demo.toml", ["method=adapter-gradients", "aggregation=fed-avg", "cluster.number=3"]),
    "metasend": ("deployment/demo.toml", ["method=metasend-l", "learning-rate=5e-4", "meta.second-filter=true"]),
    "numbers": ("deployment/demo.toml", ["method=top-k", "send.share=0.2", "aggregation=by-loss"]),
    "medical": ("medical/demo.toml", ["evaluate-every=1"]),
}
"""Name -> experiment file and what differs from it."""


def main() -> None:
    """Run all five, write their hashes, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, required=True, help="JSON file for the hashes")
    parser.add_argument("--against", type=Path, help="hashes of another tree")
    parser.add_argument("--set", action="append", default=[], help="settings for all five, as KEY=VALUE")
    given = parser.parse_args()
    made = {}
    for name, (experiment, settings) in RUNS.items():
        made[name] = hashes_of(experiment, [*SHORT, *settings, *given.set])
        print(f"{name}: {len(made[name])} hashes", flush=True)
        given.to.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    if given.against:
        before = json.loads(given.against.read_text(encoding="utf-8"))
        differ = [f"{run}: {what}" for run in RUNS for what in sorted(_differing(before[run], made[run]))]
        print("\n".join(differ) or "the same tensors and scores in all five runs")
        sys.exit(bool(differ))


def hashes_of(experiment: str, settings: list[str]) -> dict[str, str]:
    """Carry out one run in a folder of its own; returns file or score -> hash."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [sys.executable, "-c", "from fedlingua.desk.cli.app import main; main()", "run"]
        command += [str(ROOT / "experiments" / experiment), "--to", str(run)]
        for setting in settings:
            command += ["--set", setting]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return dict(_hashes(run))


def _hashes(run: Path) -> Iterator[tuple[str, str]]:
    for file in sorted([*run.glob("checkpoints/*/*.safetensors"), *run.glob("sites/*/**/*.safetensors")]):
        content = hashlib.sha256()
        for name, array in sorted(load_file(file).items()):
            content.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
        yield str(file.relative_to(run)), content.hexdigest()[:16]
    scores: dict[str, Any] = json.loads((run / "scores.json").read_text(encoding="utf-8"))
    without_bytes = {key: value for key, value in scores.items() if "bytes" not in key}
    yield "scores.json", json_hash(without_bytes)[:16]


def _differing(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {what for what in {*before, *after} if before.get(what) != after.get(what)}


if __name__ == "__main__":
    main()
