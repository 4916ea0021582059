"""What the lab plugs into the desk: listed without being imported, and imported by none of the commands that a federation runs by."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from typer.main import get_command

from fedlingua.desk import plugged
from fedlingua.desk.cli import lazy
from fedlingua.desk.cli.app import COMMANDS, app

ROOT = Path(__file__).parents[3]
ORDER = """init run suite pretrain translate export serve score compare personalize report status watch track doctor backbone
bundle corpus audit finetune server site"""
LOADED = "print([name for name in sys.modules if name.startswith(('fedlingua_lab', 'fedlingua_lab.cli.suite'))])"


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


def test_a_run_its_translations_and_its_export_load_nothing_of_the_lab(experiment: Path, tmp_path: Path) -> None:
    lines = [
        ["run", str(experiment), "--to", "run"],
        ["translate", "--run", "run", "--site", "hospital", "text.de", "--to", "text.fr"],
        ["export", "--run", "run", "--site", "hospital", "--to", "exported"],
        ["server", "init", "--to", "server", "--host", "127.0.0.1"],
    ]
    (tmp_path / "text.de").write_text("der Arzt liest\n")
    code = f"""import sys
from typer.testing import CliRunner
from fedlingua.desk.cli.app import app
from tests.notebooks import in_this_process
in_this_process(1)
for line in {lines!r}:
    result = CliRunner().invoke(app, line, catch_exceptions=False)
    assert result.exit_code == 0, result.output
{LOADED}"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stderr
