"""Text with tagged entities, in any of the layouts that it comes in."""

from collections.abc import Callable
from pathlib import Path

from fedlingua.desk.finetuning.i2b2 import read_i2b2
from fedlingua.desk.finetuning.iob import TaggedCorpus, read_iob

LAYOUTS: dict[str, Callable[[Path], TaggedCorpus]] = {"iob": read_iob, "i2b2": read_i2b2}
"""How tagged text may lie in a folder."""


def read_tagged(folder: Path, layout: str) -> TaggedCorpus:
    """Train, dev and test.

    Raises:
        CorpusError: a split that is not there, or cannot be read; with file and line.
    """
    return LAYOUTS[layout](folder)
