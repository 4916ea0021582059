"""`fedlingua pretrain`: train a backbone from a recipe, and write its model card and the account of its text beside it."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from functools import partial
from math import exp
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from fedlingua.common.cache import cache_dir
from fedlingua.common.devices import computed_in
from fedlingua.desk.check_settings import check_device
from fedlingua.desk.cli.completion import toml_files
from fedlingua.desk.cli.options import Data
from fedlingua.desk.cli.output import Answer, Commands, console, example, plain_table, say, sayer
from fedlingua.desk.experiment import parse_override, with_text
from fedlingua.desk.pace import Pace
from fedlingua.desk.paths import check_new_folder
from fedlingua.desk.pretraining.card import model_card
from fedlingua.desk.pretraining.checkpoints import Progress
from fedlingua.desk.pretraining.demo import demo_encoder
from fedlingua.desk.pretraining.recipe import Recipe, read_recipe
from fedlingua.desk.pretraining.settings import EncoderSettings, ModelSize
from fedlingua.desk.pretraining.text import BaseText, base_text, made_of
from fedlingua.desk.units import duration
from fedlingua.evaluation.scores import bleu_score, check_tokenizers, score_sums, signatures
from fedlingua.runs.folder import library_versions
from fedlingua.settings.kinds import RECIPE

if TYPE_CHECKING:  # a faulty recipe is refused without importing torch
    from transformers import PreTrainedModel

    from fedlingua.backbones.codec import Codec
    from fedlingua.desk.pretraining.loop import Outcome
    from fedlingua.desk.pretraining.material import Corpora, Material


commands = Commands()


@commands.command(epilog=example("fedlingua pretrain experiments/backbones/tatoeba_half.toml --data ../shared/data"))
def pretrain(
    recipe: Annotated[
        Path, Argument(help="Recipe file (TOML): corpora, share, size, schedule.", shell_complete=toml_files(RECIPE))
    ],
    data: Data = None,
    to: Annotated[
        Path | None, Option(help="Folder of the model; default: a folder with the recipe's name in the user's cache.")
    ] = None,
    set_: Annotated[
        list[str] | None, Option("--set", help="Override a key of the recipe: TABLE.KEY=VALUE, such as training.device=cpu.")
    ] = None,
) -> Answer:
    if str(recipe) == "demo-encoder":
        return {"backbone": demo_encoder()}
    directory = _pretrain(recipe, str(data or ""), to, set_ or [])
    return {"backbone": directory, **json.loads((directory / "pretraining.json").read_text(encoding="utf-8"))}


def _pretrain(recipe_file: Path, data: str, to: Path | None, overrides: Sequence[str]) -> Path:
    """Train, or resume an interrupted training; return the model's folder."""
    given = dict(map(parse_override, overrides))
    recipe, _ = with_text(
        lambda folder: read_recipe(recipe_file, folder, given), lambda read: [text for _, text in read.corpora], recipe_file, data
    )
    if to is not None:
        check_new_folder(to, "--to")
    check_device(recipe.training.device)
    precision: Any = computed_in(recipe.training.precision, recipe.training.device, console().print)
    training = dataclasses.replace(recipe.training, precision=precision)  # as the model card says it
    recipe = dataclasses.replace(recipe, training=training)
    directory = (to or cache_dir() / "backbones" / recipe.name).resolve()
    translates = isinstance(recipe.model, ModelSize) and recipe.watching.dev_sentences > 0
    if translates:
        check_tokenizers(recipe.trained)
    note = sayer()
    with Pace(note):
        text = base_text(recipe)
    from fedlingua.desk.pretraining import loop

    for direction, account in text.accounts.items():
        dropped = ", ".join(f"{reason} {count}" for reason, count in account.dropped.items()) or "none"
        used = len(text.train.get(direction, []))
        counts = f"read {account.read}, kept {account.kept} (dropped: {dropped})"
        console().print(f"{direction}: {counts}; trains the backbone: {used}")

    dev = {direction: pairs[: recipe.watching.dev_sentences] for direction, pairs in text.dev.items()}

    def report(progress: Progress) -> None:
        left = progress.seconds / progress.done - progress.seconds if progress.done else 0.0
        on_dev = f"dev loss {progress.dev_loss:.3f}  " if text.dev else ""
        on_dev += f"dev BLEU {fmean(progress.bleu.values()):.2f}  " if progress.bleu else ""
        console().print(
            f"step {progress.step}  {progress.done:.0%}  train loss {progress.train_loss:.3f}  {on_dev}"
            f"{duration(round(progress.seconds))}, {duration(round(left))} left"
        )

    def describe(folder: Path, outcome: "Outcome") -> None:
        content = about(recipe, text, dev, outcome)
        (folder / "pretraining.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        (folder / "README.md").write_text(model_card(content), encoding="utf-8")

    score = partial(dev_bleu, pairs=dev, max_tokens=recipe.training.max_tokens) if translates else None
    of_bytes, material = made_of(recipe, text, library_versions()), _material(recipe, text)
    outcome = loop.pretrain(material, recipe.training, directory, report, recipe.watching, of_bytes, score, describe, note)
    if outcome.chosen.bleu:
        bleu = outcome.chosen.bleu
        rows = [(str(direction), str(len(pairs)), f"{bleu[str(direction)]:.1f}") for direction, pairs in dev.items()]
        rows.append(("mean", "", f"{fmean(bleu.values()):.2f}"))
        title = f"dev, greedy, step {outcome.chosen.step}"
        console().print(plain_table("direction", "sentences", "BLEU", rows=rows, title=title))
        console().print(signatures(next(iter(text.dev)).target)[0])
    say(f"backbone: {directory}")
    return directory


def about(recipe: Recipe, text: BaseText, dev: "Corpora", outcome: "Outcome") -> dict[str, Any]:
    """Return the content of pretraining.json: recipe, figures of the kept weights and during training, text and versions.

    dev: the pairs that were translated.
    """
    import torch

    last, chosen = outcome.looks[-1], outcome.chosen
    measured: dict[str, Any] = {"dev_perplexity": exp(chosen.dev_loss) if text.dev else None}
    if isinstance(recipe.model, ModelSize):
        measured = {
            "dev_bleu": chosen.bleu,
            "dev_sentences": {str(direction): len(pairs) for direction, pairs in dev.items()},
            "bleu_signatures": {d.target: signatures(d.target)[0] for d in dev if str(d) in chosen.bleu},
        }
    return {
        "recipe": {**dataclasses.asdict(recipe), "corpora": [str(direction) for direction, _ in recipe.corpora]},
        "parameters": outcome.num_parameters,
        "steps": last.step,
        "kept_step": chosen.step,
        "seconds": round(last.seconds, 1),
        "device": torch.cuda.get_device_name() if recipe.training.device == "cuda" else None,
        "dev_loss": chosen.dev_loss if text.dev else None,
        **measured,
        "looks": [dataclasses.asdict(look) for look in outcome.looks],
        "accounts": {str(direction): dataclasses.asdict(account) for direction, account in text.accounts.items()},
        "trains": {str(direction): len(pairs) for direction, pairs in text.train.items()},
        "watches": {str(direction): len(pairs) for direction, pairs in text.dev.items()},
        "versions": library_versions(),
    }


def dev_bleu(model: "PreTrainedModel", codec: "Codec", pairs: "Corpora", max_tokens: int) -> dict[str, float]:
    """Return BLEU (0-100) of greedy translations, by direction."""
    from fedlingua.evaluation.decode import translate

    scores = {}
    for direction, held in pairs.items():
        hypotheses = translate(model, codec, [pair.source for pair in held], direction, 1, max_tokens, max_tokens)
        scores[str(direction)] = bleu_score(score_sums(hypotheses, [pair.target for pair in held], direction.target))
    return scores


def _material(recipe: Recipe, text: BaseText) -> Callable[[Path], "Material"]:
    from fedlingua.desk.pretraining.material import masked_material, translation_material

    if isinstance(recipe.model, ModelSize):
        return partial(translation_material, text.train, text.dev, recipe.model, recipe.training)
    assert isinstance(recipe.training, EncoderSettings), recipe.training  # read with the model
    return partial(masked_material, text.train, text.dev, recipe.model, recipe.training)
