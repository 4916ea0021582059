"""Checkpoints: every round whole or not at all on disk, with checksums, so that a killed run goes on after its last good one."""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from fedlingua.errors import RunError
from fedlingua.exchange.tensor_sets import Tensors
from fedlingua.hashing import sha256
from fedlingua.parts import PARTS, Part

ClusterTensors = Mapping[Part, Mapping[str, Tensors]]
"""part -> cluster -> its tensors"""

_CHECKSUMS = "checksums"
_OWN = "strategy"


@dataclass(frozen=True)
class Checkpoint:
    """One kept round. own: tensors that a strategy declared as its state; values: all that is no tensor, as JSON holds it."""

    number: int
    tensors: dict[Part, dict[str, Tensors]]
    own: Tensors = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)


class Checkpoints:
    """The folder `checkpoints/` of a run: one folder a round, written aside and renamed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def save(
        self, number: int, tensors: ClusterTensors, own: Tensors | None = None, values: Mapping[str, Any] | None = None
    ) -> None:
        """Keep a round. What is there under its final name is whole, on disk, and the same bytes for the same content."""
        aside, final = self._folder(number, ".writing"), self._folder(number)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        for part in PARTS:
            for cluster, content in tensors.get(part, {}).items():
                if content:
                    save_file(dict(content), aside / f"{part}.{cluster}.safetensors")
        if own:
            save_file(dict(own), aside / f"{_OWN}.safetensors")
        (aside / "state.json").write_text(json.dumps({"round": number, **(values or {})}, indent=1) + "\n", encoding="utf-8")
        lines = [f"{sha256(file)}  {file.name}\n" for file in sorted(aside.iterdir())]
        (aside / _CHECKSUMS).write_text("".join(lines), encoding="utf-8")
        for file in aside.iterdir():
            _to_disk(file)
        _to_disk(aside)
        if final.exists():
            shutil.rmtree(final)
        os.replace(aside, final)
        _to_disk(self.directory)

    def load(self, number: int) -> Checkpoint:
        """A kept round, every byte of it checked.

        Raises:
            RunError: the round is not there, or a file is not what was written.
        """
        folder = self._folder(number)
        if not folder.is_dir():
            raise RunError(f"{folder}: there is no such checkpoint; kept rounds: {self.rounds() or 'none'}")
        _verify(folder)
        tensors: dict[Part, dict[str, Tensors]] = {part: {} for part in PARTS}
        own: Tensors = {}
        try:
            for file in sorted(folder.glob("*.safetensors")):
                part, _, cluster = file.name.removesuffix(".safetensors").partition(".")
                if part == _OWN:
                    own = load_file(file)
                else:
                    tensors[part][cluster] = load_file(file)  # type: ignore[index]
            values = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        except (SafetensorError, KeyError, ValueError, OSError) as error:
            raise RunError(f"{folder} does not read as a checkpoint ({error}); use another round's") from error
        return Checkpoint(number, tensors, own, values)

    def newest_good(self, also: Callable[[Checkpoint], None] = lambda checkpoint: None) -> tuple[Checkpoint | None, list[str]]:
        """The newest round that is whole, or None, and what was wrong with those passed over; `also` may refuse with RunError."""
        passed_over = []
        for number in reversed(self.rounds()):
            try:
                checkpoint = self.load(number)
                also(checkpoint)
            except RunError as error:
                passed_over.append(str(error))
            else:
                return checkpoint, passed_over
        return None, passed_over

    def rounds(self) -> list[int]:
        """Rounds that are kept, in order."""
        names = [path.name for path in self.directory.glob("[0-9]*")] if self.directory.is_dir() else []
        return sorted(int(name) for name in names if name.isdigit())

    def prune(self, keep: set[int]) -> None:
        """Remove all rounds but these, and what a killed run has left half-written."""
        for number in self.rounds():
            if number not in keep:
                shutil.rmtree(self._folder(number))
        for left in self.directory.glob("*.writing"):
            shutil.rmtree(left)

    def _folder(self, number: int, suffix: str = "") -> Path:
        return self.directory / f"{number:04d}{suffix}"


def _verify(folder: Path) -> None:
    """Refuse a folder that holds more, less or something else than its list of checksums says."""
    listed: dict[str, str] = {}
    try:
        for line in (folder / _CHECKSUMS).read_text(encoding="utf-8").splitlines():
            checksum, _, name = line.partition("  ")
            listed[name] = checksum
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{folder} has no readable list of checksums ({error}); use another round's checkpoint") from error
    present = {file.name for file in folder.iterdir()} - {_CHECKSUMS}
    if present != set(listed) or "state.json" not in listed:
        odd = ", ".join(sorted(present ^ set(listed))) or "state.json"
        raise RunError(f"{folder} is not what was written (listed and present differ in {odd}); use another round's checkpoint")
    for name, checksum in listed.items():
        if sha256(folder / name) != checksum:
            raise RunError(f"{folder / name} is not what was written (checksum differs); use another round's checkpoint")


def _to_disk(path: Path) -> None:
    """Return once the file's, or the folder's, content would survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
