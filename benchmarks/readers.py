"""Ten thousand corpora that hypothesis makes up, of every kind, half of them damaged: each is accounted for, or refused in words.

    python benchmarks/readers.py [--files 10000] [--to experiments/results/benchmarks/kept.jsonl:readers]

What is checked of each is `holds` in generated_corpora.py. An exception other than CorpusError is uncaught, a claim that does not hold is
broken; the first of each kind is printed. Always the same files; about two minutes on one core.
"""

import argparse
import json
import time
import traceback
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

from generated_corpora import Generated, generated, holds
from hypothesis import HealthCheck, Phase, given, settings
from kept import KEPT, write

from fedlingua.corpora.formats import FILE_FORMATS

RARE = {"dataset": 0.1}
"""Its library takes a tenth of a second to look at a folder, so of this kind there are fewer."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--to", type=Path, default=Path(f"{KEPT}:readers"))
    given_ = parser.parse_args()
    began, share = time.monotonic(), given_.files / sum(RARE.get(kind, 1) for kind in FILE_FORMATS)
    kinds = {kind: tried(kind, -int(-share * RARE.get(kind, 1) // 1)) for kind in FILE_FORMATS}
    total: Counter[str] = sum((Counter(of) for of in kinds.values()), Counter())
    result = {
        "files": total["files"],
        "read": total["read"],
        "refused": total["refused"],
        "broken": total["broken"],
        "uncaught": total["uncaught"],
        "kinds": kinds,
        "seconds": round(time.monotonic() - began, 1),
        "versions": {name: version(name) for name in ("hypothesis", "lxml", "pyarrow", "datasets")},
    }
    write(given_.to, result)
    print(json.dumps(result, indent=2))


def tried(kind: str, files: int) -> dict[str, Any]:
    """So many corpora of one kind, by what became of them."""
    counts = dict.fromkeys(("files", "read", "refused", "broken", "uncaught"), 0)

    @settings(
        max_examples=files,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(generated(kind))
    def each(case: Generated) -> None:
        counts["files"] += 1
        try:
            counts[holds(case)] += 1
        except Exception as error:
            what = "broken" if isinstance(error, AssertionError) else "uncaught"
            if not counts[what]:
                print(f"{kind}, {what}: {case}")
                traceback.print_exc()
            counts[what] += 1

    each()
    return counts


if __name__ == "__main__":
    main()
