"""How commands answer: words, or one JSON document; mistakes with their exit codes."""

import errno
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from typer.main import get_command

from fedlingua.common.errors import ConfigError
from fedlingua.desk.cli.app import REMOVED_COMMANDS, app
from fedlingua.desk.cli.lazy import LazyCommand
from fedlingua.desk.cli.output import FAILED, FAULT, INTERRUPTED, UNREAD, USAGE, Answer, Commands, console, run_commands
from fedlingua.settings.removed import LAST
from tests.commands import leaf_commands

EVERY = leaf_commands(app)


def test_the_overview_says_of_each_command_what_its_own_help_says() -> None:
    group = get_command(app)
    assert isinstance(group, click.Group)
    for name in group.list_commands(click.Context(group)):
        command = group.commands[name]
        assert isinstance(command, LazyCommand)
        assert " ".join((command.loaded().help or "").split()) == command.help


@pytest.mark.parametrize("name", REMOVED_COMMANDS)
def test_a_command_that_was_taken_out_says_since_when_and_what_to_use(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_commands(app, [*name.split(), "--run", "runs/done"])
    assert ended.value.code == USAGE
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert f"fedlingua {name} was taken out; {REMOVED_COMMANDS[name]}. The last version that has it is commit {LAST}" in said


@pytest.mark.parametrize("name", EVERY)
def test_every_command_answers_as_json_too(name: str) -> None:
    (option,) = (parameter for parameter in EVERY[name].params if "--format" in parameter.opts)
    assert isinstance(option.type, click.Choice)
    assert list(option.type.choices) == ["text", "json"]


@pytest.fixture
def commands() -> Commands:
    made = Commands()

    @made.command()
    def good(words: str) -> Answer:
        """Say it."""
        console().print(words)
        return {"words": words, "where": Path("a/b"), "score": math.nan, "most": [1.5, math.inf], "öäü": None}

    @made.command()
    def bad() -> Answer:
        """Cannot be done."""
        raise ConfigError("no such thing; give another", answer={"found": 3})

    @made.command()
    def broken() -> Answer:
        """A fault of the program's own."""
        raise ZeroDivisionError("words of a site")

    @made.command()
    def stopped() -> Answer:
        """Ended by Ctrl-C."""
        raise KeyboardInterrupt

    return made


def told(commands: Commands, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        run_commands(commands, arguments)
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def test_in_words_the_answer_for_programs_is_not_printed(commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(commands, capsys, "good", "hello") == (0, "hello\n", "")


@pytest.mark.parametrize("option", [["--format", "json"], ["--format=json"]])
def test_as_json_standard_output_is_one_document(
    commands: Commands, capsys: pytest.CaptureFixture[str], option: list[str]
) -> None:
    code, out, err = told(commands, capsys, "good", *option, "hello")
    assert (code, err) == (0, "hello\n")
    found = json.loads(out, parse_constant=pytest.fail)
    assert found == {"words": "hello", "where": "a/b", "score": None, "most": [1.5, None], "öäü": None}


def test_a_mistake_is_told_in_red_words_without_a_traceback(commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(commands, capsys, "bad") == (FAILED, "", "error: no such thing; give another\n")


def test_a_mistake_as_json_holds_what_was_found_before(commands: Commands, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = told(commands, capsys, "bad", "--format", "json")
    assert (code, err) == (FAILED, "error: no such thing; give another\n")
    error = {"kind": "ConfigError", "message": "no such thing; give another", "exit_code": FAILED}
    assert json.loads(out) == {"error": error, "answer": {"found": 3}}


@pytest.mark.parametrize("arguments", [["good"], ["good", "--colour", "x"], ["god", "x"], ["good", "x", "--format", "xml"]])
def test_a_command_line_that_is_wrong_is_2(commands: Commands, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    code, out, err = told(commands, capsys, *arguments)
    assert (code, out) == (USAGE, "")
    assert "Usage" in err
    if "--format" in arguments:
        return
    code, out, err = told(commands, capsys, *arguments, "--format", "json")
    error: dict[str, Any] = json.loads(out)["error"]
    assert (code, error["exit_code"], error["kind"]) == (USAGE, USAGE, "UsageError")
    assert error["message"] in err


@pytest.mark.parametrize("option", [[], ["--format", "json"]])
def test_a_fault_of_its_own_is_70_with_a_traceback(
    commands: Commands, capsys: pytest.CaptureFixture[str], option: list[str]
) -> None:
    code, out, err = told(commands, capsys, "broken", *option)
    assert code == FAULT
    assert "Traceback" in err
    assert "fault of fedlingua" in err
    if option:
        assert json.loads(out)["error"]["kind"] == "ZeroDivisionError"
    assert "words of a site" not in out


@pytest.mark.parametrize("option", [[], ["--format", "json"]])
def test_ctrl_c_is_130(commands: Commands, capsys: pytest.CaptureFixture[str], option: list[str]) -> None:
    assert told(commands, capsys, "stopped", *option)[:2] == (INTERRUPTED, "")


def test_what_a_sites_words_would_do_to_a_terminal_is_not_done(capsys: pytest.CaptureFixture[str]) -> None:
    made = Commands()

    @made.command()
    def bad() -> Answer:
        """Cannot be done."""
        raise ConfigError("[bold]x[/bold]")

    assert "[bold]x[/bold]" in told(made, capsys)[2]


@pytest.mark.parametrize(("error", "wanted"), [(FileExistsError(17, "File exists", "x.toml"), FAILED), (OSError("odd"), FAULT)])
def test_a_file_that_cannot_be_had_is_told_by_name_and_anything_else_is_a_fault(
    capsys: pytest.CaptureFixture[str], error: OSError, wanted: int
) -> None:
    made = Commands()

    @made.command()
    def bad() -> Answer:
        """Cannot be done."""
        raise error

    code, _, err = told(made, capsys)
    assert code == wanted
    assert ("x.toml: File exists; check the path" in err) == (wanted == FAILED)
    assert ("Traceback" in err) == (wanted == FAULT)


@pytest.mark.parametrize("option", [[], ["--format", "json"]])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_disk_that_takes_no_more_is_no_fault(capsys: pytest.CaptureFixture[str], number: int, option: list[str]) -> None:
    made = Commands()

    @made.command()
    def bad() -> Answer:
        """Cannot be done."""
        raise OSError(number, os.strerror(number))

    code, out, err = told(made, capsys, *option)
    assert code == FAILED
    assert err.startswith(f"error: {os.strerror(number)}; make room")
    assert not option or json.loads(out)["error"]["message"] in err


UNREAD_CODE = """
from fedlingua.desk.cli.output import Commands, console, run_commands
from fedlingua.common.errors import ConfigError
import sys
made = Commands()
@made.command()
def good():
    "Say it."
    print("plain words")
    if sys.argv[1] == "console":
        console().print("words")
    if sys.argv[1] == "mistake":
        raise ConfigError("no such thing")
    return {"a": 1}
run_commands(made, sys.argv[2:])
"""


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        ("print", UNREAD),
        ("print --format json", UNREAD),
        ("console", UNREAD),
        ("mistake", FAILED),
        ("mistake --format json", FAILED),
    ],
)
def test_output_that_nobody_reads_ends_as_by_a_signal_without_a_word(how: str, wanted: int) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    arguments = [sys.executable, "-c", UNREAD_CODE, *how.split()]
    done = subprocess.run(arguments, stdout=writes, stderr=subprocess.PIPE, text=True, env=environment, check=False, timeout=300)
    os.close(writes)
    assert done.returncode == wanted, done.stderr
    assert done.stderr == ("error: no such thing\n" if wanted == FAILED else "")
