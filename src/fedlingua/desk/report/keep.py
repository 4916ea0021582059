"""The small files of a run that are worth committing: what it was, what it scored, and the table as Markdown."""

import shutil
from pathlib import Path
from typing import Any

from fedlingua.desk.report.read import read_run
from fedlingua.desk.report.tables import score_markdown
from fedlingua.runs.folder import json_text

NOT_KEPT: dict[str, Any] = {"data-dir": "", "run-dir": "", "resume": False}
"""Settings of one machine and one call, which say nothing about the result -> what stands in their place."""


def keep_run(run_dir: Path, to: Path) -> None:
    """Copy `run.json` (without places) and `scores.json` to `to`, and write `report.md`.

    Raises:
        RunError: no run there.
    """
    run = kept_run(run_dir)
    to.mkdir(parents=True, exist_ok=True)
    (to / "run.json").write_text(json_text(run), encoding="utf-8")
    if (run_dir / "scores.json").is_file():
        shutil.copyfile(run_dir / "scores.json", to / "scores.json")
    versions = ", ".join(f"{name} {number}" for name, number in run["versions"].items())
    about = (
        f"# {run['method']}, seed {run['seed']}: {run['status']}\n\n{score_markdown(run_dir)}\n\n"
        f"{run['rounds']} rounds, best {run['best_round']}, {run['seconds'] or 0:.0f} s; "
        f"{run.get('exchanged_parameters', 0):,} parameters exchanged; settings {run['config_hash']}; {versions}.\n"
    )
    (to / "report.md").write_text(about, encoding="utf-8")


def kept_run(run_dir: Path) -> dict[str, Any]:
    """A run's run.json as it is worth committing: nothing in it says where files lay on one machine.

    Raises:
        RunError: no run there.
    """
    run = dict(read_run(run_dir).run)
    run["config"] = {key: NOT_KEPT.get(key, without_place(value)) for key, value in run["config"].items()}
    run["backbone"] = {key: without_place(value) for key, value in (run.get("backbone") or {}).items()}
    return run


def without_place(value: Any) -> Any:
    """The last name of an absolute path; anything else as it is."""
    return Path(value).name if isinstance(value, str) and value.startswith("/") else value
