"""Where accepted updates wait until the round is folded: small ones in memory, large ones in files of the run folder.

All of a round's updates are compared (`max-update-ratio`) before any of them counts, so none can be added up as it comes; in memory, twelve
sites' full models would be twelve times the model. Waiting in files, they cost the server the same for three sites as for thirty.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedlingua.common.errors import RunError
from fedlingua.exchange.joined import Flat, Joined, Numbers, Stretch

FOLDER = ".updates"
LARGE = 64 * 1024 * 1024
"""Bytes of one site's update from which on it waits in a file."""
BUDGET = 16 * LARGE
"""Bytes of all sites' updates that may wait in memory."""


@dataclass(frozen=True)
class FlatFile:
    """A file of float32 numbers, read afresh at every look: mapped pages would count as the server's memory."""

    path: Path

    def __len__(self) -> int:
        return self.path.stat().st_size // 4

    def __getitem__(self, chosen: slice) -> Numbers:
        first, last, _ = chosen.indices(len(self))
        return np.fromfile(self.path, np.float32, max(last - first, 0), offset=4 * first)


class UpdateFiles:
    """The folder `.updates/` of a run; it is there only while large updates wait."""

    def __init__(self, run_directory: Path, num_sites: int, large: int | None = None) -> None:
        self.directory = run_directory / FOLDER
        self.large = min(LARGE, BUDGET // num_sites) if large is None else large

    def keep(self, site: str, tensors: Mapping[str, Numbers]) -> Mapping[str, Numbers]:
        """The same tensors, out of a file where they are large: then the memory that they came in is free again.

        Raises:
            RunError: they cannot be written.
        """
        if not isinstance(tensors, Joined) or _bytes(tensors) < self.large:
            return tensors
        path = self.directory / f"{site}.f32"
        try:
            self.directory.mkdir(exist_ok=True)
            return Joined(_write(path, tensors.parts), tensors.chosen)
        except OSError as error:
            raise RunError(
                f"{path}: the update of site {site} cannot be kept until the round is folded ({error}); wanted {_bytes(tensors)} bytes "
                "for each site; make room there and resume"
            ) from error

    def clear(self) -> None:
        """Remove them all, also what a killed server has left."""
        shutil.rmtree(self.directory, ignore_errors=True)


def _bytes(tensors: Joined) -> int:
    return sum(4 * len(flat) for flat in tensors.parts.values())


def _write(path: Path, parts: Mapping[str, Flat]) -> dict[str, Flat]:
    kept: dict[str, Flat] = {}
    first = 0
    with path.open("wb") as file:
        for part, flat in parts.items():
            flat[:].tofile(file)
            kept[part] = Stretch(FlatFile(path), first, len(flat))
            first += len(flat)
    return kept
