"""How fast a translation memory is read, and in how much memory: a TMX file of a million units beside one of a hundred thousand.

    python benchmarks/tmx.py [--units 1000000] [--to experiments/results/benchmarks/kept.jsonl:tmx]

Units are of the phrasebook, in three languages, every other one with inline codes, half a gigabyte in all. Each file is read
by a process of its own with one thread. Where other work shares its core, the wall clock counts that too; a core's own time does not.
Memory is VmHWM, as the kernel counts it, beside what the process took before it read. Needs a gigabyte of disk and two minutes.
"""

import argparse
import gzip
import json
import multiprocessing
import os
import shutil
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from kept import KEPT, write

from fedlingua.common.languages import Direction
from fedlingua.corpora.tmx import TmxFile
from fedlingua_demo import phrasebook

WANTED_UNITS_A_SECOND = 20_000
CODES = {"de": "de-DE", "fr": "FR", "es": "es-ES"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=int, default=1_000_000)
    parser.add_argument("--to", type=Path, default=Path(f"{KEPT}:tmx"))
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="fedlingua-tmx-"))
    try:
        runs = []
        for units in (given.units // 10, given.units):
            plain = folder / f"{units}.tmx"
            write_memory(plain, units)
            packed = plain.with_name(f"{plain.name}.gz")
            with plain.open("rb") as source, gzip.open(packed, "wb", compresslevel=1) as target:
                shutil.copyfileobj(source, target)
            runs += [measured(path) for path in (plain, packed)]
            for path in (plain, packed):
                path.unlink()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    small, large = (
        next(run for run in runs if run["units"] == units and not run["gzip"]) for units in (given.units // 10, given.units)
    )
    result = {
        "runs": runs,
        "units_a_core_second": large["units_a_core_second"],
        "memory_ratio": round(large["peak_mib"] / small["peak_mib"], 3),
        "wanted_units_a_second": WANTED_UNITS_A_SECOND,
        "versions": {"lxml": version("lxml")},
        "load": round(os.getloadavg()[0], 1),
    }
    write(given.to, result)
    print(json.dumps(result, indent=2))


def write_memory(path: Path, units: int) -> None:
    """So many units, each with its number, so that no two are equal."""
    text = phrasebook.base_corpus(2000, 1)
    with path.open("w", encoding="utf-8") as stream:
        stream.write('<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4">\n')
        stream.write('<header srclang="de-DE" segtype="sentence" datatype="plaintext" adminlang="en"/>\n<body>\n')
        for number in range(units):
            stream.write(unit(number, {code: text[code][number % 2000] for code in CODES}))
        stream.write("</body>\n</tmx>\n")


def unit(number: int, sentences: dict[str, str]) -> str:
    """As a translation tool exports it: properties, dates, and in every other unit codes around a word."""

    def segment(sentence: str) -> str:
        first, _, rest = escape(sentence).partition(" ")
        marked = f'<bpt i="1">&lt;b&gt;</bpt>{first}<ept i="1">&lt;/b&gt;</ept>' if number % 2 else first
        return f"{marked} {rest} ({number})"

    variants = "".join(
        f'  <tuv xml:lang="{CODES[code]}" changedate="20240101T000000Z">\n    <seg>{segment(sentence)}</seg>\n  </tuv>\n'
        for code, sentence in sentences.items()
    )
    return f'<tu tuid="{number}">\n  <prop type="project">p{number % 7}</prop>\n{variants}</tu>\n'


def measured(path: Path) -> dict[str, Any]:
    """In a process of its own, so that nothing but the reading is in its memory."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(read, (path,))


def read(path: Path) -> dict[str, Any]:
    before, wall, core = peak_mib(), time.perf_counter(), time.process_time()
    units = sum(1 for _ in TmxFile(path, Direction("de", "fr")).read())
    wall, core = time.perf_counter() - wall, time.process_time() - core
    return {
        "units": units,
        "gzip": path.suffix == ".gz",
        "file_mb": round(path.stat().st_size / 1e6, 1),
        "units_a_second": round(units / wall),
        "units_a_core_second": round(units / core),
        "peak_mib": round(peak_mib(), 1),
        "peak_before_mib": round(before, 1),
    }


def peak_mib() -> float:
    lines = Path("/proc/self/status").read_text().split("\n")
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


if __name__ == "__main__":
    main()
