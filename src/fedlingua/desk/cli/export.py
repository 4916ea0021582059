"""`fedlingua export`: write a run's model to a folder for use elsewhere."""

from pathlib import Path

from fedlingua.desk.cli.options import ExportOptions, ModelChoice, RunOption
from fedlingua.desk.cli.output import Answer, Commands, example, say
from fedlingua.desk.export.forms import chosen_form
from fedlingua.desk.translating.models import TrainedModel

commands = Commands()


@commands.command(epilog=example("fedlingua export --run runs/demo-adapter-families-2022 --site hospital-de --to hospital-model"))
def export(run: RunOption, how: ExportOptions, whose: ModelChoice) -> Answer:
    how.check()
    return take_away(whose.of(run, "export"), how, run)


def take_away(model: TrainedModel, how: ExportOptions, run: Path | None = None, backbone: str = "") -> Answer:
    """Export a model; print its folder and what is needed to use it, and return the same for programs.

    Args:
        run: The run's folder; None at a site, which has none.
        backbone: The run's name for the backbone, where the model's settings hold a path.
    """
    chosen_form(how.form, model.settings)  # refused, like an unknown form or an existing folder, before torch is loaded
    from fedlingua.desk.export.model import export_model

    done = export_model(model, how.to, how.form, run, how.force, how.quantization, backbone)
    files = sorted(done.directory.iterdir())
    say(f"{done.form}: {done.directory}")
    if model.second:
        say(
            f"the site translates with an ensemble; this is its first model, {model.candidate}, without {model.second[0].candidate}"
        )
    if done.form in ("peft", "adapter"):
        say(f"it fits the backbone in {done.backbone}")
    say(f"how to load it: {done.directory / 'README.md'}")
    base = done.facts["backbone"]
    return {
        "directory": done.directory,
        "form": done.form,
        "bytes": sum(file.stat().st_size for file in files),
        "backbone": {"name": base["name"], "directory": done.backbone, "fingerprint": base["fingerprint"]},
        "site": done.facts["site"],
        "ensemble_with": done.facts["ensemble_with"],
        "direction": done.facts["direction"],
        "files": [file.name for file in files],
    }
