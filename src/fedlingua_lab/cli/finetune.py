"""`fedlingua finetune`: fine-tune an encoder for tagging or classification; shows its progress and its scores."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Option

from fedlingua.backbones.directories import backbone_directory
from fedlingua.common.devices import computed_in
from fedlingua.common.errors import BackboneError, ConfigError, RunError
from fedlingua.desk.check_settings import check_device, known_backbone
from fedlingua.desk.cli.completion import run_folders, sites_of_run
from fedlingua.desk.cli.output import Answer, Commands, console, example, plain_table, say, sayer
from fedlingua.desk.paths import check_new_folder
from fedlingua.desk.pretraining.demo import make_built_in
from fedlingua.desk.translating.models import RunModels, TrainedModel
from fedlingua_lab.finetuning.annotated import read_annotated
from fedlingua_lab.finetuning.settings import FineTuning

commands = Commands(group=True)


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
    return _finetune(layout, data, how, training)


@commands.command("pairs", epilog=example("fedlingua finetune pairs --run runs/encoder --data relations --to runs/relations"))
def finetune_pairs(
    data: Annotated[Path, Option(help="Folder with train.jsonl, devel.jsonl and test.jsonl, plain or .gz.")],
    how: FineTuneOptions,
    training: FineTuning,
) -> Answer:
    """Classify relations between two marked mentions, or assertions about one; report F1 and accuracy."""
    return _finetune("pairs", data, how, training)


def _finetune(layout: str, data: Path, how: FineTuneOptions, training: FineTuning) -> Answer:
    """Fine-tune and show the scores. Mistakes are refused before torch is imported or an encoder made; the text is read for that."""
    if not 0 < training.learning_rate < math.inf:
        raise ConfigError(f"--learning-rate {training.learning_rate}: wanted a number above 0, for example 5e-5")
    if (how.encoder is None) == (how.run is None):
        raise ConfigError(f"got {'--encoder and --run' if how.run else 'no encoder'}; wanted one of --encoder and --run")
    check_device(training.device)
    precision: Any = computed_in(training.precision, training.device, console().print)
    training = replace(training, precision=precision)
    named, task = how.encoder or "", "pairs" if layout == "pairs" else "ner"
    name = (how.run or Path(named)).resolve().name
    folder = how.to or Path("runs") / f"{task}-{data.resolve().name}-{name}-{training.seed}"
    check_new_folder(folder, "--to")
    try:
        trained = model_of_run(how.run, how.site) if how.run else None
        if trained is None:
            known_backbone(named)
        texts = read_annotated(data, layout)
        make_built_in(named)
        from fedlingua_lab.finetuning.encoder import encoder_of_folder, encoder_of_run
        from fedlingua_lab.finetuning.scores import FIGURES
        from fedlingua_lab.finetuning.training import FILE, finetune

        if trained:
            encoder = encoder_of_run(trained, trained.site or name)
        else:  # a directory, or what a run's `backbone` may name
            encoder = encoder_of_folder(Path(named) if Path(named).is_dir() else backbone_directory(named), name)
    except BackboneError as error:
        raise BackboneError(f"--encoder {named}: {error}" if named else str(error)) from error

    def report(epoch: dict[str, Any]) -> None:
        losses = f"train loss {epoch['train_loss']:.3f}  dev F1 {epoch['dev_micro_f1']:.4f}"
        console().print(f"epoch {epoch['epoch']} of {training.epochs}  {losses}")

    result = finetune(layout, encoder, texts, folder, training, data.resolve().name, report, sayer())
    console().print(f"epoch {result['best_epoch']} is the best on dev and is kept")
    names = [name for name in result["test"] if name.endswith("_f1") or name == "accuracy"]
    splits = [(split, *(f"{result[split][name]:.4f}" for name in names)) for split in ("dev", "test")]
    headers = [name.removesuffix("_f1") for name in names]
    console().print(plain_table("split", *headers, rows=splits, title=f"{result['data']}: F1, 0 to 1"))
    rows = [(label, *(f"{each:.4g}" for each in score.values())) for label, score in result["test"]["by_label"].items()]
    console().print(plain_table("label", *FIGURES, rows=rows, title="test"))
    say(f"scores: {folder.resolve() / FILE}")
    return {"folder": folder, **result}


def model_of_run(run: Path, site: str | None) -> TrainedModel:
    """Return the model of a run's site; RunError: it trained no encoder, or sites end with different ones and none is named."""
    models = RunModels(run)
    if models.settings.task != "masked-language":
        raise RunError(f"{run}: task = {models.settings.task!r} trains no encoder; wanted a run with task = 'masked-language'")
    chosen = "keep.choose = true" if models.settings.chooses else ""
    why = "of several clusters" if any(len(named) > 1 for named in models.clusters.values()) else chosen
    if site is None and why and len(models.sites) > 1:
        raise RunError(
            f"{run}: its sites have different encoders ({why}); say whose with --site, one of {', '.join(models.sites)}"
        )
    return models.of_site(site or next(iter(models.sites)))
