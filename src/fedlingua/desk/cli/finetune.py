"""`fedlingua finetune`: an encoder learns to tag or to label, with its progress and a table of scores."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedlingua.backbones.directories import backbone_directory, known_backbone
from fedlingua.common.devices import computed_in
from fedlingua.common.errors import BackboneError, ConfigError
from fedlingua.common.files import check_new_folder
from fedlingua.desk.cli.progress import duration
from fedlingua.desk.finetuning.run_encoder import encoder_run
from fedlingua.desk.finetuning.settings import FineTuning, read_annotated
from fedlingua.desk.pretraining.demo import make_built_in

if TYPE_CHECKING:  # a mistake is told without torch
    from fedlingua.desk.finetuning.loop import Epoch
    from fedlingua.desk.finetuning.result import Result


def finetune(
    task: str,
    of: tuple[str | None, Path | None, str | None],
    data: Path,
    to: Path | None,
    how: FineTuning,
    max_tokens: int | None,
    device: str,
    threads: int,
    console: Console,
    layout: str = "iob",
) -> dict[str, Any]:
    """Fine-tune, show the epochs and the scores, and return them with the folder; default: ./runs/<task>-<data>-<encoder>-<seed>.

    of: the encoder's directory or name, or a run that has pre-trained it, with the site whose it is.
    """
    if not 0 < how.learning_rate < math.inf:
        raise ConfigError(f"--learning-rate {how.learning_rate}: wanted a number above 0, for example 5e-5")
    how = replace(how, precision=computed_in(how.precision, device, console.print))
    given, run, site = of
    if (given is None) == (run is None):
        raise ConfigError(f"got {'--encoder and --run' if run else 'no encoder'}; wanted one of --encoder and --run")
    name = (run or Path(given or "")).resolve().name
    folder = to or Path("runs") / f"{task}-{data.resolve().name}-{name}-{how.seed}"
    _check(task, given, run, site, data, layout, folder)
    from fedlingua.desk.finetuning.encoder_of_run import encoder_directory
    from fedlingua.desk.finetuning.loop import best_epoch
    from fedlingua.desk.finetuning.result import FILE
    from fedlingua.desk.finetuning.tasks import Setting
    from fedlingua.desk.finetuning.tasks import finetune as train

    encoder = encoder_directory(run, site) if run else _named(given or "")
    note = partial(console.print, soft_wrap=True)
    where = Setting(encoder, data, folder, max_tokens, device, threads, "" if run else name, note, layout)
    result = train(task, where, how, _reporter(how.epochs, console))
    console.print(f"epoch {best_epoch(result.epochs).number} is the best on dev and is kept")
    for table in score_tables(result):
        console.print(table)
    console.print(f"scores: {folder.resolve() / FILE}", soft_wrap=True, markup=False)
    return {"folder": folder, **result.as_json()}


def _check(task: str, encoder: str | None, run: Path | None, site: str | None, data: Path, layout: str, folder: Path) -> None:
    """Refuse what can be seen to be wrong before torch is loaded, or an encoder made ready; text is read for it, which takes a moment."""
    check_new_folder(folder, "--to")
    if run:
        encoder_run(run, site)
    else:
        try:
            known_backbone(encoder or "")
        except BackboneError as error:
            raise BackboneError(f"--encoder {encoder}: {error}") from error
    read_annotated(task, data, layout)


def _named(encoder: str) -> Path:
    """A directory, or what a run's `backbone` may name."""
    try:
        make_built_in(encoder)
        return Path(encoder) if Path(encoder).is_dir() else backbone_directory(encoder)
    except BackboneError as error:
        raise BackboneError(f"--encoder {encoder}: {error}") from error


def score_tables(result: "Result") -> list[Table]:
    """F1 of dev and test in every reckoning, and test's by label."""
    names = [name for name in result.scores["test"].overall if name.endswith("_f1") or name == "accuracy"]
    overall = Table("split", *(name.removesuffix("_f1") for name in names), title=Text(f"{result.data}: F1, 0 to 1"))
    for split, scores in result.scores.items():
        overall.add_row(split, *(f"{scores.overall[name]:.4f}" for name in names))
    by_label = Table("label", "precision", "recall", "F1", "support", title="test")
    for label, score in result.scores["test"].by_label.items():
        by_label.add_row(Text(label), f"{score.precision:.4f}", f"{score.recall:.4f}", f"{score.f1:.4f}", str(score.support))
    return [overall, by_label]


def _reporter(epochs: int, console: Console) -> Callable[["Epoch"], None]:
    def report(epoch: "Epoch") -> None:
        console.print(
            f"epoch {epoch.number} of {epochs}  train loss {epoch.loss:.3f}  dev F1 {epoch.dev_f1:.4f}  "
            f"{duration(epoch.seconds)}, {duration(epoch.left_s)} left"
        )

    return report
