"""Annotated text with given splits: which file or folder is train, dev or test, and how messages quote labels."""

import re
from collections.abc import Sequence
from pathlib import Path

from fedlingua.common.errors import CorpusError
from fedlingua.corpora.split import SPLITS, Split

NAMES: dict[Split, tuple[str, ...]] = {"train": ("train",), "dev": ("devel", "dev", "valid", "validation"), "test": ("test",)}
"""Names that corpora give to their splits."""

_LABEL = re.compile(r"[\w.:+/-]{1,40}")


def split_paths(folder: Path, endings: Sequence[str]) -> dict[Split, Path]:
    """Find each split's path, its name with one of the endings ("" for a folder); raise CorpusError unless there is exactly one."""
    if not folder.is_dir():
        raise CorpusError(f"{folder}: there is no such folder; give the one that holds train, devel and test")
    paths: dict[Split, Path] = {}
    for split in SPLITS:
        wanted = [f"{name}{ending}" for name in NAMES[split] for ending in endings]
        there = [folder / name for name in wanted if (folder / name).exists()]
        if len(there) != 1:
            got = ", ".join(path.name for path in there) or "none"
            raise CorpusError(f"{folder}: got {got} for the split {split}; wanted exactly one of {', '.join(wanted)}")
        paths[split] = there[0]
    return paths


def shown(label: str) -> str:
    """Return a label as a message may quote it. What does not look like a label could be text, which no message quotes."""
    return repr(label) if _LABEL.fullmatch(label) else f"something of {len(label)} characters that does not look like a label"
