"""Every command's help ends with examples, and each is true: it is read as the command reads it, and run where that takes seconds.

docs/commands.md shows the same examples.
"""

import re
import shlex
import shutil
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from rich.text import Text
from typer.testing import CliRunner

from fedlingua.desk.cli.app import app
from fedlingua.settings.table import OPTIONS
from tests.commands import leaf_commands
from tests.workspace import make_workspace

COMMANDS = leaf_commands(app)
MARK = "Example: "


def examples(name: str) -> list[str]:
    """The example lines of a command's help, as it is printed."""
    shown = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "400", "TERMINAL_WIDTH": "400", "NO_COLOR": "1"})
    assert shown.exit_code == 0, shown.output
    lines = [line.strip() for line in shown.output.split("\n")]
    return [line.removeprefix(MARK) for line in lines if line.startswith(MARK)]


EXAMPLES = [(name, line) for name in COMMANDS for line in examples(name)]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_commands_help_has_an_example(name: str) -> None:
    told = "give the command an epilog: @app.command(epilog=example('fedlingua ...')), and a line in RUN below or a reason in NOT_RUN"
    assert examples(name), f"{name}: {told}"


@pytest.mark.parametrize("name", COMMANDS)
def test_no_word_of_an_options_help_is_taken_for_a_style(name: str) -> None:
    for parameter in COMMANDS[name].params:
        text = getattr(parameter, "help", None) or ""
        assert Text.from_markup(text).plain == text, f"{name} {parameter.name}: rich drops what stands in brackets"


@pytest.mark.parametrize(("name", "line"), EXAMPLES)
def test_an_example_is_read_without_an_error(name: str, line: str) -> None:
    words = shlex.split(line)
    assert words[: 1 + len(name.split())] == ["fedlingua", *name.split()]
    command = COMMANDS[name]
    rest = words[1 + len(name.split()) :]
    context = command.make_context(name, list(rest))
    given = {key for key, source in context._parameter_source.items() if source is click.core.ParameterSource.COMMANDLINE}
    assert given or not rest


def test_the_help_of_run_fits_a_screen_and_names_ten_keys_and_the_groups_of_all_others() -> None:
    shown = CliRunner().invoke(app, ["run", "--help"], env={"COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1"}).output
    assert len(shown.rstrip().split("\n")) <= 40
    keys = shown.split("Ten keys")[1].split("Further keys")[0]
    named = [key for key in OPTIONS if re.search(rf"(^ |, ){re.escape(key)}(:|,)", keys, re.MULTILINE)]
    assert len(named) == 10
    groups = re.findall(r"\w+", shown.split("by group:")[1].split(". All")[0])
    assert groups == list(dict.fromkeys(key.partition(".")[0] for key in OPTIONS if "." in key))


