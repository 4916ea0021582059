"""What a site stores from round to round: one file for each round and attempt, since a killed round may be trained again."""

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from fedlingua.common.errors import ExchangeError
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.protocol import Stage
from fedlingua.exchange.tensors import NamedTensors, Tensors, save_tensors


class RoundFiles:
    """A folder with one safetensors file for each round and attempt."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def save(self, tensors: Mapping[str, Numbers], stage: Stage) -> None:
        """Write a stage's file whole or not at all."""
        save_tensors(tensors, self._file(stage))

    def load(self, stage: Stage) -> Tensors:
        """Read what `save` wrote.

        Raises:
            ExchangeError: The file is not here; the message names those that are.
        """
        file = self._file(stage)
        if not file.is_file():
            there = ", ".join(sorted(other.stem for other in self.directory.glob("*.safetensors"))) or "none"
            raise ExchangeError(
                f"asked for this site's own tensors {file.stem} (round-attempt), which are not in {self.directory.name}/; "
                f"here: {there}"
            )
        return load_file(file)

    def forget(self, keep: Collection[Stage]) -> None:
        """Remove the files of all stages but these."""
        needed = {self._file(stage) for stage in keep}
        for file in self.directory.glob("*.safetensors"):
            if file not in needed:
                file.unlink()

    def _file(self, stage: Stage) -> Path:
        return self.directory / f"{stage[0]:04d}-{stage[1]}.safetensors"


LAST_ROUNDS = 3
"""Of what a site received, for their mean."""


class ReceivedFiles:
    """A folder with the tensors that a site received, one file for each of the last rounds that they are of."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def save(self, tensors: NamedTensors, number: int) -> None:
        """Write the tensors of round `number`, and remove those of much earlier rounds and of later ones, of a server that died since."""
        if number > 0:
            save_tensors({name: np.ascontiguousarray(array) for name, array in tensors.items()}, self._file(number))
        for file in self.directory.glob("*.safetensors"):
            if not number - LAST_ROUNDS < int(file.stem) <= number:
                file.unlink()

    def files(self, without: int) -> list[Path]:
        """Of all rounds but one, rising."""
        return sorted(file for file in self.directory.glob("*.safetensors") if file != self._file(without))

    def _file(self, number: int) -> Path:
        return self.directory / f"{number:04d}.safetensors"
