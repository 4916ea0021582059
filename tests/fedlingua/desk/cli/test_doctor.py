"""`fedlingua doctor` as it is called: lines, JSON, exit codes, and how little it loads."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedlingua.common.errors import RunError
from fedlingua.desk.check_result import CheckResult
from fedlingua.desk.cli import doctor
from fedlingua.desk.cli.app import app
from fedlingua.desk.cli.output import run_commands


def called(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        run_commands(app, ["doctor", *arguments])
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def test_lines_and_the_exit_code_of_what_is_found(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = [CheckResult("python", True, "3.11.7"), CheckResult("extra [x]", True, "worth a look", remark=True)]
    monkeypatch.setattr(doctor, "check_machine", lambda: iter(found))
    assert called(capsys) == (0, "ok    python: 3.11.7\nnote  extra [x]: worth a look\n", "")
    found.append(CheckResult("disk", False, "make room"))
    code, out, err = called(capsys)
    assert (code, out.splitlines()[-1]) == (1, "wrong disk: make room")
    assert "1 of 3 checks failed" in err


def test_as_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "check_machine", lambda: iter([CheckResult("disk", False, "make room")]))
    code, out, err = called(capsys, "--format", "json")
    assert code == 1
    assert json.loads(out)["answer"] == {"checks": [{"what": "disk", "good": False, "note": False, "told": "make room"}]}
    assert "wrong disk: make room" in err


def test_a_missing_program_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> str:
        raise RunError(f"The command `{name}` is not installed")

    monkeypatch.setattr(doctor, "program", none)
    assert CheckResult("Flower", False, "The command `flwr` is not installed") in list(doctor.check_machine())


def test_it_loads_no_torch_changes_nothing_and_asks_no_network(tmp_path: Path) -> None:
    """In a home of its own, with every connection refused."""
    code = """
import socket, sys
def refused(*arguments):
    raise AssertionError("a connection")
socket.socket.connect = refused
from fedlingua.desk.cli.app import main
try:
    main()
finally:
    from fedlingua.desk.doctor import machine
    assert "torch" not in sys.modules or machine.torch_build()[1], "torch was loaded"
"""
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("XDG_", "HF_"))},
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "HOME": str(tmp_path / "home"),
        "TMPDIR": str(tmp_path),
    }
    (tmp_path / "home").mkdir()
    command = [sys.executable, "-B", "-c", code, "doctor", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    answer = json.loads(done.stdout)
    checks = {each["what"]: each for each in answer.get("checks") or answer["answer"]["checks"]}
    assert {"python", "packages", "GPU", "memory", "Flower", "Ray", "COMET", "extra mlflow"} <= set(checks)
    assert checks["packages"]["good"], done.stdout
    assert checks["COMET"]["note"]
    assert [path.name for path in tmp_path.rglob("*")] == ["home"]
