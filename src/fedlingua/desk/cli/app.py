"""The fedlingua command. A command's module is imported only when it is called, so that --help and completion stay fast."""

import sys
from importlib import metadata
from typing import Annotated, Any

import click
import typer

from fedlingua.desk.cli.lazy import LazyCommand, OpenGroup
from fedlingua.desk.cli.output import Commands, run_commands

COMMANDS = {
    "init": "Write a federation file and an experiment file for text of your own, ready for `fedlingua run`.",
    "run": "Run a federation from start to end, show its progress, and write its run folder and report.",
    "pretrain": "Train a small model and its SentencePiece from nothing: an M2M-100, or an XLM-R with task = "
    '"masked-language". The same command continues an interrupted training.',
    "translate": "Translate text line by line with the model of a run.",
    "export": "Export a model with its model card: an adapter, a LoRA for peft, or a whole model for transformers or CTranslate2.",
    "serve": "Serve translations over HTTP for all sites and directions of a run, with a page to type in.",
    "score": "Score the translations of a run, which adds the result to its scores.json, or those in files.",
    "report": "Write report.html again and print the table of scores.",
    "status": "Show a run's progress: each site's round, last message, bytes and failures.",
    "watch": "Watch a run until it ends: rounds, losses, sites, bytes and failures. Any run folder will do.",
    "doctor": "Check this machine: versions, GPU, memory, disk, Flower, ports and extras. Uses no network and changes nothing.",
    "backbone": "Backbones: what a model has, and what runs could train of it.",
    "bundle": "Show the hash of this checkout's bundle, which sites approve.",
    "corpus": "Check, convert and split the text of a federation's sites.",
    "server": "The server of a federation across machines.",
    "site": "One site of a federation across machines.",
}
"""Name of a command and of its module -> its help."""
REMOVED_COMMANDS = dict.fromkeys(
    ("memory", "site memory"), "the model translates without one, and --terms brings a site's own words"
)
"""Command that was taken out -> what to use, as a sentence."""


class AllCommands(OpenGroup):
    def __init__(self, **options: Any) -> None:
        commands = {name: LazyCommand(f"fedlingua.desk.cli.{name}", name, text) for name, text in COMMANDS.items()}
        super().__init__(**{**options, "commands": commands})

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command as click does; raise UsageError for one that was taken out, with what to use."""
        for words in (args[0], " ".join(args[:2])):
            if words in REMOVED_COMMANDS:
                from fedlingua.settings.removed import LAST  # imported only after a mistake

                raise click.UsageError(
                    f"fedlingua {words} was taken out; {REMOVED_COMMANDS[words]}. The last version that has it is commit {LAST} "
                    "(docs/removed.md)",
                    ctx,
                )
        return super().resolve_command(ctx, args)


app = Commands(help="Federated translation models and encoders.", cls=AllCommands, add_completion=True)


@app.callback(invoke_without_command=True)
def print_version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        print("fedlingua", metadata.version("fedlingua"))
        raise typer.Exit


def main() -> None:
    run_commands(app, sys.argv[1:])
