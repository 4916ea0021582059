"""Play every attack of tests/hostile against the real code, and write what came of it: experiments/results/hostile.md.

    python -m experiments.hostile

One table a module `tests/hostile/*_table.py`: attack, held or not, what was said. No times and no hashes, so that the same code writes the
same page.
"""

import importlib
import multiprocessing
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.hostile import secure_table, stock_sums  # noqa: E402
from tests.hostile.attacks import Attack, Outcome  # noqa: E402

RESULT = ROOT / "experiments" / "results" / "hostile.md"
MOST_SAID = 240
WORKERS = int(os.environ.get("WORKERS", os.cpu_count() or 1))


def modules() -> list[str]:
    """Those that hold a table, in the order of their names."""
    return sorted(path.stem for path in (ROOT / "tests" / "hostile").glob("*_table.py"))


def played(module: str, number: int) -> Outcome:
    """What came of one attack of a module; one that breaks what it is played against has not been held."""
    attack: Attack = importlib.import_module(f"tests.hostile.{module}").ATTACKS[number]
    with tempfile.TemporaryDirectory(prefix="fedlingua-hostile-") as folder:
        try:
            return attack.play(Path(folder))
        except Exception as error:
            return Outcome(False, f"{type(error).__name__}: {error}")


def page(outcomes: dict[str, Sequence[tuple[str, Outcome]]]) -> str:
    """The whole page as Markdown. outcomes: title -> (attack, outcome)."""
    lines = [
        "# Attacks, and what came of them",
        "",
        "Made by `python -m experiments.hostile`.",
        "",
        "| table | attacks | held |",
        "|---|---:|---:|",
    ]
    lines += [f"| {title} | {len(rows)} | {sum(outcome.held for _, outcome in rows)} |" for title, rows in outcomes.items()]
    for title, rows in outcomes.items():
        lines += ["", f"## {title}", "", "| attack | held | what was said |", "|---|---|---|"]
        lines += [f"| {_cell(name)} | {'yes' if outcome.held else '**no**'} | {_cell(outcome.said)} |" for name, outcome in rows]
    return "\n".join(lines) + "\n"


def beside_flower() -> str:
    """The lies about secure sums that Flower's SecAgg+ can be told as well, and what each of the two made of them."""
    ours = {attack.name: attack for attack in secure_table.ATTACKS}
    lines = [
        "",
        "## The same lies, told to Flower's SecAgg+",
        "",
        "| lie | a site here | Flower's client module |",
        "|---|---|---|",
    ]
    for lie, (name, play) in stock_sums.LIES.items():
        with tempfile.TemporaryDirectory(prefix="fedlingua-hostile-") as folder:
            both = ours[name].play(Path(folder)), play()
        told = (f"{'refused' if each.held else '**obeyed**'}: {each.said}" for each in both)
        lines.append(f"| {_cell(lie)} | {' | '.join(map(_cell, told))} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """One line that ends no column, without what differs between two runs of the same code on the same machine."""
    line = re.sub(r"\b[0-9a-f]{12,64}\b", "(hash)", " ".join(text.split()))
    line = re.sub(r"/tmp/\S+", "(folder)", line)
    short = line if len(line) <= MOST_SAID else f"{line[:MOST_SAID]}..."
    return short.replace("|", "\\|").replace("<", "&lt;").replace("`", "'")


def main() -> int:
    """Play them all; 1 where one was not held."""
    outcomes: dict[str, list[tuple[str, Outcome]]] = {}
    with ProcessPoolExecutor(WORKERS, multiprocessing.get_context("spawn")) as workers:
        for module in modules():
            table = importlib.import_module(f"tests.hostile.{module}")
            numbers = range(len(table.ATTACKS))
            found = workers.map(played, [module] * len(numbers), numbers)
            names = [attack.name for attack in table.ATTACKS]
            outcomes[table.TITLE] = []
            for name, outcome in zip(names, found, strict=True):
                outcomes[table.TITLE].append((name, outcome))
                print(f"{table.TITLE}: {len(outcomes[table.TITLE])} of {len(names)}", file=sys.stderr)
    RESULT.write_text(page(outcomes) + beside_flower(), encoding="utf-8")
    lost = [name for rows in outcomes.values() for name, outcome in rows if not outcome.held]
    print(f"{RESULT.relative_to(ROOT)}: {sum(map(len, outcomes.values()))} attacks, {len(lost)} not held")
    print("\n".join(lost), end="\n" if lost else "")
    return bool(lost)


if __name__ == "__main__":
    raise SystemExit(main())
