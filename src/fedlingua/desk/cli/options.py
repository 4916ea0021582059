"""Options that several commands share, each declared once. A dataclass is a group of them: a command takes it as one parameter."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import parse_direction
from fedlingua.desk.cli.completion import profiles, run_folders, sites_of_run
from fedlingua.desk.translating.decoding import Decoding

if TYPE_CHECKING:  # --help and completion need no models
    from fedlingua.desk.translating.models import TrainedModel

Data = Annotated[Path | None, Option("--data", help="Folder for relative corpus paths.")]
Profile = Annotated[str, Option(help="Profile of pyproject-flwr.toml.", shell_complete=profiles)]
Nodes = Annotated[
    int | None,
    Option(
        min=1,
        help="Number of simulated nodes; default: one for each site; with more than 64 sites, two for each core, at least 8.",
    ),
]
RayAddress = Annotated[
    str, Option(metavar="HOST:PORT", help="Simulate on this Ray cluster, whose machines share the working directory.")
]
CometModel = Annotated[str, Option(help="COMET model: a checkpoint (.ckpt) or a name on the hub.")]
RunArgument = Annotated[Path, Argument(help="Run folder.", shell_complete=run_folders)]
RunOption = Annotated[Path, Option("--run", help="Run folder.", shell_complete=run_folders)]
SitesOption = Annotated[
    list[str] | None, Option("--site", help="A site of the run; repeatable; default: all.", shell_complete=sites_of_run)
]


@dataclass(frozen=True)
class ModelChoice:
    """Whose model of a run is used: a site's own, or the clusters' for a direction."""

    site: Annotated[str | None, Option(help="Use this site's model.", shell_complete=sites_of_run)] = None
    direction: Annotated[str | None, Option(help="Or the run's model for this direction, which need not be a site's.")] = None

    def of(self, run: Path, command: str) -> "TrainedModel":
        """Open the run and return the chosen model; raise ConfigError unless exactly one is chosen."""
        from fedlingua.desk.translating.models import RunModels

        wanted = parse_direction(self.direction, "--direction") if self.direction else None
        models = RunModels(run)
        if (self.site is None) == (self.direction is None):
            what = (
                f"{command} got --site and --direction; leave one out" if self.site else f"{command} needs --site or --direction"
            )
            raise ConfigError(f"{what}; the run's sites are {', '.join(models.sites)}")
        return models.of_direction(wanted) if wanted else models.of_site(self.site or "")


@dataclass(frozen=True)
class TranslateOptions(Decoding):
    """The text to translate, and where translations go. text: None is standard input; to: None is standard output."""

    text: Annotated[
        Path | None,
        Argument(help="Text, one sentence a line, or a translation memory (.tmx), also .gz; default: standard input."),
    ] = None
    to: Annotated[
        Path | None,
        Option(
            help="File to write, whole or not at all; default: standard output. It holds translations line by line, or pairs if the "
            "name ends in .tmx, .tsv, .jsonl (also .gz) or .parquet."
        ),
    ] = None


@dataclass(frozen=True)
class ExportOptions:
    """An export's folder and form."""

    to: Annotated[Path, Option(help="Folder to write, whole or not at all.")]
    form: Annotated[
        str, Option(help="Format: adapter, peft (default for LoRA), transformers (default for a whole model) or ctranslate2.")
    ] = ""
    quantization: Annotated[str, Option(help="For ctranslate2: int8, float16, ...; default: float32.")] = ""
    force: Annotated[bool, Option("--force", help="Replace an earlier export.")] = False

    def check(self) -> None:
        """Refuse an unknown form, and a folder that must not be written, by a ConfigError."""
        from fedlingua.desk.export.forms import check_form, check_place

        check_form(self.form, self.quantization)
        check_place(self.to, self.force)
