"""What the user asks for: how an encoder is fine-tuned, and which annotated text it learns from. Loads no torch."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedlingua.desk.finetuning.i2b2 import read_i2b2
from fedlingua.desk.finetuning.iob import TaggedCorpus, read_iob
from fedlingua.desk.finetuning.pairs import PairCorpus, read_pairs_folder


@dataclass(frozen=True)
class FineTuning:
    """How an encoder is fine-tuned; the whole of it trains."""

    epochs: int = 10
    learning_rate: float = 5e-5
    batch_size: int = 16
    seed: int = 2022
    precision: str = "fp32"
    warm_up: float = 0.1
    """share of all steps over which the rate rises"""
    weight_decay: float = 0.01
    """of matrices; biases and norms keep theirs"""
    max_norm: float = 1.0
    """L2 norm that a step's gradient is clipped to"""


LAYOUTS: dict[str, Callable[[Path], TaggedCorpus]] = {"iob": read_iob, "i2b2": read_i2b2}
"""How tagged text may lie in a folder."""


def read_annotated(task: str, folder: Path, layout: str) -> TaggedCorpus | PairCorpus:
    """Read train, dev and test of a task, "ner" or "pairs", as its reader does. layout: of tagged text."""
    return LAYOUTS[layout](folder) if task == "ner" else read_pairs_folder(folder)
