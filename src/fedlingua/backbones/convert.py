"""Convert a backbone published as pytorch_model.bin to safetensors, once. Only this module opens a pickle."""

import hashlib
import shutil
import zipfile
from pathlib import Path
from typing import Any

from fedlingua.backbones.published import KEPT, PICKLED, SAFETENSORS, has_safetensors
from fedlingua.common.cache import cache_dir, making
from fedlingua.common.errors import BackboneError
from fedlingua.common.files import sha256
from fedlingua.common.folders import replace_folder


def as_safetensors(directory: Path) -> Path:
    """Return `directory`, or, if its weights are pytorch_model.bin alone, a cached copy with model.safetensors instead.

    The copy is named by a hash of the original bytes, so every process reads the whole .bin first: about a second a gigabyte.

    Raises:
        BackboneError: the .bin is damaged, or holds anything but tensors; nothing in it is run.
    """
    pickled = directory / PICKLED
    if has_safetensors(directory) or not pickled.is_file():
        return directory
    beside = [file for file in sorted(directory.iterdir()) if file.suffix in KEPT and file.is_file()]
    converted = cache_dir() / "backbones" / f"converted-{files_hash([pickled, *beside])[:16]}"
    with making(converted):
        if not has_safetensors(converted):
            _convert(pickled, beside, converted)
    return converted


def files_hash(files: list[Path]) -> str:
    """Return the sha256 of the names and bytes of files."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name}:{sha256(file)}\n".encode())
    return digest.hexdigest()


def _convert(pickled: Path, beside: list[Path], converted: Path) -> None:
    from safetensors.torch import save_file

    tensors = _without_repetition(_read_pickled(pickled))

    def write(folder: Path) -> None:
        for file in beside:
            shutil.copyfile(file, folder / file.name)
        save_file(tensors, folder / SAFETENSORS[0], {"format": "pt"})  # transformers refuses a file without this metadata

    replace_folder(converted, write)


def _read_pickled(file: Path) -> dict[str, Any]:
    """Load the named tensors of a file written by torch.save, memory-mapped if its format allows that."""
    import torch

    try:
        # weights_only: an unpickler that knows tensors and containers and calls nothing else.
        content = torch.load(file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
    except Exception as error:  # a pickle can fail with any type of error
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        raise BackboneError(
            f"{file} is damaged, or holds more than tensors and could run code ({first_line}); nothing of it was used. Take a "
            "backbone with model.safetensors"
        ) from error
    named = isinstance(content, dict) and all(isinstance(k, str) and isinstance(v, torch.Tensor) for k, v in content.items())
    if not named:
        raise BackboneError(
            f"{file} holds no plain table of named tensors; wanted a model's state_dict, or take model.safetensors"
        )
    return dict(content)


def _without_repetition(tensors: dict[str, Any]) -> dict[str, Any]:
    """Return each tensor once, in its own memory; tied weights under their first name, since transformers ties them again."""
    views: set[tuple[int, tuple[int, ...], tuple[int, ...]]] = set()
    storages: set[int] = set()
    distinct = {}
    for name, tensor in tensors.items():
        view, storage = (tensor.data_ptr(), tensor.shape, tensor.stride()), tensor.untyped_storage().data_ptr()
        if view in views and tensor.numel():
            continue
        # Safetensors supports neither shared memory nor strides.
        distinct[name] = tensor.contiguous() if storage not in storages else tensor.clone().contiguous()
        views.add(view)
        storages.add(storage)
    return distinct
