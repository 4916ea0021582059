"""`fedlingua pretrain`: a backbone from a recipe, with the account of its text beside it."""

import dataclasses
import json
import time
from collections.abc import Callable
from functools import partial
from math import exp
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fedlingua.backbones.build import ModelSize
from fedlingua.backbones.load import load_backbone
from fedlingua.cache import cache_dir
from fedlingua.cli.progress import duration
from fedlingua.errors import ConfigError
from fedlingua.evaluation.decode import translate
from fedlingua.evaluation.scores import bleu_score, check_tokenizers, score_sums, signatures
from fedlingua.pretraining.loop import Material, Progress, pretrain
from fedlingua.pretraining.material import masked_material, translation_material
from fedlingua.pretraining.recipe import BaseText, Recipe, base_text, read_recipe
from fedlingua.pretraining.settings import EncoderSettings
from fedlingua.runs import library_versions

DEV_SENTENCES = 60
"""Dev sentences of each direction that are translated at the end, greedily: enough to see that the model translates."""


def pretrain_recipe(recipe_file: Path, data: Path, to: Path | None, console: Console) -> Path:
    """Train, write the model directory with `pretraining.json` beside the weights, and show dev BLEU; returns the directory."""
    recipe = read_recipe(recipe_file, data)
    if to is not None and to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise ConfigError(f"--to {to}: holds files already; give a new folder, or remove it")
    directory = (to or cache_dir() / "backbones" / recipe.name).resolve()
    check_tokenizers(direction for direction, _ in recipe.corpora if not direction.is_one_language)
    text = base_text(recipe)
    for direction, account in text.accounts.items():
        dropped = ", ".join(f"{reason} {count}" for reason, count in account.dropped.items()) or "none"
        used = len(text.train.get(direction, []))
        console.print(f"{direction}: read {account.read}, kept {account.kept} (dropped: {dropped}); trains the backbone: {used}")

    def report(progress: Progress) -> None:
        left = progress.seconds / progress.done - progress.seconds if progress.done else 0.0
        console.print(
            f"step {progress.step}  {progress.done:.0%}  train loss {progress.train_loss:.3f}  dev loss {progress.dev_loss:.3f}  "
            f"{duration(progress.seconds)}, {duration(left)} left"
        )

    started = time.monotonic()
    last = pretrain(_material(recipe, text), recipe.training, directory, report)
    translates = isinstance(recipe.model, ModelSize)
    measured = {"dev_bleu": _dev_bleu(directory, text, recipe, console)} if translates else {"dev_perplexity": exp(last.dev_loss)}
    about = {
        "recipe": {**dataclasses.asdict(recipe), "corpora": [str(direction) for direction, _ in recipe.corpora]},
        "steps": last.step,
        "seconds": round(time.monotonic() - started, 1),
        "dev_loss": last.dev_loss,
        **measured,
        "accounts": {str(direction): dataclasses.asdict(account) for direction, account in text.accounts.items()},
        "versions": library_versions(),
    }
    (directory / "pretraining.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    console.print(f"backbone: {directory}", soft_wrap=True)
    return directory


def _material(recipe: Recipe, text: BaseText) -> Callable[[Path], Material]:
    if isinstance(recipe.model, ModelSize):
        return partial(translation_material, text.train, text.dev, recipe.model, recipe.training)
    assert isinstance(recipe.training, EncoderSettings), recipe.training  # read with the model
    return partial(masked_material, text.train, text.dev, recipe.model, recipe.training)


def _dev_bleu(directory: Path, text: BaseText, recipe: Recipe, console: Console) -> dict[str, float]:
    backbone = load_backbone(directory)
    table = Table("direction", "sentences", "BLEU", title="dev, greedy")
    scores = {}
    for direction, all_pairs in text.dev.items():
        pairs = all_pairs[:DEV_SENTENCES]
        length = recipe.training.max_tokens
        hypotheses = translate(backbone.model, backbone.codec, [pair.source for pair in pairs], direction, 1, length, length)
        scores[str(direction)] = bleu_score(score_sums(hypotheses, [pair.target for pair in pairs], direction.target))
        table.add_row(str(direction), str(len(pairs)), f"{scores[str(direction)]:.1f}")
    if scores:
        console.print(table)
        console.print(signatures(next(iter(text.dev)).target)[0])
    return scores
