"""Checkpoints of a pre-training, in `.NAME.training` beside the backbone's folder.

.lock       held by the process that trains
model/      tokenizer and, at the end, weights: renamed to NAME when complete
00001200/   state after that step, with checksums; the last two are kept
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedlingua.common.errors import ConfigError, RunError
from fedlingua.common.folders import check_folder, write_folder
from fedlingua.runs.folder import RunFolder

MadeOf = Mapping[str, Any]
"""Everything that determines a training's bytes, by dotted key, in JSON's types."""
State = Mapping[str, Any]
"""Everything that the next step depends on: `step`, and tensors, numbers, lists and tables of them."""

_STATE, _MADE_OF = "state.pt", "made-of.json"


@dataclass(frozen=True)
class Progress:
    """Progress of a pre-training: `done` in 0..1, losses in nats a token, BLEU (0-100) by direction if dev was translated."""

    step: int
    done: float
    seconds: float
    train_loss: float
    dev_loss: float
    bleu: Mapping[str, float] = field(default_factory=dict)


class Checkpoints:
    """The folder of one training; if checkpoints are disabled, a temporary folder of the process."""

    def __init__(self, directory: Path, made_of: MadeOf, enabled: bool = True) -> None:
        self.folder = directory.with_name(f".{directory.name}.{'training' if enabled else os.getpid()}")
        self.model = self.folder / "model"
        self.made_of: dict[str, Any] = json.loads(json.dumps(dict(made_of)))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from training here; they get a RunError. Remove the folder at the end, unless the training failed after
        a checkpoint.
        """
        with RunFolder(self.folder).held("another process trains this backbone; wait for it, or train in another folder (--to)"):
            shutil.rmtree(self.model, ignore_errors=True)
            try:
                yield
            except BaseException:
                if not self.steps():
                    shutil.rmtree(self.folder, ignore_errors=True)
                raise
            shutil.rmtree(self.folder)

    def steps(self) -> list[int]:
        return sorted(int(path.name) for path in self.folder.iterdir() if path.name.isdigit())

    def newest(self) -> tuple[State | None, list[str]]:
        """Load the newest intact checkpoint, None if there is none; also return what was wrong with newer ones.

        Raises:
            ConfigError: it was made with another recipe, text or library; names the keys.
        """
        passed_over: list[str] = []
        for step in reversed(self.steps()):
            try:
                check_folder(self._of(step), _STATE, "training resumes from the state before it, if there is one")
                return self._load(step), passed_over
            except RunError as error:
                passed_over.append(str(error))
        return None, passed_over

    def save(self, state: State) -> None:
        """Write a checkpoint as a whole or not at all; keep the one before it, and remove older ones and half-written ones."""
        import torch

        def write(aside: Path) -> None:
            torch.save(dict(state), aside / _STATE)
            (aside / _MADE_OF).write_text(json.dumps(self.made_of) + "\n", encoding="utf-8")

        staying = {*self.steps()[-1:], state["step"]}
        write_folder(self._of(state["step"]), write)
        for step in set(self.steps()) - staying:
            shutil.rmtree(self._of(step))
        for left in self.folder.glob("*.writing"):
            shutil.rmtree(left)

    def _of(self, step: int) -> Path:
        return self.folder / f"{step:08d}"

    def _load(self, step: int) -> State:
        import torch

        then = json.loads((self._of(step) / _MADE_OF).read_text(encoding="utf-8"))
        if changed := [key for key in sorted({*then, *self.made_of}) if then.get(key) != self.made_of.get(key)]:
            changes = "; ".join(f"{key} was {then.get(key)!r} and is {self.made_of.get(key)!r}" for key in changed[:4])
            more = f"; and {len(changed) - 4} keys more" if len(changed) > 4 else ""
            raise ConfigError(
                f"{self.folder} holds a training that was interrupted after step {step}, and its inputs have changed since: "
                f"{changes}{more}. Undo the changes to resume it, or remove the folder to start again"
            )
        state: State = torch.load(self._of(step) / _STATE, map_location="cpu", weights_only=True)
        return state
