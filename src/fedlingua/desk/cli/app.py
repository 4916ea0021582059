"""The fedlingua command. A command's module is imported only when it is called, so that --help and completion stay fast."""

import sys
from importlib import import_module, metadata
from typing import Annotated

import click
import typer
from typer.core import TyperCommand, TyperGroup

from fedlingua.desk.cli.output import Commands, run_commands

COMMANDS = {
    "run": "Run a federation from start to end, show its progress, and write its run folder and report.",
    "suite": "Run every row of a suite with every seed and write the table. An interrupted suite continues where it stopped.",
    "pretrain": "Train a small model and its SentencePiece from nothing: an M2M-100, or an XLM-R with task = "
    '"masked-language". The same command continues an interrupted training.',
    "translate": "Translate text line by line with the model of a run.",
    "export": "Export a model with its model card: an adapter, a LoRA for peft, or a whole model for transformers or CTranslate2.",
    "serve": "Serve translations over HTTP for all sites and directions of a run, with a page to type in.",
    "score": "Score the translations of a run, which adds the result to its scores.json, or those in files.",
    "compare": "Compare runs by site, with a paired bootstrap, and by cost; show which sites gain by joining.",
    "personalize": "Repeat the last phase of a run: each site trains on from a round's model and chooses how much of its own model to use.",
    "memory": "Build a memory from a site's training text and its model after a run (kNN-MT, Khandelwal et al. 2021).",
    "report": "Write report.html again and print the table of scores.",
    "status": "Show a run's progress: each site's round, last message, bytes and failures.",
    "watch": "Watch a run until it ends: rounds, losses, sites, bytes and failures. Any run folder will do.",
    "track": "Send experiment trackers what they have not received of a run: after its end, or after a tracker was unreachable.",
    "doctor": "Check this machine: versions, GPU, memory, disk, Flower, ports and extras. Uses no network and changes nothing.",
    "backbone": "Backbones: what a model has, and what runs could train of it.",
    "bundle": "Show the hash of this checkout's bundle, which sites approve.",
    "corpus": "Check, convert and split the text of a federation's sites.",
    "audit": "What a server could read from the messages of a run.",
    "finetune": "Fine-tune a pre-trained encoder for tagging or classification, and score it.",
    "server": "The server of a federation across machines.",
    "site": "One site of a federation across machines.",
}
"""Name of a command and of its module -> its help, which a test compares with the module's."""


def load_command(name: str) -> click.Command:
    """Import a command's module and return the command, or the group of commands, that it holds."""
    module = import_module(f"fedlingua.desk.cli.{name}")
    command = typer.main.get_command(module.commands)
    command.name = name
    return command


class LazyCommands(TyperGroup):
    """A group that lists commands by name and help, and imports a command's module only when a command line names it."""

    def __init__(self, **options: object) -> None:
        commands = {name: TyperCommand(name, help=text) for name, text in COMMANDS.items()}
        super().__init__(**{**options, "commands": commands})  # type: ignore[arg-type]

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command as click does, and import its module."""
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
