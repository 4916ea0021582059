"""`fedlingua export` and `fedlingua site export`: take what was trained away."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from fedlingua.common.errors import ConfigError
from fedlingua.common.languages import parse_direction
from fedlingua.desk.export.forms import check_form, check_place
from fedlingua.desk.models import RunModels
from fedlingua.runs.completed import CompletedRun

if TYPE_CHECKING:  # an unknown form, or a folder that is there, is told without torch
    from fedlingua.desk.export.model import Export


def export_run(
    run: Path, site: str | None, direction: str | None, to: Path, form: str, quantization: str, force: bool, console: Console
) -> dict[str, Any]:
    """Export what a site uses after a run, or what the run has for a direction.

    Raises:
        ConfigError: neither site nor direction, or both; an unknown form; a folder that is not to be written. RunError, BackboneError: what
            the run cannot give.
    """
    check_form(form, quantization)
    check_place(to, force)
    if (site is None) == (direction is None):
        sites = ", ".join(CompletedRun.of(run).folder.read("sites.json") or {})
        raise ConfigError(f"export needs either --site or --direction; the run's sites are {sites}")
    wanted = parse_direction(direction, "--direction") if direction else None
    models = RunModels(run)
    model = models.of_direction(wanted) if wanted else models.of_site(site or "")
    from fedlingua.desk.export.model import export_model  # loads torch

    return told_export(export_model(model, to, form, run, force, quantization), console)


def told_export(done: "Export", console: Console) -> dict[str, Any]:
    """Say where it went and what it still needs; the same as an answer for programs."""
    size = sum(file.stat().st_size for file in done.directory.iterdir())
    console.print(f"{done.form}: {done.directory}", soft_wrap=True, highlight=False, markup=False)
    if done.form in ("peft", "adapter"):
        console.print(f"it fits on the backbone in {done.backbone}", soft_wrap=True, highlight=False, markup=False)
    console.print(f"how to load it: {done.directory / 'README.md'}", soft_wrap=True, highlight=False, markup=False)
    return {
        "directory": done.directory,
        "form": done.form,
        "bytes": size,
        "backbone": {
            "name": done.facts["backbone"]["name"],
            "directory": done.backbone,
            "fingerprint": done.facts["backbone"]["fingerprint"],
        },
        "site": done.facts["site"],
        "direction": done.facts["direction"],
        "files": sorted(file.name for file in done.directory.iterdir()),
    }
