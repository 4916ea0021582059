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


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def rows(command: click.Command, context: click.Context) -> Iterator[str]:
    """A row for each argument and option: name, what it takes, default, meaning."""
    for parameter in command.params:
        kind = (
            "" if getattr(parameter, "is_flag", False) else parameter.type.get_metavar(parameter, context) or parameter.type.name
        )
        name = parameter.human_readable_name if parameter.param_type_name == "argument" else ", ".join(parameter.opts)
        default = parameter.get_default(context)
        given = "" if default in (None, False, (), "") or callable(default) else f"`{default}`"
        meaning = getattr(parameter, "help", None) or ""
        yield f"| `{name}` | {cell(kind.lower())} | {cell(given)} | {cell(meaning)} |"


def commands_page() -> str:
    parts = [
        "# Commands",
        "Written by `make options` from the commands themselves; `--help` says the same. Every command also takes `--format json`: one "
        "document on standard output, all else on standard error.",
    ]
    for name, command in leaf_commands(get_command(app)):
        context = click.Context(command, info_name=f"fedlingua {name}")
        examples = [line.removeprefix("Example: ") for line in (command.epilog or "").splitlines() if line]
        shown = [row for row in rows(command, context) if not row.startswith(("| `--format`", "| `--help`"))]
        parts += [f"## fedlingua {name}", " ".join((command.help or "").split())]
        parts += ["\n".join(["| name | takes | default | meaning |", "|---|---|---|---|", *shown])] if shown else []
        parts += ["\n".join(["<!-- run: tests/fedlingua/desk/cli/test_help.py -->", "```sh", *examples, "```"])]
    return "\n\n".join(parts) + "\n"


PAGES = {DOCS / "commands.md": commands_page}

if __name__ == "__main__":
    for file, page in PAGES.items():
        replace_text(file, page())
