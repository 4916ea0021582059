"""The fedlingua command: run, pretrain, translate, report."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedlingua.errors import FedlinguaError

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="Federated translation models."
)

Data = Annotated[Path | None, typer.Option("--data", help="Folder that the corpora's paths are relative to.")]
RunFolderOption = Annotated[Path, typer.Option("--run", help="Run folder.")]


@app.command()
def run(
    experiment: Annotated[Path, typer.Argument(help="Experiment file (TOML); it holds the keys that differ from the defaults.")],
    data: Data = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value; goes before the experiment's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the run.")] = None,
    to: Annotated[Path | None, typer.Option(help="Run folder; default: ./runs/<experiment>-<method>-<seed>.")] = None,
    profile: Annotated[str, typer.Option(help="Profile of pyproject-flwr.toml.")] = "simulation",
    nodes: Annotated[int | None, typer.Option(help="Nodes of a simulation; default: one for each site.")] = None,
) -> None:
    """Run a federation to its end, show its progress, and write its folder and report."""
    from fedlingua.cli.run import run_experiment

    run_experiment(experiment, data, set_ or [], seed, to, profile, nodes, Console())


@app.command()
def pretrain(
    recipe: Annotated[Path, typer.Argument(help="Recipe file (TOML): corpora, share, size, schedule.")],
    data: Data = None,
    to: Annotated[
        Path | None, typer.Option(help="Directory of the model; default: the user's cache, under the recipe's name.")
    ] = None,
) -> None:
    """Train a small M2M-100 with its own SentencePiece from nothing."""
    from fedlingua.cli.pretrain import pretrain_recipe

    pretrain_recipe(recipe, data or Path(), to, Console())


@app.command()
def translate(
    run: RunFolderOption,
    site: Annotated[str | None, typer.Option(help="Translate as this site does.")] = None,
    direction: Annotated[str | None, typer.Option(help="Or in this direction, also one that no site holds.")] = None,
    file: Annotated[Path | None, typer.Argument(help="Text, a sentence a line; default: standard input.")] = None,
) -> None:
    """Translate line for line with what a run has trained."""
    from fedlingua.cli.translate import translate_lines

    translate_lines(run, site, direction, file, sys.stdout)


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    keep: Annotated[
        Path | None, typer.Option(help="Also write run.json, scores.json and report.md here, small and without paths.")
    ] = None,
) -> None:
    """Write report.html anew and print the table of scores."""
    from fedlingua.report import keep_run, score_table, write_report

    page = write_report(run)
    console = Console()
    console.print(score_table(run))
    console.print(f"report: {page}", soft_wrap=True)
    if keep:
        keep_run(run, keep)


def main() -> None:
    """Entry point: what a user can cause is one message and exit code 1; Ctrl-C is 130 (typer sees to it)."""
    try:
        app()
    except FedlinguaError as error:
        Console(stderr=True).print(f"error: {error}", style="bold red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)
