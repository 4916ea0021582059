"""A site's update, and views of its numbers without a copy: from a file, scaled, as a pseudo-gradient.

All updates of a round are compared (`robust.max-ratio`) before any is aggregated, so they cannot be added up on arrival. In files, thirty
sites take no more of the server's memory than three, because aggregation reads the files block by block.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from fedlingua.common.errors import RunError
from fedlingua.exchange.joined import Flat, Joined, Numbers, Some
from fedlingua.exchange.selected import Selection

FOLDER = ".updates"
LARGE = 64 * 1024 * 1024
"""An update of this many bytes or more is stored in a file."""
BUDGET = 2 * LARGE
"""Most bytes of all sites' updates that are held in memory."""


@dataclass(frozen=True)
class Update:
    """A site's complete tensors after local training; what it did not send has the value that it received.

    Large tensors may be stored in a file and are read on access. They must not be written to, and are deleted after the round.

    Args:
        num_examples: Sentences by which the site is weighted: those trained on or, if these are a sample, all they are drawn from.
        selection: The tensors that the site sent; None: all.
        loss: Its training loss, in nats a token.
    """

    site: str
    tensors: Mapping[str, Numbers]
    num_examples: int
    selection: Selection | None = None
    loss: float = 0.0

    def sent(self, weight: float = 1.0) -> "Sent":
        """Return the part of these tensors that the site sent, without copying."""
        chosen = self.selection
        if chosen is None:
            return Sent(weight, self.tensors)
        if chosen.numbers is not None:
            masks = Joined(chosen.numbers, chosen.chosen)
            return Sent(weight, self.tensors, {name: np.ravel(masks[name]) for name in self.tensors})
        assert chosen.tensors is not None
        sent = {name for name, is_sent in zip(chosen.chosen.names, chosen.tensors, strict=True) if is_sent}
        return Sent(weight, Some(self.tensors, [name for name in self.tensors if name in sent]))


@dataclass(frozen=True)
class Sent:
    """What one site of a cluster sent.

    Args:
        weight: Its weight in the cluster, above 0.
        tensors: The tensors that it sent, float32 in their full shape.
        masks: Tensor -> flat bools, true for numbers that were sent; only for tensors sent in part.
    """

    weight: float
    tensors: Mapping[str, Numbers]
    masks: Mapping[str, Numbers] = field(default_factory=dict)


# --- Other numbers in place of an update's, computed when they are read ------------------------------------------------------


def away_from(theta: Mapping[str, Numbers], update: Update) -> Update:
    """Return the update as a pseudo-gradient, theta - theta_i: eq. 1 of Manoel et al. 2022."""
    return replace(update, tensors=_Away(theta, update.tensors))


class _Away(Some):
    def __init__(self, theta: Mapping[str, Numbers], tensors: Mapping[str, Numbers]) -> None:
        super().__init__(tensors, tensors)
        self._theta = theta

    def flat(self, name: str) -> Flat:
        return _Difference(np.ravel(self._theta[name]), super().flat(name))

    def __getitem__(self, name: str) -> Numbers:
        return self._theta[name] - super().__getitem__(name)


@dataclass(frozen=True)
class _Difference:
    theta: Numbers
    numbers: Flat

    def __len__(self) -> int:
        return len(self.theta)

    def __getitem__(self, chosen: slice) -> Numbers:
        return self.theta[chosen] - self.numbers[chosen]


@dataclass(frozen=True, eq=False)
class Scaled:
    """onto + factor x (numbers - start) in float32; if onto is start, a factor of 1 gives exactly the numbers.

    Args:
        edges: (tensors + 1,) offsets at which the tensors of a part begin and end.
        factors: (tensors,) factor of each tensor.
    """

    numbers: Flat
    start: Flat
    onto: Flat
    edges: Numbers
    factors: Numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, chosen: slice) -> Numbers:
        first, last, _ = chosen.indices(len(self))
        each = np.repeat(self.factors, np.diff(np.clip(self.edges, first, max(first, last))))
        numbers, start = self.numbers[first:last], self.start[first:last]
        moved: Numbers = self.onto[first:last] + each * (numbers - start)
        return np.where(each == 1, numbers, moved) if self.onto is self.start else moved


def scaled(update: Update, start: Mapping[str, Flat], factors: Numbers, onto: Mapping[str, Flat] | None = None) -> Update:
    """Return the update with each tensor's change scaled, and added to other tensors if `onto` is given.

    Args:
        start: Part -> the numbers that the site started from.
        factors: (tensors,) factor of each tensor's change.
        onto: Part -> the numbers that the change is added to; by default `start`.
    """
    tensors, base = update.tensors, start if onto is None else onto
    assert isinstance(tensors, Joined), "as updates come off the wire"
    parts: dict[str, Flat] = {}
    for part, numbers in tensors.parts.items():
        places = tensors.chosen.places
        at = [number for number, (where, *_) in enumerate(places) if where == part]
        edges = np.array([*(places[number][1] for number in at), len(numbers)])
        parts[part] = Scaled(numbers, start[part], base[part], edges, factors[at].astype(np.float32))
    return replace(update, tensors=Joined(parts, tensors.chosen))


# --- Files -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FlatFile:
    """`length` float32 numbers of a file, from number `start` on, read on each access: mapped pages would count as the server's memory."""

    path: Path
    start: int
    length: int

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, chosen: slice) -> Numbers:
        first, last, _ = chosen.indices(self.length)
        return np.fromfile(self.path, np.float32, max(last - first, 0), offset=4 * (self.start + first))


class UpdateFiles:
    """The folder `.updates/` of a run, which exists only while it holds large updates."""

    def __init__(self, run_directory: Path, num_sites: int, large: int | None = None) -> None:
        self.directory = run_directory / FOLDER
        self.large = min(LARGE, BUDGET // num_sites) if large is None else large

    def store(self, site: str, tensors: Mapping[str, Numbers]) -> Mapping[str, Numbers]:
        """Return the same tensors, backed by a file if they are large, which frees the memory that they arrived in.

        Raises:
            RunError: The file cannot be written.
        """
        if not isinstance(tensors, Joined) or 4 * tensors.chosen.num_parameters < self.large:
            return tensors
        parts: dict[str, Flat] = {}
        with self._file(site, "f32", 4 * tensors.chosen.num_parameters) as path, path.open("wb") as file:
            for part, numbers in tensors.parts.items():
                parts[part] = FlatFile(path, file.tell() // 4, len(numbers))
                numbers[:].tofile(file)
        return Joined(parts, tensors.chosen)

    def keep(self, site: str, part: str, numbers: Numbers) -> Callable[[], Numbers]:
        """Return what gives a copy of an array of any type, which waits in a file if it is large; raises as `store` does."""
        if numbers.nbytes < self.large:
            return numbers.copy
        with self._file(site, f"{part}.npy", numbers.nbytes) as path:
            np.save(path, numbers)
        return lambda: np.load(path, allow_pickle=False)

    @contextmanager
    def _file(self, site: str, ending: str, size: int) -> Iterator[Path]:
        """Give the path of a file to write, in a folder that is there."""
        path = self.directory / f"{site}.{ending}"
        try:
            self.directory.mkdir(exist_ok=True)
            yield path
        except OSError as error:
            raise RunError(
                f"{path}: the update of site {site} cannot be kept until the round is aggregated ({error}); wanted {size} bytes for "
                "each site; make room there and resume"
            ) from error

    def clear(self) -> None:
        """Remove all files, including those that a killed server has left."""
        shutil.rmtree(self.directory, ignore_errors=True)