RUN = {
    "init": {"clinic.de-fr.tsv": "de-fr.tsv", "court.de-fr.tsv": "pl-es.tsv"},
    "backbone show": {},
    "score": {"runs/demo-adapter-families-2022": "runs/done", "text.de": "de.txt", "mt.fr": "fr.txt", "text.fr": "fr.txt"},
    "compare": {"runs/demo-adapter-local-2022": "runs/done", "runs/demo-adapter-families-2022": "runs/done"},
    "report": {"runs/demo-adapter-families-2022": "runs/done"},
    "status": {"runs/demo-adapter-families-2022": "runs/killed"},
    "watch": {"runs/demo-adapter-families-2022": "runs/done"},
    "bundle": {},
    "corpus check": {"de-fr.tsv.gz": "de-fr.tsv"},
    "corpus convert": {"memory.tmx": "memory.tmx"},
    "corpus overlap": {"data": "."},
    "corpus split": {"de-fr.tsv.gz": "de-fr.tsv"},
    "server init": {},
    "server add": {},
    "site init": {"de-fr.tsv.gz": "de-fr.tsv", "ca.crt": "server/certificates/ca.crt"},
    "site log": {},
    "site overlap-key": {},
}
"""What is run, in this order, in one folder: command -> names of its example -> what stands for them there."""
NOT_RUN = {
    "audit leak": "trains: tests/fedlingua_lab/audit/test_command.py",
    "run": "takes a minute: tests/fedlingua/desk/cli/test_run.py",
    "suite": "takes minutes: tests/fedlingua_lab/cli/test_suite.py",
    "backbone fetch": "downloads: tests/fedlingua/desk/students/test_students.py",
    "backbone convert": "needs files of Firefox's: tests/fedlingua/desk/students/test_students.py",
    "pretrain": "takes an hour: tests/fedlingua/desk/cli/test_pretrain.py",
    "translate": "needs a trained model: tests/fedlingua/desk/translating/test_translator.py",
    "export": "needs a trained model: tests/fedlingua/desk/export",
    "serve": "does not end: tests/fedlingua/desk/cli/test_serve.py",
    "track": "needs an extra: tests/fedlingua_lab/cli/test_track.py",
    "doctor": "tells of this machine, which may lack something: tests/fedlingua/desk/cli/test_doctor.py",
    "personalize": "needs a trained model: tests/fedlingua_lab",
    "corpus prepare": "needs downloads: tests/fedlingua_lab/cli/test_prepare.py",
    "finetune ner": "trains: tests/fedlingua_lab/cli/test_finetune.py",
    "finetune pairs": "trains: tests/fedlingua_lab/cli/test_finetune.py",
    "server start": "does not end: tests/fedlingua/desk/cli/test_server.py",
    "server runs": "needs a server: tests/fedlingua/desk/cli/test_server.py",
    "server stop": "needs a server: tests/fedlingua/desk/cli/test_server.py",
    "server logs": "needs a server: tests/fedlingua/desk/cli/test_server.py",
    "site approve": "loads a backbone, and asks: tests/fedlingua/desk/cli/test_site.py",
    "site check": "loads a backbone: tests/fedlingua/desk/cli/test_site.py",
    "site start": "does not end: tests/fedlingua/desk/cli/test_site.py",
    "site export": "needs a delivery: tests/fedlingua/desk/cli/test_site.py",
    "site translate": "needs a delivery: tests/fedlingua/desk/cli/test_site.py",
}
"""Command -> why its example is only read here, and who runs it."""


def test_every_example_is_run_or_has_a_reason_not_to_be() -> None:
    assert set(COMMANDS) == set(RUN) | set(NOT_RUN), "a new command has a line in RUN, or a reason in NOT_RUN"


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process: a start takes most of a second, and tests/fedlingua/desk/cli/test_mistakes.py starts every command."""
    folder = make_workspace(tmp_path / "w")
    monkeypatch.setenv("HOME", str(folder / "home"))
    for name in ("CACHE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(folder / "home" / name))
    monkeypatch.chdir(folder)
    pairs = [line.split("\t") for line in (folder / "de-fr.tsv").read_text().splitlines()]
    for number, name in enumerate(("de.txt", "fr.txt")):
        (folder / name).write_text("".join(f"{pair[number]}\n" for pair in pairs))
    given("corpus convert de-fr.tsv --direction de-fr --to memory.tmx")
    for name, names in RUN.items():
        if name == "server add":  # it takes what a site has sent
            sent = "site init --name hospital --direction de-fr --server x:1 --tsv de-fr.tsv --authority server/certificates/ca.crt --to s"
            given(sent)
            shutil.copy(folder / "s" / "hospital.join.toml", folder)
        for example in examples(name):
            given(shlex.join(names.get(word, word) for word in shlex.split(example)[1:]))


def given(line: str) -> None:
    answered = CliRunner().invoke(app, shlex.split(line))
    assert answered.exit_code == 0, f"{line}: {answered.output} {answered.exception!r}"


def test_the_version_is_the_packages() -> None:
    shown = CliRunner().invoke(app, ["--version"])
    assert (shown.exit_code, shown.output) == (0, f"fedlingua {version('fedlingua')}\n")


def test_the_default_folder_of_a_suite_is_whole_on_80_characters() -> None:
    shown = CliRunner().invoke(app, ["suite", "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80", "NO_COLOR": "1"}).output
    assert "<folder>/<suite> in" in shown
    assert "…" not in shown
