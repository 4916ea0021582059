"""`fedlingua export`: take what was trained away."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import parse_direction
from fedlingua.desk.cli.completion import sites_of_run
from fedlingua.desk.cli.options import ExportOptions, RunOption
from fedlingua.desk.cli.output import Answer, Commands, example, say
from fedlingua.desk.completed import CompletedRun
from fedlingua.desk.models import RunModels

if TYPE_CHECKING:  # an unknown form, or a folder that is there, is told without torch
    from fedlingua.desk.export.model import Export

commands = Commands()


@commands.command(epilog=example("fedlingua export --run runs/demo-adapter-families-2022 --site hospital --to hospital-model"))
def export(
    run: RunOption,
    how: ExportOptions,
    site: Annotated[str | None, typer.Option(help="What this site uses.", shell_complete=sites_of_run)] = None,
    direction: Annotated[
        str | None, typer.Option(help="Or what the run has for this direction, also one that no site holds.")
    ] = None,
) -> Answer:
    """Take a model away: an adapter, a LoRA for peft, a whole model for transformers or CTranslate2, with its model card."""
    how.check()
    if (site is None) == (direction is None):
        sites = ", ".join(CompletedRun.of(run).folder.read("sites.json") or {})
        raise ConfigError(f"export needs either --site or --direction; the run's sites are {sites}")
    wanted = parse_direction(direction, "--direction") if direction else None
    models = RunModels(run)
    model = models.of_direction(wanted) if wanted else models.of_site(site or "")
    from fedlingua.desk.export.model import export_model  # loads torch

    return export_answer(export_model(model, how.to, how.form, run, how.force, how.quantization))


def export_answer(done: "Export") -> dict[str, Any]:
    """Say where it went and what it still needs; the same as an answer for programs."""
    files = sorted(done.directory.iterdir())
    say(f"{done.form}: {done.directory}")
    if done.form in ("peft", "adapter"):
        say(f"it fits on the backbone in {done.backbone}")
    say(f"how to load it: {done.directory / 'README.md'}")
    backbone = {key: done.facts["backbone"][key] for key in ("name", "fingerprint")}
    return {
        "directory": done.directory,
        "form": done.form,
        "bytes": sum(file.stat().st_size for file in files),
        "backbone": {"name": backbone["name"], "directory": done.backbone, "fingerprint": backbone["fingerprint"]},
        "site": done.facts["site"],
        "direction": done.facts["direction"],
        "files": [file.name for file in files],
    }
