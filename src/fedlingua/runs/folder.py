"""The run folder, which a run fills while it runs. Its files are the interface: report and compare read nothing else."""

import fcntl
import hashlib
import json
import os
import subprocess
import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fedlingua.common.errors import RunError
from fedlingua.common.files import APP_DIR, bundled_files, held, json_text, replace_text, sha256
from fedlingua.common.languages import nearest
from fedlingua.runs.checkpoints import Checkpoints
from fedlingua.settings.config import MAY_CHANGE, Settings
from fedlingua.settings.experiment import config_of_run

LIBRARIES = ("fedlingua", "flwr", "ray", "torch", "transformers", "numpy", "safetensors", "sentencepiece", "sacrebleu")
_version = cache(version)


def run_directory(settings: Settings, run_id: int) -> Path:
    """Return the run's folder: its `run-dir`, or a folder of its own under the user's data directory."""
    if settings.run_dir:
        return Path(settings.run_dir).expanduser().resolve()
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return data / "fedlingua" / "runs" / str(run_id)


class RunFolder:
    """The files of a run: each is written aside and renamed, and each line of a log is appended in one write."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.checkpoints = Checkpoints(directory / "checkpoints")

    def open(self, settings: Settings, run_id: int) -> None:
        """Create the folder and its run.json or, with `resume`, start the run's next attempt.

        Raises:
            RunError: The folder holds another run, or none that can be resumed with these settings.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o700)  # it holds the sites' folders with their text; an older folder may still be open
        old = self.read("run.json")
        if settings.resume:
            self._open_again(old, settings, run_id)
            return
        if old is not None and old.get("flower_run_id") not in (None, str(run_id)):
            raise RunError(
                f"{self.directory} already holds run {old.get('flower_run_id')}; give another run-dir, remove the folder, "
                "or resume it with resume = true"
            )
        self.write(
            "run.json",
            {
                "name": self.directory.name,
                "id": uuid.uuid4().hex,
                "attempt": 1,
                "status": "running",
                "reason": None,
                "method": settings.method,
                "seed": settings.seed,
                "config": settings.flat(),
                "config_hash": settings.hash(),
                "flower_run_id": str(run_id),
                "versions": library_versions(),
                "code_hash": code_hash(),
                "git_revision": git_revision(),
                "started": _now(),
                "finished": None,
                "seconds": None,
                "rounds": 0,
                "best_round": None,
            },
        )

    def _open_again(self, old: Mapping[str, Any] | None, settings: Settings, run_id: int) -> None:
        check_resumable(self.directory, old, settings)
        assert old is not None
        before, now = config_of_run(old["config"]), settings.flat()
        other = sorted(key for key in {*before, *now} - {*MAY_CHANGE, "rounds"} if before.get(key) != now.get(key))
        if other:
            changed = ", ".join(f"{key} = {now.get(key)!r} (was {before.get(key)!r})" for key in other)
            raise RunError(
                f"{self.directory}: a resumed run keeps its settings, but {changed}; only rounds, {', '.join(MAY_CHANGE)} may be changed"
            )
        if old.get("code_hash") != code_hash():
            self.event("note", text="the code has changed since the run began: results may differ from an uninterrupted run")
        for left in self.directory.glob(".*.json*"):  # files that the killed server was writing
            left.unlink()
        with (self.directory / "progress.jsonl").open("a", encoding="utf-8") as stream:
            stream.write("\n")  # ends a line that was broken off
        attempt = int(old["attempt"]) + 1
        changes = {"status": "running", "reason": None, "finished": None, "config": now, "attempt": attempt, "resumed": _now()}
        hashes = {"config_hash": settings.hash(), "code_hash": code_hash()}
        self.update(**changes, **hashes, flower_run_id=str(run_id), versions=library_versions())

    def warn(self, texts: Iterable[str]) -> None:
        """Add warnings to progress.jsonl, and to run.json for the report."""
        for text in texts:
            self.event("note", text=f"warning: {text}")
            with held(self.directory / ".warnings.lock"):  # nodes of a simulation may warn at once
                known = (self.read("run.json") or {}).get("warnings") or []
                self.update(warnings=[*known, *({text} - {*known})])

    def held(self, refusal: str = "its run is still going; stop it, or wait for its end") -> AbstractContextManager[None]:
        """Lock the folder against every other process; the lock ends with this process, however it ends.

        Raises:
            RunError: Another process holds the lock; `refusal` ends the message.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        # another process's `is_held` takes the lock for a moment
        return held(self.directory / ".lock", 0.2, RunError(f"{self.directory}: {refusal}"))

    def is_held(self) -> bool:
        """Return whether a process holds the folder's lock; changes nothing."""
        file = self.directory / ".lock"
        if not file.is_file():
            return False
        with file.open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def cut_rounds(self, last: int) -> None:
        """Remove rounds after `last` and incomplete lines from rounds.jsonl and deviations.jsonl: they are made again."""
        for file in (self.directory / "rounds.jsonl", self.directory / "deviations.jsonl"):
            whole = []
            for line in file.read_bytes().split(b"\n") if file.is_file() else ():  # it may end within a character
                with suppress(ValueError):
                    if json.loads(line)["round"] <= last:
                        whole.append(line.decode("utf-8") + "\n")
            if file.is_file():
                replace_text(file, "".join(whole))

    def update(self, **changes: Any) -> None:
        """Change fields of run.json."""
        self.write("run.json", {**(self.read("run.json") or {}), **changes})

    def close(self, status: str, reason: str | None = None) -> None:
        """Set the final status: completed, failed or interrupted."""
        run = self.read("run.json") or {}
        began = run.get("resumed") or run.get("started")
        seconds = (datetime.now(UTC) - datetime.fromisoformat(began)).total_seconds() if began else 0.0
        # For a run in several attempts: the sum over those that were closed, without the time between them.
        before = (run.get("seconds") or 0.0) if run.get("resumed") else 0.0
        self.update(status=status, reason=reason, finished=_now(), seconds=round(before + seconds, 3))
        self.event("end", status=status, reason=reason)

    def event(self, event: str, **fields: Any) -> None:
        """Add a line to progress.jsonl, which live views follow."""
        self.append("progress.jsonl", {"event": event, **fields, "time": time.time()})

    def add_round(self, record: Mapping[str, Any]) -> None:
        """Add a finished round to rounds.jsonl."""
        self.append("rounds.jsonl", record)

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file whole or not at all."""
        replace_text(self.directory / name, json_text(content))

    def read(self, name: str) -> dict[str, Any] | None:
        """Read a JSON file of the folder, None if it does not exist; raise RunError if it is not a complete JSON object."""
        file = self.directory / name
        if not file.is_file():
            return None
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise RunError(f"{file} is not JSON: {error}; it was cut off or changed: restore it, or run again") from error
        if not isinstance(content, dict):
            raise RunError(f"{file} holds a {type(content).__name__}; wanted a JSON object, as a run writes it")
        return content

    def append(self, name: str, record: Mapping[str, Any]) -> None:
        """Add a line to one of the folder's .jsonl files."""
        with (self.directory / name).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(record, ensure_ascii=False) + "\n")


