"""The fedlingua command. Each command is a module of this package, which is loaded once it is called: --help and completion stay fast."""

import sys
from importlib import import_module, metadata
from typing import Annotated

import click
import typer
from typer.core import TyperCommand, TyperGroup

from fedlingua.desk.cli.output import Commands, run_commands

COMMANDS = {
    "run": "Run a federation to its end, show its progress, and write its folder and report.",
    "suite": "Run every row of a suite with every seed and write its table; goes on where it was broken off.",
    "pretrain": "Train a small model with its own SentencePiece from nothing: an M2M-100, or with task = "
    '"masked-language" an XLM-R. The same command goes on with a training that was broken off.',
    "translate": "Translate line for line with what a run has trained.",
    "export": "Take a model away: an adapter, a LoRA for peft, a whole model for transformers or CTranslate2, with its model card.",
    "serve": "Translate over HTTP, for all sites and directions of a run, with a page to type in.",
    "score": "Score translations: of a run, whose scores.json keeps the result, or of files.",
    "compare": "Compare runs: by site with a paired bootstrap, over all sites, what they cost, and whether joining helps each site.",
    "personalize": "Run the last phase again: sites go on from a round's model, and find how much of their own they should use.",
    "memory": "Make a memory of a site's training text, with the model that it uses after a run (kNN-MT, Khandelwal et al. 2021).",
    "report": "Write report.html anew and print the table of scores.",
    "status": "Show how far a run is: each site's round, when it was last heard, its bytes and failures.",
    "watch": "Watch a run, whoever runs it, until it ends: rounds, losses, every site, what was sent, what went wrong.",
    "track": "Tell experiment trackers of a run what they have not been told yet: after the fact, or after a tracker could not be "
    "reached.",
    "doctor": "Look whether this machine has what runs need: versions, GPU, memory, disk, Flower, ports, extras; no network, nothing "
    "is changed.",
    "backbone": "Backbones: what a model has, and what runs could train of it.",
    "bundle": "Show the hash of the bundle that this checkout's runs carry, which a site approves.",
    "corpus": "Text for the sites of a federation: look at it, convert it, divide it.",
    "finetune": "Fine-tune a pre-trained encoder to tag or to label, and score it.",
    "server": "The server of a federation across machines.",
    "site": "One site of a federation across machines.",
}
"""Command, as its module here is called -> its help, which a test compares with the module's."""


def load_command(name: str) -> click.Command:
    """Import a command's module and make the command, or the group of commands, that it holds."""
    module = import_module(f"fedlingua.desk.cli.{name}")
    command = typer.main.get_command(module.commands)
    command.name = name
    return command


class LazyCommands(TyperGroup):
    """The commands by name and help; the real one is loaded where a command line names it."""

    def __init__(self, **options: object) -> None:
        commands = {name: TyperCommand(name, help=text) for name, text in COMMANDS.items()}
        super().__init__(**{**options, "commands": commands})  # type: ignore[arg-type]

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, with the real command."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if name and command else command, rest


app = Commands(help="Federated translation models and encoders.", cls=LazyCommands, add_completion=True)


@app.callback(invoke_without_command=True)
def print_version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print("fedlingua", metadata.version("fedlingua"))
        raise typer.Exit


def main() -> None:
    run_commands(app, sys.argv[1:])
