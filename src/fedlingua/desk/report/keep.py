"""Keep results of runs in a form to be committed: `runs.jsonl` in each folder, a line per run, and each run's table as Markdown.

A line is {"method", "seed", "run": run.json without paths, "scores": scores.json}; for a suite, method is the name of the row.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedlingua.common.errors import RunError
from fedlingua.common.files import replace_text
from fedlingua.desk.report.tables import score_markdown
from fedlingua.runs.folder import RunFolder, run_about

RUNS_FILE = "runs.jsonl"

NOT_KEPT: dict[str, Any] = {"data-dir": "", "run-dir": "", "resume": False}
"""Setting of one machine or one call, without effect on the result -> the value that is kept instead."""


def keep_run(run_dir: Path, to: Path) -> None:
    """Write a run's line to `runs.jsonl` and its table to `report.md`; entries of other runs are kept.

    Raises:
        RunError: the run has no config, or the folder holds a run with the same method and seed and other settings.
    """
    line, stored = run_line(run_dir), read_kept_runs(to)
    run, name = line["run"], run_name(line)
    if name in stored and (other := stored[name]["run"].get("config_hash")) != run["config_hash"]:
        raise RunError(
            f"{to / RUNS_FILE} holds another run as {name}: its settings are {other}, those of {run_dir} {run['config_hash']}; wanted one "
            "run for each method and seed: give --keep another folder, or remove that line"
        )
    write_kept_runs(to, {**stored, name: line}.values())
    versions = ", ".join(f"{name} {number}" for name, number in run["versions"].items())
    about = (
        f"# {run['method']}, seed {run['seed']}: {run['status']}\n\n{score_markdown(run_dir)}\n\n"
        f"{run['rounds']} rounds, best {run['best_round']}, {run['seconds'] or 0:.0f} s; "
        f"{run.get('exchanged_parameters', 0):,} parameters exchanged; settings {run['config_hash']}; {versions}.\n"
    )
    report = to / "report.md"
    earlier = re.split(r"^(?=# )", report.read_text(encoding="utf-8"), flags=re.MULTILINE) if report.is_file() else []
    parts = {part.partition(":")[0]: part.strip() for part in (*earlier, about) if part}
    replace_text(report, "\n\n".join(parts[heading] for heading in sorted(parts)) + "\n")


def run_line(run_dir: Path, row: str | None = None) -> dict[str, Any]:
    """Return a run's line of `runs.jsonl`. row: The name of its row in a suite; by default the run's method."""
    run, scores = kept_run(run_dir), RunFolder(run_dir).read("scores.json")
    return {"method": row or run["method"], "seed": run["seed"], "run": run, "scores": scores}


def run_name(line: Mapping[str, Any]) -> str:
    """Return a run's name in a result, `<method>-<seed>`."""
    return f"{line['method']}-{line['seed']}"


def read_kept_runs(folder: Path) -> dict[str, dict[str, Any]]:
    """Return run name -> line of `runs.jsonl`; empty without such a file. Raise RunError if the file is invalid."""
    file = folder / RUNS_FILE
    try:
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        lines = [json.loads(line) for line in text.split("\n") if line]
        return {run_name(line): line for line in lines}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{file} cannot be read: {error!r}; wanted a line of JSON with method, seed, run and scores for each run"
        ) from error


def write_kept_runs(folder: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Write `runs.jsonl`, ordered by the names of the runs."""
    ordered = sorted(lines, key=run_name)
    replace_text(folder / RUNS_FILE, "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in ordered))


def kept_run(run_dir: Path) -> dict[str, Any]:
    """Return the content of a run's run.json in a form to be committed, without paths of one machine."""
    run = run_about(run_dir)
    if "config" not in run:
        raise RunError(f"{run_dir}: its run.json has no config: the run ended before it began; start it again")
    run["config"] = {key: NOT_KEPT.get(key, without_place(value)) for key, value in run["config"].items()}
    run["backbone"] = without_places(run.get("backbone") or {})
    return run


def without_places(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return named values without the places of this machine, see `without_place`."""
    return {key: without_place(value) for key, value in values.items()}


def without_place(value: Any) -> Any:
    """Return the last component of an absolute path; return anything else unchanged."""
    return Path(value).name if isinstance(value, str) and value.startswith("/") else value