def run_about(directory: Path) -> dict[str, Any]:
    """Read the run.json of a run folder; raise RunError if it is damaged or missing."""
    about = RunFolder(directory).read("run.json")
    if about is None:
        raise no_run(directory)
    return about


def no_run(directory: Path) -> RunError:
    """Return the error for a path that holds no run."""
    if directory.is_dir():
        why = "it has no run.json"
    else:
        near = nearest(directory.name, [path.parent.name for path in directory.parent.glob("*/run.json")])
        why = f"it is {'a file' if directory.exists() else 'not there'}{near}"
    return RunError(f"{directory} is not a run folder: {why}; give a folder that a run has made (runs/<name>)")


def check_begun(directory: Path, run: Mapping[str, Any] | None) -> None:
    """Raise RunError if there is no run.json, or it has no attempt or config."""
    if run is None:
        raise no_run(directory)
    if "attempt" not in run or "config" not in run:
        raise RunError(f"{directory}: its run.json has no attempt or config: the run ended before it began; start it again")


def check_resumable(directory: Path, run: Mapping[str, Any] | None, settings: Settings | None = None) -> None:
    """Raise RunError if a run has not begun, is completed, or cannot go on to the number of rounds in `settings`; None: to its own."""
    check_begun(directory, run)
    assert run is not None
    if settings and settings.rounds != run["config"].get("rounds"):
        _check_rounds(directory, run, settings)
    elif run.get("status") == "completed":
        raise RunError(
            f"{directory}: the run is completed; there is nothing to resume: see its report, or give it more rounds: "
            f"fedlingua run --resume {directory} --set rounds=N"
        )


def _check_rounds(directory: Path, run: Mapping[str, Any], settings: Settings) -> None:
    """Raise RunError if a run cannot go on to another number of rounds: it has more, or those done would have been other ones."""
    done, before = max(RunFolder(directory).checkpoints.rounds(), default=0), run["config"].get("rounds")
    said = f"{directory}: rounds = {settings.rounds} (was {before})"
    if settings.rounds < done:
        raise RunError(f"{said}, and {done} rounds are done; give {done} or more")
    falls = settings.optimized_by != "none" and settings.server_schedule == "cosine"
    stopped = settings.patience and run.get("status") == "completed" and done < before
    rate, noise = (f"every round's {what} follows from the number of all" for what in ("rate", "noise"))
    reasons = [
        (settings.schedule in ("linear", "cosine"), f"schedule = {settings.schedule!r}: {rate}"),
        (falls, f"server.schedule = {settings.server_schedule!r}: {rate}"),
        (settings.trains_privately, f"dp.epsilon = {settings.dp_epsilon:g}: {noise}"),
        (stopped, f"patience = {settings.patience}: the run stopped after round {done}, and would again"),
    ]
    if why := "; ".join(reason for holds, reason in reasons if holds):
        raise RunError(f"{said}, but under {why}; begin another run with this one's model instead: --set start-from={directory}")


def library_versions(*more: str) -> dict[str, str]:
    """Return versions of libraries that can change a result, and of `more`; without `fedlingua` if run from a bundle."""
    versions = {}
    for library in (*LIBRARIES, *more):
        with suppress(PackageNotFoundError):
            versions[library] = _version(library)
    return versions


def git_revision() -> str | None:
    """Return the commit of the app's checkout, with "+changes" if it is not clean; None outside a checkout."""
    if not (APP_DIR / ".git").exists():  # an environment may lie in another project's repository
        return None
    command = ["git", "-C", str(APP_DIR), "describe", "--always", "--abbrev=12", "--dirty=+changes", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() or None


@cache
def code_hash(app_dir: Path = APP_DIR) -> str:
    """Return the sha256 over a bundle's Python files, read once in a process: equal on two nodes that run the same code."""
    lines = [f"{name}:{sha256(file)}\n" for name, file in bundled_files(app_dir).items() if file.suffix == ".py"]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
