"""What costs most in a small run and says the same each time, made once in a process of tests.

The files of a backbone are read and its sentences cut into pieces the first time; later runs get a copy of the model as it was read.
Whether reading them works is what tests of `load_backbone` say, which is left as it is. So are the sentences of a register, which the
phrasebook's own tests ask the phrasebook for. A simulated site does not check the same run config or identify the languages of the same
text again for every message; the tests of those checks call them by their own names.
"""

import copy
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch

from fedlingua.backbones.codec import Codec
from fedlingua.backbones.load import Backbone, load_backbone
from fedlingua.common.devices import computed_in
from fedlingua.common.languages import Direction
from fedlingua.corpora.damage import doubts_about
from fedlingua.corpora.registers import Register
from fedlingua.runs.folder import git_revision
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Settings

MOST_BACKBONES = 8
MOST_REGISTERS = 512
MOST_CONFIGS = 64


def make_once(patched: pytest.MonkeyPatch) -> None:
    """As long as `patched` lasts: backbones are read once, registers are spoken once, the commit is asked for once, and no file is waited
    for until it is on disk: what tests write need not outlive a power cut. Where there is no GPU, seeding torch formats no call stack for
    each kind of GPU that might still come.
    """
    patched.setattr("fedlingua.exchange.trainable.load_backbone", LoadedOnce())
    patched.setattr(Register, "read", spoken_once(Register.read))
    patched.setattr("clients.mods.settings_from", checked_once(settings_from))
    patched.setattr("clients.client_app.doubts_about", identified_once(doubts_about))
    if not torch.accelerator.is_available():
        for kind in (torch.cuda, torch.xpu, torch.mtia):
            patched.setattr(kind, "manual_seed_all", lambda seed: None)
    patched.setattr("fedlingua.runs.folder.git_revision", cache(git_revision))
    patched.setattr(os, "fsync", lambda descriptor: None)


class LoadedOnce:
    """`load_backbone`, with a copy of what it gave the last time for the same files and settings."""

    def __init__(self) -> None:
        self._loaded: dict[tuple[Any, ...], Backbone] = {}

    def __call__(
        self,
        directory: Path,
        name: str = "",
        precision: str = "fp32",
        device: str = "cpu",
        random_weights: int | None = None,
        as_stored: bool = False,
    ) -> Backbone:
        if device != "cpu" or not directory.is_dir():
            return load_backbone(directory, name, precision, device, random_weights, as_stored)
        files = tuple((file.name, (of := file.stat()).st_size, of.st_mtime_ns) for file in sorted(directory.iterdir()))
        how = name, computed_in(precision, device), precision, random_weights, as_stored, torch.get_default_dtype()
        key = str(directory.resolve()), files, how
        if key not in self._loaded:
            read = load_backbone(directory, name, precision, device, random_weights, as_stored)
            read.codec.pieces = CutOnce(read.codec)  # type: ignore[method-assign]
            if len(self._loaded) == MOST_BACKBONES:
                self._loaded.pop(next(iter(self._loaded)))
            self._loaded[key] = read
        given = copy.copy(self._loaded[key])  # with its fingerprint, once somebody has asked for it
        given.model = copy.deepcopy(given.model)
        return given


def spoken_once(read: Callable[[Register], Iterator[Any]]) -> Callable[[Register], Iterator[Any]]:
    """`Register.read`, with what it said the last time of the same register; an error is found anew."""
    said = lru_cache(MOST_REGISTERS)(lambda register: tuple(read(register)))

    def again(register: Register) -> Iterator[Any]:
        yield from said(register)

    return again


def checked_once(check: Callable[[Mapping[str, Any]], Settings]) -> Callable[[Mapping[str, Any]], Settings]:
    """`settings_from`, with what it made the last time of the same values of the same types; an error is found anew."""
    checked = lru_cache(MOST_CONFIGS)(lambda keys: check({key: value for key, _, value in keys}))
    return lambda run_config: checked(tuple((key, type(value), value) for key, value in run_config.items()))


def identified_once(check: Callable[[Any, Direction, str], list[str]]) -> Callable[[Any, Direction, str], list[str]]:
    """`doubts_about`, with what it said the last time of the same pairs; an error is found anew."""
    said = lru_cache(MOST_REGISTERS)(check)
    return lambda pairs, direction, where: said(tuple(pairs), direction, where)


def copies_of(directory: Path, name: str) -> Callable[[], Backbone]:
    """What gives a backbone read from a directory, each time a copy that shares nothing with the others."""
    read = load_backbone(directory, name)
    return lambda: copy.deepcopy(read)


class CutOnce:
    """A codec's `pieces` that remembers each sentence; a copy, or what arrives in another process, begins anew."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._known: dict[tuple[str, bool], list[int]] = {}

    def __call__(self, sentences: Sequence[str], written: bool = False) -> list[list[int]]:
        new = [sentence for sentence in dict.fromkeys(sentences) if (sentence, written) not in self._known]
        cut = type(self._codec).pieces(self._codec, new, written)
        self._known.update(((sentence, written), ids) for sentence, ids in zip(new, cut, strict=True))
        return [list(self._known[sentence, written]) for sentence in sentences]

    def __reduce__(self) -> tuple[type["CutOnce"], tuple[Codec]]:
        return CutOnce, (self._codec,)
