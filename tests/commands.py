"""The commands of the command line, found in the application itself: one that is added later is walked over, too."""

import click
import typer
from typer.main import get_command

from fedlingua.desk.cli.app import LazyCommands, load_command


def leaf_commands(app: typer.Typer) -> dict[str, click.Command]:
    """Name, as in `corpus check` -> the command."""
    found: dict[str, click.Command] = {}

    def walk(command: click.Command, name: str) -> None:
        if isinstance(command, click.Group):
            for word, below in command.commands.items():
                walk(load_command(word) if isinstance(command, LazyCommands) else below, f"{name} {word}".strip())
        else:
            found[name] = command

    walk(get_command(app), "")
    return found
