"""Named tensors and tensor sets, independent of any model; checkpoints, records and aggregation use them."""

import hashlib
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from fedlingua.backbones.parts import PARTS, Part
from fedlingua.common.errors import ExchangeError
from fedlingua.common.files import to_disk

Tensors = dict[str, np.ndarray[Any, Any]]
"""Named float32 arrays, in the order of their tensor set."""

NamedTensors = Mapping[str, np.ndarray[Any, Any]]
"""Named float32 arrays for reading only, in memory or in a file."""


def save_tensors(tensors: NamedTensors, file: Path, about: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file atomically, under another name and then renamed, and sync it to disk. about: the file's metadata."""
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        # safetensors 0.8 ignores strides: of a view it would write other bytes.
        in_order = {name: np.asarray(tensor, order="C") for name, tensor in tensors.items()}
        save_file(in_order, aside, dict(about) if about else None)
        to_disk(aside)
        os.replace(aside, file)
    finally:
        aside.unlink(missing_ok=True)
    to_disk(file.parent)


def digest_of(key: str, tensors: NamedTensors) -> str:
    """Hash a key and the bytes of tensors."""
    digest = hashlib.sha256(key.encode())
    for name, array in tensors.items():
        digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def remove_unfinished(folder: Path) -> None:
    """Remove the files that `save_tensors` left half-written in a folder because its process was killed."""
    for aside in folder.glob(".*.safetensors.*"):
        aside.unlink(missing_ok=True)


@dataclass(frozen=True)
class TensorSpec:
    """One tensor: its name in the model, shape, part, and layer (None outside the layer stacks)."""

    name: str
    shape: tuple[int, ...]
    part: Part
    layer: int | None

    @property
    def size(self) -> int:
        """How many numbers the tensor has."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class TensorSet:
    """An ordered set of tensors that train together or travel together."""

    name: str
    specs: tuple[TensorSpec, ...]

    @property
    def names(self) -> list[str]:
        return [spec.name for spec in self.specs]

    @property
    def num_parameters(self) -> int:
        return sum(spec.size for spec in self.specs)

    @cached_property
    def places(self) -> list[tuple[Part, int, int]]:
        """(part, first, last) of every tensor, in the set's order: where its numbers lie among those of its part, end to end."""
        places, ends = list[tuple[Part, int, int]](), dict.fromkeys(PARTS, 0)
        for spec in self.specs:
            places.append((spec.part, ends[spec.part], ends[spec.part] + spec.size))
            ends[spec.part] += spec.size
        return places

    def of_part(self, part: Part) -> list[TensorSpec]:
        return [spec for spec in self.specs if spec.part == part]

    def shapes_of(self, part: str) -> list[tuple[int, ...]]:
        """Return the shapes of a part's tensors, in the set's order."""
        return [spec.shape for spec in self.specs if spec.part == part]

    def sizes_of(self, part: str) -> list[int]:
        """Return the sizes of a part's tensors, in the set's order."""
        return [spec.size for spec in self.specs if spec.part == part]

    def where(self, holds: Callable[[TensorSpec], bool]) -> "TensorSet":
        """Return the set of the tensors for which `holds` is true."""
        return TensorSet(self.name, tuple(filter(holds, self.specs)))

    def without(self, other: "TensorSet") -> "TensorSet":
        """Return this set without the tensors of another set."""
        names = set(other.names)
        return self.where(lambda spec: spec.name not in names)

    def in_part(self, part: Part) -> "TensorSet":
        """Return the set of one part's tensors."""
        return self.where(lambda spec: spec.part == part)


NOTHING = TensorSet("nothing", ())


def check_tensors(tensors: NamedTensors, wanted: TensorSet) -> Tensors:
    """Check every name, shape, dtype, and that all numbers are finite; return the tensors in the set's order.

    Raises:
        ExchangeError: Names the first tensor that is missing, unexpected, of another shape or dtype, or not finite.
    """
    check_forms({name: (array.dtype, array.shape) for name, array in tensors.items()}, wanted)
    checked = {name: tensors[name] for name in wanted.names}
    if wrong := next((name for name, array in checked.items() if not np.isfinite(array).all()), None):
        raise not_finite(wrong)
    return checked


def check_forms(forms: Mapping[str, tuple[Any, tuple[int, ...]]], wanted: TensorSet) -> None:
    """Check every name, dtype and shape. forms: name -> (dtype, shape).

    Raises:
        ExchangeError: Names the first tensor that is missing, unexpected, or of another shape or dtype.
    """
    extra = sorted(set(forms) - set(wanted.names))
    if extra:
        raise ExchangeError(f"got {len(extra)} tensor(s) that the set {wanted.name!r} does not have, {extra[0]!r} first")
    for spec in wanted.specs:
        if spec.name not in forms:
            raise ExchangeError(f"tensor {spec.name!r} is missing; wanted all {len(wanted.specs)} of the set {wanted.name!r}")
        dtype, shape = forms[spec.name]
        if dtype != np.float32:
            raise ExchangeError(f"tensor {spec.name!r} is {dtype}; wanted float32")
        if shape != spec.shape:
            raise ExchangeError(f"tensor {spec.name!r} has shape {shape}; wanted {spec.shape}")


def not_finite(name: str) -> ExchangeError:
    """Return the error for a tensor that holds NaN or infinity."""
    return ExchangeError(f"tensor {name!r} holds NaN or infinity; wanted finite numbers")
