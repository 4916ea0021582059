"""A training that is under way: what it would go on from lies beside the backbone's directory, in `.NAME.training`.

lock        held by the process that trains
model/      tokenizer and, at the end, weights: renamed to NAME when all is there
00001200/   state after that step, as tensors and as values, with checksums; the last two kept steps
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from fedlingua.common.errors import ConfigError, RunError
from fedlingua.common.folders import check_folder, write_folder

Numbers = np.ndarray[Any, Any]
MadeOf = Mapping[str, Any]
"""What decides a training's bytes, by dotted key; as JSON holds it."""

_TENSORS, _VALUES, _MADE_OF = "state.safetensors", "state.json", "made-of"


@dataclass(frozen=True)
class State:
    """All that a training goes on from after `step`. values: what is no tensor, as JSON holds it."""

    step: int
    tensors: Mapping[str, Numbers]
    values: Mapping[str, Any]


class Unfinished:
    """The folder of one training; one that keeps no states has a folder of its process's own, which nobody finds again."""

    def __init__(self, directory: Path, made_of: MadeOf, keeps_states: bool = True) -> None:
        self.folder = directory.with_name(f".{directory.name}.{'training' if keeps_states else os.getpid()}")
        self.model = self.folder / "model"
        self.made_of = made_of

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else trains here meanwhile. At the end the folder goes, unless the training broke off with something to go on from.

        Raises:
            RunError: somebody else does.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise RunError(
                    f"{self.folder}: another process trains this backbone; wait for it, or train to another place (--to)"
                ) from error
            shutil.rmtree(self.model, ignore_errors=True)
            try:
                yield
            except BaseException:
                if not self.steps():
                    shutil.rmtree(self.folder, ignore_errors=True)
                raise
            shutil.rmtree(self.folder)

    def steps(self) -> list[int]:
        """Steps that a state is kept of, in order."""
        return sorted(int(path.name) for path in self.folder.iterdir() if path.name.isdigit())

    def newest(self) -> tuple[State | None, list[str]]:
        """The newest whole state, None where there is none, and what was wrong with those passed over.

        Raises:
            ConfigError: it is of another recipe, text or library; names the keys.
        """
        passed_over: list[str] = []
        for step in reversed(self.steps()):
            try:
                state = self._load(step)
            except RunError as error:
                passed_over.append(str(error))
                continue
            self._check(state)
            return state, passed_over
        return None, passed_over

    def keep(self, state: State) -> None:
        """Whole or not at all; the one before it stays, too, and what a killed process has left half-written goes."""

        def write(aside: Path) -> None:
            save_file(dict(state.tensors), aside / _TENSORS)
            values = {**state.values, _MADE_OF: dict(self.made_of)}
            (aside / _VALUES).write_text(json.dumps(values) + "\n", encoding="utf-8")

        staying = {*self.steps()[-1:], state.step}
        write_folder(self._of(state.step), write)
        for step in set(self.steps()) - staying:
            shutil.rmtree(self._of(step))
        for left in self.folder.glob("*.writing"):
            shutil.rmtree(left)

    def _of(self, step: int) -> Path:
        return self.folder / f"{step:08d}"

    def _load(self, step: int) -> State:
        folder = self._of(step)
        check_folder(folder, _VALUES, "the state before it is gone on with, if there is one")
        try:
            return State(step, load_file(folder / _TENSORS), json.loads((folder / _VALUES).read_text(encoding="utf-8")))
        except (SafetensorError, ValueError, OSError) as error:
            raise RunError(f"{folder} does not read as the state of a training ({error})") from error

    def _check(self, state: State) -> None:
        was, now = state.values[_MADE_OF], json.loads(json.dumps(dict(self.made_of)))
        changed = [key for key in sorted({*was, *now}) if was.get(key) != now.get(key)]
        if not changed:
            return
        told = "; ".join(f"{key} was {was.get(key)!r} and is {now.get(key)!r}" for key in changed[:4])
        more = f"; and {len(changed) - 4} keys more" if len(changed) > 4 else ""
        raise ConfigError(
            f"{self.folder} holds a training that was broken off after step {state.step}, and what it is made of has changed since: "
            f"{told}{more}. Take that back to go on with it, or remove the folder to begin anew"
        )
