"""The commands of the command line, found in the application itself: one that is added later is walked over, too."""

import click
import typer
from typer.main import get_command

from fedlingua.desk.cli.lazy import LazyCommand


def leaf_commands(app: typer.Typer) -> dict[str, click.Command]:
    """Name, as in `corpus check` -> the command."""
    found: dict[str, click.Command] = {}

    def walk(command: click.Command, name: str) -> None:
        command = command.loaded() if isinstance(command, LazyCommand) else command
        if isinstance(command, click.Group):
            for word in command.list_commands(click.Context(command)):
                walk(command.commands[word], f"{name} {word}".strip())
        else:
            found[name] = command

    walk(get_command(app), "")
    return found
