"""The audit log: whatever is changed, taken out or cut off is named by its line."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedlingua.consent import audit
from fedlingua.consent.audit import HEAD, LOG, append, read_head
from fedlingua.desk.deployment.audited import verify


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Of five lines."""
    for number in range(5):
        append(tmp_path / "state", {"asked": "train", "round": number})
    return tmp_path / "state"


def test_a_whole_log_reads_back_and_its_owner_alone_can_read_it(state: Path) -> None:
    lines, broken = verify(state)
    assert broken == ""
    assert [(line["line"], line["round"]) for line in lines] == [(n + 1, n) for n in range(5)]
    assert (state / LOG).stat().st_mode & 0o777 == 0o600
    assert state.stat().st_mode & 0o777 == 0o700
    assert read_head(state)["lines"] == 5


def test_no_log_is_whole(tmp_path: Path) -> None:
    assert verify(tmp_path) == ([], "")


def edited(state: Path, change: Callable[[list[str]], list[str]]) -> str:
    lines = (state / LOG).read_text().splitlines()
    (state / LOG).write_text("".join(f"{line}\n" for line in change(lines)))
    return verify(state)[1]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda lines: [*lines[:2], lines[2].replace('"round": 2', '"round": 9'), *lines[3:]], "line 3 has been changed"),
        (lambda lines: [lines[0].replace("train", "probe"), *lines[1:]], "line 1 has been changed"),
        (lambda lines: [*lines[:4], lines[4].replace("train", "probe")], "line 5 has been changed"),
        (lambda lines: [*lines[:1], *lines[2:]], "line 2 is missing"),
        (lambda lines: lines[1:], "line 1 is missing"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], "line 1 is missing"),
        (lambda lines: lines[:3], "line 4 and all after it are missing"),
        (lambda lines: [], "line 1 and all after it are missing"),
        (lambda lines: [*lines[:3], lines[3][:20], lines[4]], "line 4 has been changed"),
        (lambda lines: [*lines, "[]"], "line 6 is missing or incomplete"),
    ],
)
def test_the_first_broken_line_is_named(state: Path, change: Callable[[list[str]], list[str]], told: str) -> None:
    assert edited(state, change).startswith(told)


def test_a_cut_is_not_healed_by_what_is_written_later(state: Path) -> None:
    edited(state, lambda lines: lines[:3])
    append(state, {"asked": "evaluate"})
    assert verify(state)[1].startswith("line 4 is missing")


def test_a_log_without_its_head_is_not_whole(state: Path) -> None:
    (state / HEAD).unlink()
    assert "audit.head has another hash, or is missing" in verify(state)[1]


def test_a_line_whose_process_died_before_the_head_is_in_the_chain(state: Path) -> None:
    head = (state / HEAD).read_text()
    append(state, {"asked": "evaluate"})
    (state / HEAD).write_text(head)
    assert verify(state)[1] == ""
    append(state, {"asked": "finish"})
    assert (len(verify(state)[0]), verify(state)[1]) == (7, "")


def test_a_line_that_was_broken_off_is_in_the_chain_and_what_comes_after_is_checked(state: Path) -> None:
    with (state / LOG).open("a") as log:
        log.write('{"line": 6, "ti')
    append(state, {"asked": "evaluate"})
    assert json.loads((state / LOG).read_text().splitlines()[-1])["line"] == 7
    lines, broken = verify(state)
    assert ([line.get("broken_off", False) for line in lines], broken) == ([False] * 5 + [True, False], "")
    assert edited(state, lambda lines: [*lines[:5], lines[5][:9], lines[6]]).startswith("line 6 has been changed")
    assert edited(state, lambda lines: [*lines[:6], lines[6].replace("evaluate", "train")]).startswith("line")


def test_processes_that_write_at_once_leave_one_chain(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from fedlingua.consent.audit import append\n"
    code += "for n in range(20): append(Path(sys.argv[1]), {'n': n})"
    running = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(3)]
    assert [process.wait(timeout=120) for process in running] == [0, 0, 0]
    lines, broken = verify(tmp_path)
    assert (len(lines), broken) == (60, "")


def test_a_log_that_cannot_be_written_is_an_error(state: Path) -> None:
    (state / LOG).unlink()
    (state / LOG).mkdir()
    with pytest.raises(OSError, match="directory"):
        append(state, {})


def test_a_line_that_a_full_disk_cuts_is_an_error_and_leaves_the_log_whole(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (state / LOG).read_bytes()

    class Full:
        def __init__(self, file: Any) -> None:
            self.file = file

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

        def __enter__(self) -> "Full":
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def write(self, line: bytes) -> int:
            return int(self.file.write(line[:9]))

    monkeypatch.setattr(audit, "open", lambda *given, **how: Full(open(*given, **how)), raising=False)  # noqa: SIM115 closed by it
    with pytest.raises(OSError, match="No space left on device"):
        append(state, {"asked": "evaluate"})
    monkeypatch.undo()
    assert (state / LOG).read_bytes() == before
    append(state, {"asked": "finish"})
    assert verify(state)[1] == ""


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"lines": 1}'])
def test_a_head_that_cannot_be_read_is_told(state: Path, content: str) -> None:
    (state / HEAD).write_text(content)
    assert verify(state)[1].startswith("audit.head cannot be read")
