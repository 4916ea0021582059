"""A run on disk: its folder, its progress, its checkpoints. The files are the interface; report and compare read nothing else."""

import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file, save_file

from fedlingua.config import APP_DIR, Settings
from fedlingua.errors import RunError
from fedlingua.exchange.tensor_sets import PARTS, Part, Tensors

LIBRARIES = ("fedlingua", "flwr", "ray", "torch", "transformers", "numpy", "safetensors", "sentencepiece", "sacrebleu")
ClusterTensors = Mapping[Part, Mapping[str, Tensors]]
"""part -> cluster -> its tensors"""


def run_directory(settings: Settings, run_id: int) -> Path:
    """Where a run is written: its `run-dir`, or a folder of its own under the user's data directory."""
    if settings.run_dir:
        return Path(settings.run_dir).expanduser().resolve()
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return data / "fedlingua" / "runs" / str(run_id)


class RunFolder:
    """The server's pen: every file is written aside and renamed, every line of a log in one write."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def open(self, settings: Settings, run_id: int) -> None:
        """Start the folder and its run.json.

        Raises:
            RunError: the folder holds another run.
        """
        old = self.read("run.json")
        if old is not None and old.get("flower_run_id") not in (None, str(run_id)):
            raise RunError(
                f"{self.directory} holds run {old.get('flower_run_id')} already; give another run-dir, or remove the folder"
            )
        self.directory.mkdir(parents=True, exist_ok=True)
        self.write(
            "run.json",
            {
                "name": self.directory.name,
                "status": "running",
                "reason": None,
                "method": settings.method,
                "seed": settings.seed,
                "config": settings.flat(),
                "config_hash": settings.hash(),
                "flower_run_id": str(run_id),
                "versions": library_versions(),
                "git_revision": git_revision(),
                "started": _now(),
                "finished": None,
                "seconds": None,
                "rounds": 0,
                "best_round": None,
            },
        )

    def update(self, **changes: Any) -> None:
        """Change fields of run.json."""
        self.write("run.json", {**(self.read("run.json") or {}), **changes})

    def close(self, status: str, reason: str | None = None) -> None:
        """Set the last status: completed, failed or interrupted."""
        run = self.read("run.json") or {}
        started = datetime.fromisoformat(run["started"]) if run.get("started") else datetime.now(UTC)
        seconds = round((datetime.now(UTC) - started).total_seconds(), 3)
        self.update(status=status, reason=reason, finished=_now(), seconds=seconds)
        self.event("end", status=status, reason=reason)

    def event(self, event: str, **fields: Any) -> None:
        """Add a line to progress.jsonl, which live views follow."""
        self._append("progress.jsonl", {"event": event, **fields, "time": time.time()})

    def add_round(self, record: Mapping[str, Any]) -> None:
        """Add a finished round to rounds.jsonl."""
        self._append("rounds.jsonl", record)

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file whole or not at all."""
        self.directory.mkdir(parents=True, exist_ok=True)
        aside = self.directory / f".{name}.{os.getpid()}"
        aside.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        os.replace(aside, self.directory / name)

    def read(self, name: str) -> dict[str, Any] | None:
        """A JSON file of the folder, or None when there is none."""
        file = self.directory / name
        if not file.is_file():
            return None
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return content

    def _append(self, name: str, record: Mapping[str, Any]) -> None:
        with (self.directory / name).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(record, ensure_ascii=False) + "\n")

    def save_checkpoint(self, number: int, tensors: ClusterTensors, state: Mapping[str, Any]) -> None:
        """Keep a round: each cluster's tensors, and `state.json` with their checksums; written aside and renamed."""
        aside, final = self._checkpoint(number, ".writing"), self._checkpoint(number)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        checksums = {}
        for part in PARTS:
            for cluster, content in tensors.get(part, {}).items():
                if content:
                    file = aside / f"{part}.{cluster}.safetensors"
                    save_file(dict(content), file)
                    checksums[file.name] = sha256(file)
        (aside / "state.json").write_text(
            json.dumps({"round": number, **state, "files": checksums}, indent=2) + "\n", encoding="utf-8"
        )
        if final.exists():
            shutil.rmtree(final)
        os.replace(aside, final)

    def load_checkpoint(self, number: int) -> dict[Part, dict[str, Tensors]]:
        """The tensors of a kept round.

        Raises:
            RunError: the round is not there, or a file is not what was written.
        """
        directory = self._checkpoint(number)
        if not (directory / "state.json").is_file():
            raise RunError(f"{directory}: there is no such checkpoint; kept rounds: {self.checkpoints() or 'none'}")
        tensors: dict[Part, dict[str, Tensors]] = {part: {} for part in PARTS}
        for name, checksum in json.loads((directory / "state.json").read_text(encoding="utf-8"))["files"].items():
            file = directory / name
            if not file.is_file() or sha256(file) != checksum:
                raise RunError(f"{file} is not what was written (checksum differs); use another round's checkpoint")
            part, cluster = name.removesuffix(".safetensors").split(".", 1)
            tensors[part][cluster] = load_file(file)
        return tensors

    def checkpoints(self) -> list[int]:
        """Rounds that are kept, in order."""
        folder = self.directory / "checkpoints"
        return sorted(int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit()) if folder.is_dir() else []

    def prune_checkpoints(self, keep: set[int]) -> None:
        """Remove all rounds but these."""
        for number in self.checkpoints():
            if number not in keep:
                shutil.rmtree(self._checkpoint(number))

    def _checkpoint(self, number: int, suffix: str = "") -> Path:
        return self.directory / "checkpoints" / f"{number:04d}{suffix}"


def sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def library_versions() -> dict[str, str]:
    """Versions of the libraries that can change a result; `fedlingua` itself is absent where the app runs from a bundle."""
    versions = {}
    for library in LIBRARIES:
        try:
            versions[library] = version(library)
        except PackageNotFoundError:
            continue
    return versions


def git_revision() -> str | None:
    """Commit of the app's checkout, with "+changes" when it is not clean; None outside a checkout."""
    command = ["git", "-C", str(APP_DIR), "describe", "--always", "--abbrev=12", "--dirty=+changes", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def code_hash() -> str:
    """sha256 over the app's Python files: equal on two nodes when both run the same code."""
    digest = hashlib.sha256()
    for top in ("src", "strategies", "clients"):
        for file in sorted((APP_DIR / top).rglob("*.py")):
            digest.update(f"{file.relative_to(APP_DIR)}:{sha256(file)}\n".encode())
    return digest.hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
