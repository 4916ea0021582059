"""`fedlingua audit leak` measures a finished run, and writes its figures into the run's folder."""

import json
import shutil
from pathlib import Path

from typer.testing import CliRunner

from fedlingua.desk.cli.app import app
from fedlingua_lab.audit import leak as suite
from fedlingua_lab.audit.leak import Effort


def test_a_finished_run_is_audited(audited, tmp_path: Path, monkeypatch) -> None:
    run = tmp_path / "run"
    shutil.copytree(audited.directory, run)
    monkeypatch.setattr(
        suite, "Effort", lambda: Effort(trials=2, single=2, among=6, canaries=1, alternatives=3, rounds=1, pool=8)
    )
    shown = CliRunner().invoke(app, ["audit", "leak", str(run), "--site", "court"], env={"COLUMNS": "160"})
    assert shown.exit_code == 0, shown.output
    assert "plain: membership" in shown.output
    assert "sentences by subspace" in shown.output
    about = json.loads((run / "leak.json").read_text())
    assert (about["site"], about["round"]) == ("court", 1)
    assert {each["protection"] for each in about["figures"]} == {
        "plain",
        "secure sum, 4 sites",
        "DP, epsilon 8",
        "DP, epsilon 2",
    }
    assert [path.name for path in run.iterdir() if "leak" in path.name] == ["leak.json"]
