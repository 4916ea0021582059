"""Tensors that a site stores between rounds: one file per round and attempt, because an interrupted round may be trained again."""

from collections.abc import Collection, Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.numpy import load_file

from fedlingua.common.errors import ExchangeError
from fedlingua.common.files import sha256
from fedlingua.exchange.joined import Numbers
from fedlingua.exchange.protocol import START, Stage
from fedlingua.exchange.tensors import Tensors, remove_unfinished, save_tensors


class RoundFiles:
    """A folder with one safetensors file per round and attempt."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def save(self, tensors: Mapping[str, Numbers], stage: Stage) -> None:
        """Store the tensors of a stage; the file is on disk completely or not at all."""
        save_tensors(tensors, self._file(stage))

    def load(self, stage: Stage) -> Tensors:
        """Load the tensors of a stage, none for START; raise ExchangeError if they are not stored, or damaged."""
        file = self._file(stage)
        if stage == START:
            return {}
        asked, where = f"asked for this site's own tensors {file.stem} (round-attempt)", f"{self.directory.name}/"
        if not file.is_file():
            there = ", ".join(sorted(other.stem for other in self.directory.glob("*.safetensors"))) or "none"
            raise ExchangeError(f"{asked}, which are not in {where}; here: {there}")
        try:
            return load_file(file)
        except (OSError, SafetensorError) as error:
            what_now = f"({type(error).__name__}): restore that file, or start a new run"
            raise ExchangeError(f"{asked}, which are damaged in {where} {what_now}") from error

    def digest(self, stage: Stage) -> str:
        """Return the SHA-256 of what is stored of a stage; "" if nothing is."""
        file = self._file(stage)
        return sha256(file) if file.is_file() else ""

    def forget(self, keep: Collection[Stage]) -> None:
        """Remove the files of all stages except `keep`, and those that were never finished."""
        needed = {self._file(stage) for stage in keep}
        for file in self.directory.glob("*.safetensors"):
            if file not in needed:
                file.unlink()
        remove_unfinished(self.directory)

    def _file(self, stage: Stage) -> Path:
        return self.directory / f"{stage[0]:04d}-{stage[1]}.safetensors"
