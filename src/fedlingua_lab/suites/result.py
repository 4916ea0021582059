"""A suite's result on disk: `suite.json` and `runs.jsonl`, and the tables made from them, `table.csv` and `table.md`."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedlingua.common.files import APP_DIR, json_text, replace_text
from fedlingua.desk.report.keep import kept_run, read_kept_runs, run_line, without_places, write_kept_runs
from fedlingua.desk.report.read import Round, read_run
from fedlingua.desk.report.round_seconds import round_seconds, training_seconds
from fedlingua.runs.folder import RunFolder, code_hash
from fedlingua.settings.methods import SILO
from fedlingua_lab.suites.convergence import Losses, dev_losses, thinned
from fedlingua_lab.suites.paper import PAPERS
from fedlingua_lab.suites.read import Suite
from fedlingua_lab.suites.runs import Run, standing
from fedlingua_lab.suites.table import DECIMALS, SuiteTable

ABSOLUTE_PATH = re.compile(r"(?<![\w.:/])/(?:[^\s/:;,'\"()]+/)*([^\s/:;,'\"()]+)")


def write_result(to: Path, suite: Suite, runs: Sequence[Run], seconds: float) -> None:
    """Write the result of a suite's runs, without runs that the suite no longer has.

    seconds: The time that this call took. Earlier calls' seconds are added if all runs of their result still belong to the suite."""
    earlier = RunFolder(to).read("suite.json") or {}
    if {entry["folder"] for entry in earlier.get("runs", {}).values()} <= {run.folder.name for run in runs}:
        seconds += earlier.get("suite_seconds", 0.0)
    done = [run for run in runs if standing(run) == "completed"]
    write_kept_runs(to, (run_line(run.folder, run.row.name) for run in done))
    replace_text(to / "suite.json", json_text(account(suite, runs, seconds)))
    write_tables(to)


def write_tables(to: Path) -> None:
    """Rewrite table.csv and table.md of a result folder."""
    plain, markdown = rebuild(to)
    replace_text(to / "table.csv", plain)
    replace_text(to / "table.md", markdown)


def rebuild(result_dir: Path) -> tuple[str, str]:
    """Make the content of table.csv and table.md from `suite.json` and `runs.jsonl`; raise RunError if there is no result."""
    table = SuiteTable.of(result_dir)
    table.suite = {**table.suite, "notes": [*table.suite["notes"], *_resumed(read_kept_runs(result_dir))]}
    return table.csv(), table.markdown()


def account(suite: Suite, runs: Sequence[Run], seconds: float) -> dict[str, Any]:
    """Make the content of suite.json from the folders of the suite's runs; it contains no path of this machine."""
    completed = [kept_run(run.folder) for run in runs if standing(run) == "completed"]
    libraries = dict.fromkeys(library for run in completed for library in run["versions"])
    paper, file = suite.shown_paper, suite.file.resolve()
    name = str(file.relative_to(APP_DIR)) if file.is_relative_to(APP_DIR) else suite.file.name
    return {
        "title": suite.title,
        "file": name + (f":{suite.variant}" if suite.variant else ""),
        "seeds": list(suite.seeds),
        "settings": without_places(suite.settings),
        "overrides": without_places(suite.overrides),
        "rows": [
            {
                "name": row.name,
                "method": row.settings.method,
                "trains": row.settings.how.trains,
                "keys": without_places(row.keys),
                "seeds": list(row.seeds),
            }
            for row in suite.rows
        ],
        "sites": list(dict.fromkeys(name for run in runs for name in run.federation.site_names)),
        "paper": paper and {"table": paper.table, "by": PAPERS[paper.of].by, "rows": paper.rows},
        "versions": {name: " and ".join(_different(run["versions"].get(name) for run in completed)) for name in libraries},
        "seconds": round(sum(run["seconds"] or 0.0 for run in completed), 1),
        "suite_seconds": round(seconds, 1),
        "notes": _notes(suite, completed),
        "runs": {run.name: run_entry(run) for run in runs},
    }


def run_entry(run: Run) -> dict[str, Any]:
    """Return how a run ended and what it took.

    train_seconds: Wall time of training at a round's slowest site, as a mean over rounds. seconds_by_part: See report/round_seconds.py.
    dev_loss: The lowest of any round, in nats per token; it is the mean over sites that `best-by` names, even if each site chooses its own
    round. dev_losses: For masked text, the dev losses by round, as sums.
    """
    content = RunFolder(run.folder).read("run.json") or {}
    ended = standing(run) == "completed"
    status = str(content.get("status") or "not begun")
    measured = read_run(run.folder).rounds if content else []
    rounds = [each for each in measured if each.number > 0]
    return {
        "status": "completed" if ended else "broken off" if status == "running" else status,
        "reason": None if ended else ABSOLUTE_PATH.sub(r"\1", str(content.get("reason") or "")) or None,
        "rounds": content.get("rounds") or 0,
        "dev_loss": min((each.dev_loss for each in rounds or measured if each.dev_loss is not None), default=None),
        "train_seconds": training_seconds(rounds),
        "seconds_by_part": {part: round(value, DECIMALS) for part, value in round_seconds(rounds).items()},
        **({"dev_losses": losses} if run.settings.task == "masked-language" and (losses := _dev_losses(run, measured)) else {}),
        "num_sites": len(run.federation.sites),
        "folder": run.folder.name,
    }


def _dev_losses(run: Run, measured: Sequence[Round]) -> Losses:
    """Return the dev losses of a run by round and text; a pooled run is measured on all of its text as one."""
    how = run.settings.how
    of = how.pools if run.settings.method.startswith(SILO) else f"{how.pools} text"
    return thinned(dev_losses(measured, of if how.pooled else None))


def _different(values: Iterable[str | None]) -> list[str]:
    """Return the distinct values, in order of appearance, without None and empty ones."""
    return list(dict.fromkeys(value for value in values if value))


def _resumed(runs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a note that names the resumed runs in which sites exchange tensors; none without such runs. runs: Name -> line."""
    attempts = {name: line["run"].get("attempt") or 1 for name, line in runs.items() if line["run"].get("exchanged_parameters")}
    names = [name for name, attempt in attempts.items() if attempt > 1]
    return [f"Resumed: {', '.join(names)}. Bytes of such a run may include tensors that were sent again."] if names else []


def _notes(suite: Suite, completed: Sequence[Mapping[str, Any]]) -> list[str]:
    notes = [f"{row.name} trains nothing: one run for all seeds." for row in suite.rows if not row.settings.how.trains]
    if suite.paper and not suite.shown_paper:
        notes.append("The paper's figures are left out: --set takes the setting away from the paper's.")
    if len(hashes := _different(run.get("code_hash") for run in completed)) > 1:
        notes.append(f"The runs were made by {len(hashes)} states of the code, see runs.jsonl.")
    elif hashes and hashes != [code_hash()]:
        notes.append(
            "The runs were made by an earlier state of the code than this result; a run whose folder is removed is run again."
        )
    return notes
