"""Commands that are listed before their module is imported, and groups to which another package adds commands."""

from importlib import import_module
from typing import Any

import click
import typer
from typer.core import TyperCommand, TyperGroup

from fedlingua.desk.plugged import plugged


class LazyCommand(TyperCommand):
    """A command known by name and help. Its module is imported only when a command line names it."""

    def __init__(self, module: str, name: str, text: str) -> None:
        super().__init__(name, help=text)
        self._module = module

    def loaded(self) -> click.Command:
        """Import the module and return the command, or the group of commands, that it holds."""
        command = typer.main.get_command(import_module(self._module).commands)
        command.name, command.help = self.name, self.help
        return command

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        return self.loaded().make_context(*arguments, **options)


class OpenGroup(TyperGroup):
    """A group to which another package adds commands, each after one that it names; looked up to list them, or for a name unknown here."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        for name, (module, after, text) in (plugged("commands") or {}).items():
            group, _, word = name.rpartition(" ")
            if group == self.name and word not in self.commands:
                order = list(self.commands)
                order.insert(order.index(after) + 1 if after else 0, word)
                self.commands[word] = LazyCommand(module, word, text)
                self.commands = {known: self.commands[known] for known in order}
        return super().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands:
            self.list_commands(ctx)
        return super().get_command(ctx, cmd_name)
