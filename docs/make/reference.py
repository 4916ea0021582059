"""Write docs/commands.md from the code: `make options`."""

from collections.abc import Iterator
from pathlib import Path

import click
from typer.main import get_command

from fedlingua.common.files import replace_text
from fedlingua.desk.cli.app import app
from fedlingua.desk.cli.lazy import LazyCommand

DOCS = Path(__file__).resolve().parents[1]


def leaf_commands(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command with its whole name, such as `corpus check`."""
    command = command.loaded() if isinstance(command, LazyCommand) else command
    if not isinstance(command, click.Group):
        yield name, command
        return
    for word in command.list_commands(click.Context(command)):
        yield from leaf_commands(command.commands[word], f"{name} {word}".strip())


def line(text: str) -> str:
    return " ".join(text.split()).replace("<", "&lt;")


def commands_page() -> str:
    parts = [
        "# Commands",
        "Written by `make options` from the commands themselves: what each does, with an example. `--help` tells more. "
        "Every command also takes `--format json`: one document on standard output, all else on standard error.",
    ]
    lines = []
    for name, command in leaf_commands(get_command(app)):
        shown = [each.removeprefix("Example: ") for each in (command.epilog or "").splitlines()]
        example = next(each for each in shown if each.startswith("fedlingua "))
        lines.append(f"- **{name}**: {line(command.help or '').partition('. ')[0].removesuffix('.')}. `{example}`")
    parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


PAGES = {DOCS / "commands.md": commands_page}

if __name__ == "__main__":
    for file, page in PAGES.items():
        replace_text(file, page())
