"""`fedlingua finetune`: fine-tune an encoder for tagging or classification; shows its progress and a table of scores."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.table import Table
from rich.text import Text
from typer import Option

from fedlingua.backbones.directories import backbone_directory, known_backbone
from fedlingua.common.devices import computed_in
from fedlingua.common.errors import BackboneError, ConfigError
from fedlingua.common.files import check_new_folder
from fedlingua.common.units import duration
from fedlingua.desk.cli.completion import run_folders, sites_of_run
from fedlingua.desk.cli.output import Answer, Commands, console, example, plain_table, say, sayer
from fedlingua.desk.finetuning.settings import FineTuning, encoder_run, read_annotated
from fedlingua.desk.pretraining.demo import make_built_in

if TYPE_CHECKING:  # mistakes are reported without importing torch
    from fedlingua.desk.finetuning.loop import Epoch

commands = Commands(help="Fine-tune a pre-trained encoder for tagging or classification, and score it.")


@dataclass(frozen=True)
class FineTuneOptions:
    """The encoder, and where the result goes."""

    encoder: Annotated[
        str | None,
        Option(
            help="Encoder: a folder in transformers' layout (XLM-R, RoBERTa, BERT), or a backbone's name: demo-encoder, a recipe, "
            "a pinned hub id."
        ),
    ] = None
    run: Annotated[Path | None, Option(help="Or the encoder that this run has pre-trained.", shell_complete=run_folders)] = None
    site: Annotated[
        str | None, Option(help="With --run: the site, if sites end with different encoders.", shell_complete=sites_of_run)
    ] = None
    to: Annotated[Path | None, Option(help="Folder of the result; default: ./runs/<task>-<data>-<encoder>-<seed>.")] = None


@commands.command("ner", epilog=example("fedlingua finetune ner --encoder demo-encoder --data NCBI-disease --epochs 3"))
def finetune_ner(
    data: Annotated[Path, Option(help="Folder with train, devel and test.")],
    how: FineTuneOptions,
    training: FineTuning,
    layout: Annotated[
        Literal["iob", "i2b2"], Option(help="iob: a token and its tag a line (.tsv, .tsv.gz); i2b2: notes and entries.")
    ] = "iob",
) -> Answer:
    """Recognize named entities; report micro, macro and weighted F1, with strict and type matching."""
    return _finetune("ner", data, how, training, layout)


@commands.command("pairs", epilog=example("fedlingua finetune pairs --run runs/encoder --data relations --to runs/relations"))
def finetune_pairs(
    data: Annotated[Path, Option(help="Folder with train.jsonl, devel.jsonl and test.jsonl, plain or .gz.")],
    how: FineTuneOptions,
    training: FineTuning,
) -> Answer:
    """Classify relations between two marked mentions, or assertions about one; report F1 and accuracy."""
    return _finetune("pairs", data, how, training)


def _finetune(task: str, data: Path, how: FineTuneOptions, training: FineTuning, layout: str = "iob") -> Answer:
    """Fine-tune, show the epochs and the scores, and return the scores with the folder."""
    if not 0 < training.learning_rate < math.inf:
        raise ConfigError(f"--learning-rate {training.learning_rate}: wanted a number above 0, for example 5e-5")
    precision: Any = computed_in(training.precision, training.device, console().print)
    training = replace(training, precision=precision)
    if (how.encoder is None) == (how.run is None):
        raise ConfigError(f"got {'--encoder and --run' if how.run else 'no encoder'}; wanted one of --encoder and --run")
    name = (how.run or Path(how.encoder or "")).resolve().name
    folder = how.to or Path("runs") / f"{task}-{data.resolve().name}-{name}-{training.seed}"
    # Mistakes are refused before torch is imported or an encoder prepared; the text is read for that.
    check_new_folder(folder, "--to")
    named = how.encoder or ""
    if how.run:
        encoder_run(how.run, how.site)
        read_annotated(task, data, layout)
        from fedlingua.desk.finetuning.encoder_of_run import encoder_directory

        encoder = encoder_directory(how.run, how.site)
    else:  # a directory, or what a run's `backbone` may name
        try:
            known_backbone(named)
            read_annotated(task, data, layout)
            make_built_in(named)
            encoder = Path(named) if Path(named).is_dir() else backbone_directory(named)
        except BackboneError as error:
            raise BackboneError(f"--encoder {named}: {error}") from error
    from fedlingua.desk.finetuning import tasks

    def report(epoch: "Epoch") -> None:
        console().print(
            f"epoch {epoch.number} of {training.epochs}  train loss {epoch.loss:.3f}  dev F1 {epoch.dev_f1:.4f}  "
            f"{duration(round(epoch.seconds))}, {duration(round(epoch.left_s))} left"
        )

    result = tasks.finetune(task, encoder, data, folder, training, report, sayer(), "" if how.run else name, layout)
    console().print(f"epoch {result['best_epoch']} is the best on dev and is kept")
    for table in _score_tables(result):
        console().print(table)
    say(f"scores: {folder.resolve() / tasks.FILE}")
    return {"folder": folder, **result}


def _score_tables(result: dict[str, Any]) -> list[Table]:
    """Return a table of every F1 and the accuracy on dev and test, and one of the scores on test by label."""
    names = [name for name in result["test"] if name.endswith("_f1") or name == "accuracy"]
    splits = [(split, *(f"{result[split][name]:.4f}" for name in names)) for split in ("dev", "test")]
    labels: list[tuple[str | Text, ...]] = [
        (Text(label), *(f"{score[name]:.4f}" for name in ("precision", "recall", "f1")), str(score["support"]))
        for label, score in result["test"]["by_label"].items()
    ]
    headers, title = ("split", *(name.removesuffix("_f1") for name in names)), f"{result['data']}: F1, 0 to 1"
    return [
        plain_table(*headers, rows=splits, title=title),
        plain_table("label", "precision", "recall", "F1", "support", rows=labels, title="test"),
    ]
