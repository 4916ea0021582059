"""What the lab plugs into the desk: listed without being imported, and imported by none of the commands that a federation runs by."""

import subprocess
import sys

import click
import pytest
from typer.main import get_command

from fedlingua.desk import plugged
from fedlingua.desk.cli import lazy
from fedlingua.desk.cli.app import COMMANDS, app

ORDER = """run suite pretrain translate export serve score compare personalize memory report status watch track doctor backbone
bundle corpus audit finetune server site"""
LOADED = "print([name for name in sys.modules if name.startswith(('fedlingua_lab', 'fedlingua.desk.cli.suite'))])"


def loaded_by(*arguments: str) -> str:
    """The lab's modules that a command line loads."""
    code = f"import sys\nfrom fedlingua.desk.cli.app import main\ntry: main()\nfinally: {LOADED}"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


def test_the_overview_lists_the_labs_commands_in_their_places_without_importing_them() -> None:
    group = get_command(app)
    assert isinstance(group, click.Group)
    assert group.list_commands(click.Context(group)) == ORDER.split()
    assert loaded_by("--help") == "['fedlingua_lab']"


@pytest.mark.parametrize("command", ["run", "site", "server", "translate", "serve", "export", "corpus"])
def test_what_a_federation_runs_by_loads_nothing_of_the_lab(command: str) -> None:
    assert loaded_by(*([command, "check"] if command == "corpus" else [command]), "--help") == "[]"


def test_without_the_lab_the_desk_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugged, "find_spec", lambda name: None)
    monkeypatch.setattr(lazy, "plugged", plugged.plugged.__wrapped__)
    group = get_command(app)
    assert isinstance(group, click.Group)
    assert group.list_commands(click.Context(group)) == list(COMMANDS)
    assert group.get_command(click.Context(group), "suite") is None
