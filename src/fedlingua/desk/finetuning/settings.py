"""The user's choices: how an encoder is fine-tuned, on which annotated text, and which encoder of a run. Does not import torch."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from fedlingua.common.errors import RunError
from fedlingua.common.languages import nearest
from fedlingua.desk.completed import CompletedRun
from fedlingua.desk.finetuning.i2b2 import read_i2b2
from fedlingua.desk.finetuning.iob import TaggedCorpus, read_iob
from fedlingua.desk.finetuning.pairs import PairCorpus, read_pairs_folder
from fedlingua.exchange.delivery import is_delivered


@dataclass(frozen=True)
class FineTuning:
    """How an encoder is fine-tuned, all of which trains. Options of `fedlingua finetune`, except for the last three."""

    max_tokens: Annotated[
        int | None, Option(help="Longest sequence in subwords; default: the encoder's limit, up to 256.", show_default=False)
    ] = None
    threads: Annotated[int, Option(min=1, help="Torch threads; another number changes the last bits.")] = 1
    device: Annotated[Literal["cpu", "cuda"], Option(help="Device to train on.")] = "cpu"
    epochs: Annotated[int, Option(min=1, help="Passes over the training text; the best one on dev is kept.")] = 10
    learning_rate: Annotated[float, Option(help="Highest learning rate of AdamW.")] = 5e-5
    batch_size: Annotated[int, Option(min=1, help="Sequences in a step.")] = 16
    seed: Annotated[int, Option(help="Random seed.")] = 2022
    precision: Annotated[Literal["fp32", "bf16"], Option(help="Precision of the arithmetic; weights stay fp32.")] = "fp32"
    warm_up: float = field(default=0.1, init=False)
    """share of all steps over which the rate rises"""
    weight_decay: float = field(default=0.01, init=False)
    """of matrices only, not of biases and norms"""
    max_norm: float = field(default=1.0, init=False)
    """L2 norm that a step's gradient is clipped to"""


LAYOUTS: dict[str, Callable[[Path], TaggedCorpus]] = {"iob": read_iob, "i2b2": read_i2b2}
"""Layouts of tagged text in a folder."""


def read_annotated(task: str, folder: Path, layout: str) -> TaggedCorpus | PairCorpus:
    """Read train, dev and test of a task, "ner" or "pairs", with its reader. layout: that of tagged text."""
    return LAYOUTS[layout](folder) if task == "ner" else read_pairs_folder(folder)


def encoder_run(run: Path, site: str | None) -> tuple[CompletedRun, str]:
    """Return the run, and the site whose encoder is meant. site: needed if sites end with different encoders.

    Raises:
        RunError: there is no such run or site; the run is not completed, trained nothing, or trained no encoder; or sites end with
            different encoders and none is named.
    """
    completed = CompletedRun.of(run)
    folder, settings = completed.folder, completed.settings
    if settings.task != "masked-language":
        raise RunError(f"{run}: task = {settings.task!r} trains no encoder; wanted a run with task = 'masked-language'")
    if not settings.how.trains:
        raise RunError(
            f"{run}: method {settings.method} trains nothing; give its backbone itself with --encoder {settings.backbone}"
        )
    name = site or _only_site(completed)
    left = folder.directory / "sites" / name
    if not is_delivered(left):
        there = [place.name for place in sorted((folder.directory / "sites").glob("*")) if is_delivered(place)]
        raise RunError(
            f"{run}: nothing was delivered to site {name!r}{nearest(name, there)}; delivered: {', '.join(there) or 'to nobody'}"
        )
    return completed, name


def _only_site(run: CompletedRun) -> str:
    """Return any site if all end with the same tensors."""
    folder, settings = run.folder, run.settings
    sites, clusters = list(folder.read("sites.json") or {}), folder.read("clusters.json") or {}
    chosen = "keep.choose = true" if settings.chooses else ""
    why = "of several clusters" if any(len(named) > 1 for named in clusters.values()) else chosen
    if why and len(sites) > 1:
        raise RunError(
            f"{folder.directory}: its sites have different encoders ({why}); say whose with --site, one of {', '.join(sites)}"
        )
    return next(iter(sites), "")
