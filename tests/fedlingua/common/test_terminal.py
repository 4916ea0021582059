"""What others wrote steers no terminal, whichever command shows it."""

import io
import json
import re
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

from fedlingua.common.files import APP_DIR
from fedlingua.common.terminal import one_line, printable, printable_json
from fedlingua.desk.cli.output import AnsweringConsole, print_json
from fedlingua.desk.cli.status import status

HOSTILE = {
    "colour": "a\x1b[31mb",
    "cursor, private": "a\x1b[?25lb",
    "clear the screen": "a\x1b[2J\x1b[Hb",
    "C1's own CSI": "a\x9b2Jb",
    "title, BEL": "a\x1b]0;owned\x07b",
    "link, ST": "a\x1b]8;;http://elsewhere\x1b\\b\x1b]8;;\x1b\\",
    "clipboard, C1": "a\x9d52;c;cm0gLXJm\x9cb",
    "device control": "a\x1bPq#0\x1b\\b",
    "back to the line's beginning": "\ra\b\x7fb\r",
    "text turned about": "a\u202eb\u2066\u2069",
    "half a character": "a\ud800b",
}
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_sequences_go_and_words_stay(text: str) -> None:
    assert printable(text) == "ab"
    assert not STEERING.search(one_line(text))


def test_an_unfinished_sequence_hides_nothing_that_follows_it() -> None:
    assert printable("court: \x1b]0;\nschool: failed\x07") == "court: ]0;\nschool: failed"
    assert printable("one\n\ttwo, مرحبا\u200f, नमस्\u200dते") == "one\n\ttwo, مرحبا\u200f, नमस्\u200dते"


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("terminal", [True, False])
def test_a_console_shows_no_sequence_and_no_markup(text: str, terminal: bool) -> None:
    out = io.StringIO()
    console = AnsweringConsole(file=out, force_terminal=terminal, color_system=None, width=100)
    console.print(f"{text} [red]x[/red] :warning:")
    console.print(Text(f"{text} [red]x[/red]"))
    table = Table("[bold]site", title=f"{text} [red]x[/red]")
    table.add_row(f"{text} [red]x[/red]")
    table.add_row(Text(text))
    console.print(table)
    shown = out.getvalue()
    assert not STEERING.search(shown)
    assert shown.count("ab [red]x[/red]") >= 3
    assert shown.count("[red]x[/red]") == 4
    assert ":warning:" in shown
    assert "[bold]site" in shown


def test_json_escapes_what_would_steer(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"reason": list(HOSTILE.values())})
    printed = capsys.readouterr().out
    assert not STEERING.search(printed)
    assert json.loads(printed) == {"reason": list(HOSTILE.values())}
    assert printable_json('"é\u200d"') == '"é\u200d"'


def test_status_shows_a_hostile_run_folder_as_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = "\x1b[2J[red]gone[/red]\x9b1A\u202e\nschool: fine"
    (tmp_path / "run.json").write_text(json.dumps({"name": "a\x1b]0;x\x07", "status": "failed", "reason": reason}))
    (tmp_path / "sites.json").write_text(json.dumps({"co\x1b[31murt [b]": {}}))
    event = {"event": "failure", "site": "co\x1b[31murt [b]", "round": 1, "phase": "tr\x1b[1main", "kind": "", "reason": reason}
    (tmp_path / "progress.jsonl").write_text(json.dumps(event) + "\n")
    monkeypatch.setenv("COLUMNS", "200")
    status(tmp_path)
    shown = capsys.readouterr().out
    assert not STEERING.search(shown)
    assert "[red]gone[/red]" in shown.split("\n")[0]
    assert "school: fine" in shown.split("\n")[0]
    assert "court [b]" in shown
    assert "train" in shown


def test_every_command_prints_by_the_one_console() -> None:
    own = re.compile(r"\bConsole\(|typer\.echo|click\.echo|rich import print")
    files = (APP_DIR / "src/fedlingua").rglob("*.py")
    found = {file.name: own.findall(file.read_text(encoding="utf-8")) for file in files}
    assert {name: calls for name, calls in found.items() if calls} == {}
