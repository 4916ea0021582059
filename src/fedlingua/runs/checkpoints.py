"""Checkpoints: each round whole or not at all on disk, with checksums; a killed run resumes after its last intact round."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load_file

from fedlingua.backbones.parts import PARTS, Part
from fedlingua.common.errors import RunError
from fedlingua.common.folders import check_folder, write_folder
from fedlingua.exchange.state import ClusterTensors
from fedlingua.exchange.tensors import Tensors, save_tensors

_VALUES = "state.json"
_OWN = "strategy"


@dataclass(frozen=True)
class Checkpoint:
    """One stored round. own: tensors that a strategy declared as its state; values: all other state, as JSON values."""

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
        """Store a round. A folder under its final name is complete, on disk, and the same bytes for the same content."""

        def write(aside: Path) -> None:
            for part in PARTS:
                for cluster, content in tensors.get(part, {}).items():
                    if content:
                        save_tensors(content, aside / f"{part}.{cluster}.safetensors")
            if own:
                save_tensors(own, aside / f"{_OWN}.safetensors")
            (aside / _VALUES).write_text(json.dumps({"round": number, **(values or {})}, indent=1) + "\n", encoding="utf-8")

        write_folder(self._folder(number), write)

    def load(self, number: int) -> Checkpoint:
        """Load a stored round and check every byte of it; raise RunError if a file is missing or not as it was written."""
        folder = self._folder(number)
        if not folder.is_dir():
            raise RunError(f"{folder}: there is no such checkpoint; kept rounds: {self.rounds() or 'none'}")
        check_folder(folder, _VALUES, "use another round's checkpoint")
        tensors: dict[Part, dict[str, Tensors]] = {part: {} for part in PARTS}
        own: Tensors = {}
        try:
            for file in sorted(folder.glob("*.safetensors")):
                part, _, cluster = file.name.removesuffix(".safetensors").partition(".")
                if part == _OWN:
                    own = load_file(file)
                else:
                    tensors[part][cluster] = load_file(file)  # type: ignore[index]
            values = json.loads((folder / _VALUES).read_text(encoding="utf-8"))
        except (SafetensorError, KeyError, ValueError, OSError) as error:
            raise RunError(f"{folder} does not read as a checkpoint ({error}); use another round's") from error
        return Checkpoint(number, tensors, own, values)

    def newest_good(self, also: Callable[[Checkpoint], None] = lambda checkpoint: None) -> tuple[Checkpoint | None, list[str]]:
        """Return the newest intact round or None, and what is wrong with newer ones; `also` raises RunError to reject one."""
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
        """Return the numbers of the stored rounds, in order."""
        names = [path.name for path in self.directory.glob("[0-9]*")] if self.directory.is_dir() else []
        return sorted(int(name) for name in names if name.isdigit())

    def prune(self, keep: set[int]) -> None:
        """Remove all rounds but these, and folders that a killed run left half-written."""
        for number in self.rounds():
            if number not in keep:
                shutil.rmtree(self._folder(number))
        for left in self.directory.glob("*.writing"):
            shutil.rmtree(left)

    def _folder(self, number: int) -> Path:
        return self.directory / f"{number:04d}"
