"""What a benchmark leaves behind: its figures on the screen, and as JSON where they are asked for.

Kept figures are lines of one file, `experiments/results/benchmarks/kept.jsonl`: {"benchmark": its name, and its figures}.
"""

import argparse
import json
import os
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

KEPT = Path(__file__).parents[1] / "experiments" / "results" / "benchmarks" / "kept.jsonl"


def parser_of(description: str | None, repeats: int, small: str = "") -> argparse.ArgumentParser:
    """Return a parser with the options that most benchmarks have. small: what `--small` leaves out, if there is such an option."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if small:
        parser.add_argument("--small", action="store_true", help=small)
    parser.add_argument("--to", type=Path, help="write the figures here as JSON")
    parser.add_argument("--repeats", type=int, default=repeats)
    return parser


def keep(result: Mapping[str, Any], to: Path | None, *libraries: str) -> None:
    """Show the figures with the machine's cores and the versions of `libraries`, and write them to `to`."""
    machine = {"cores": os.cpu_count(), "versions": {name: version(name) for name in libraries}}
    text = json.dumps({**result, **machine}, indent=2)
    print(text)
    write(to, json.loads(text))


def write(to: Path | None, result: Mapping[str, Any]) -> None:
    """Write the figures to a file of their own, or of FILE.jsonl:NAME to the line of that name."""
    if to is None:
        return
    file, colon, name = str(to).rpartition(":")
    if not colon:
        to.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        return
    lines = read(Path(file)) | {name: result}
    text = [json.dumps({"benchmark": of, **lines[of]}, ensure_ascii=False) + "\n" for of in sorted(lines)]
    Path(file).write_text("".join(text), encoding="utf-8")


def read(file: Path = KEPT) -> dict[str, dict[str, Any]]:
    """Benchmark -> its figures, of such a file; nothing where it is not there."""
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []
    return {line.pop("benchmark"): line for line in lines}
