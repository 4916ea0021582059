"""`fedlingua run`: check everything that can be checked, hand the run to Flower, watch it, and see it to its end."""

import dataclasses
import shutil
import tempfile
from pathlib import Path

from rich.console import Console

from fedlingua.cli.engine import Engine
from fedlingua.cli.progress import watch
from fedlingua.config import APP_DIR, Scalar, Settings, parse_override, read_experiment
from fedlingua.corpora.sites import Federation, check_files, read_federation
from fedlingua.errors import ConfigError, RunError
from fedlingua.report import score_table, write_report
from fedlingua.runs import RunFolder, git_revision


def run_experiment(
    experiment: Path,
    data: Path | None,
    overrides: list[str],
    seed: int | None,
    to: Path | None,
    profile: str,
    nodes: int | None,
    console: Console,
) -> Path:
    """Run one experiment file; returns the run folder.

    Raises:
        ConfigError, CorpusError: before anything is started. RunError: the run failed; its folder says why.
    """
    settings, federation = check_experiment(experiment, data, overrides, seed)
    folder = RunFolder(_new_folder(experiment, settings, to))
    console.print(f"run folder: {folder.directory}", soft_wrap=True)
    revision = git_revision()
    run_config = {**settings.flat(), "run-dir": str(folder.directory)}
    home = Path(tempfile.mkdtemp(prefix="fedlingua-"))
    try:
        with Engine(APP_DIR, home, profile) as engine:
            run_id = engine.submit(run_config, nodes or len(federation.sites))
            status = watch(folder.directory, lambda: engine.status(run_id), console)
            tail = engine.log_tail() if status.outcome != "completed" else ""
    except (KeyboardInterrupt, SystemExit):  # Ctrl-C, or a signal that the engine turned into an exit
        _close(folder, "interrupted", "stopped by the user")
        Console(stderr=True).print(f"interrupted; all that was started has ended, and {folder.directory} says so", soft_wrap=True)
        raise
    finally:
        shutil.rmtree(home, ignore_errors=True)
        if folder.read("run.json"):
            # The server ran from an unpacked bundle, which is no checkout.
            folder.update(git_revision=revision)
    if status.outcome != "completed":
        # The server may have died before it could say so itself.
        _close(folder, "failed", status.details or "the run ended without a reason; the last lines of its log were shown")
        reason = (folder.read("run.json") or {}).get("reason")
        if folder.read("sites.json") is None:
            console.print(tail, markup=False, highlight=False)
        raise RunError(f"the run failed: {reason}; its folder is {folder.directory}")
    page = write_report(folder.directory)
    console.print(score_table(folder.directory))
    console.print(f"report: {page}", soft_wrap=True)
    return folder.directory


def check_experiment(experiment: Path, data: Path | None, overrides: list[str], seed: int | None) -> tuple[Settings, Federation]:
    """Settings and federation of an experiment file, with everything refused that can be seen without loading anything.

    Raises:
        ConfigError: a key, value or name. CorpusError: a corpus file that is not there.
    """
    given: dict[str, Scalar] = dict(parse_override(text) for text in overrides)
    if seed is not None:
        given["seed"] = seed
    if data is not None:
        given["data-dir"] = str(data)
    settings = read_experiment(experiment, given)
    if settings.data_dir:
        # Server and sites work in other directories, so what is relative is made absolute here.
        settings = dataclasses.replace(settings, data_dir=str(Path(settings.data_dir).expanduser().resolve()))
    federation = read_federation(settings.federation_path, Path(settings.data_dir))
    check_files(federation)
    return settings, federation


def _new_folder(experiment: Path, settings: Settings, to: Path | None) -> Path:
    if to is not None:
        if (to / "run.json").exists():
            raise ConfigError(f"--to {to}: holds a run already; give another folder, or remove it")
        return to.resolve()
    stem = f"{experiment.stem}-{settings.method}-{settings.seed}"
    number = 1
    while (folder := Path("runs") / (stem if number == 1 else f"{stem}-{number}")).exists():
        number += 1
    return folder.resolve()


def _close(folder: RunFolder, status: str, reason: str) -> None:
    run = folder.read("run.json") or {"name": folder.directory.name}
    # Of a run that is being stopped, the server may still say that it failed: who stopped it knows better.
    if run.get("status") != "completed" and (status == "interrupted" or run.get("status") != "failed"):
        folder.write("run.json", run)
        folder.close(status, reason)
    write_report(folder.directory)
