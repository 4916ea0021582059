"""`fedlingua export`, `fedlingua site export` and `fedlingua translate --adapter`."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from typer.testing import CliRunner

from fedlingua.desk.cli.app import app
from fedlingua.desk.translating.models import TrainedModel
from fedlingua.desk.translating.translator import Translator
from tests.fedlingua.conftest import RunOf

TEXT = "Guten Morgen.\n\nDer Arzt liest ein Buch.\n"


def answered(*arguments: Any, text: str = "") -> Any:
    """What a command answers programs."""
    done = CliRunner().invoke(app, [*map(str, arguments), "--format", "json"], input=text)
    assert done.exit_code == 0, done.output + repr(done.exception)
    return json.loads(done.stdout)


def refused(*arguments: Any) -> str:
    """The message of a mistake."""
    done = CliRunner().invoke(app, [*map(str, arguments)])
    assert done.exit_code != 0, done.output
    return f"{done.exception} {done.output}"


def translated(*arguments: Any) -> str:
    done = CliRunner().invoke(app, ["translate", *map(str, arguments)], input=TEXT)
    assert done.exit_code == 0, done.output + repr(done.exception)
    return done.stdout


@pytest.mark.parametrize(
    ("kind", "form"), [("lora", "peft"), ("adapters", "adapter"), ("full", "transformers"), ("controllers", "transformers")]
)
def test_without_a_form_it_takes_the_one_that_fits(
    run_of: RunOf, loud_backbone: Path, tmp_path: Path, kind: str, form: str
) -> None:
    told = answered("export", "--run", run_of(kind), "--site", "hospital", "--to", tmp_path / "out")
    assert told["form"] == form
    assert told["directory"] == str(tmp_path / "out")
    assert told["files"] == sorted(file.name for file in (tmp_path / "out").iterdir())
    assert told["bytes"] == sum(file.stat().st_size for file in (tmp_path / "out").iterdir())
    assert told["backbone"]["directory"] == str(loud_backbone)
    assert (told["site"], told["direction"]) == ("hospital", "de-fr")


def test_an_exported_adapter_translates_as_its_run_line_for_line(run_of: RunOf, loud_backbone: Path, tmp_path: Path) -> None:
    run = run_of("adapters")
    answered("export", "--run", run, "--site", "hospital", "--to", tmp_path / "out")
    found = translated("--adapter", tmp_path / "out", "--backbone", loud_backbone)
    assert found == translated("--run", run, "--site", "hospital")
    assert found.count("\n") == TEXT.count("\n")
    where = refused("translate", "--adapter", tmp_path / "out")
    assert "backbone = 'loud'" in where
    for wrong in (["--run", run], ["--site", "hospital"], ["--direction", "de-fr"]):
        assert "Usage" in refused("translate", "--adapter", tmp_path / "out", *wrong)
    assert "Usage" in refused("translate", "--run", run, "--site", "hospital", "--backbone", loud_backbone)
    assert "Usage" in refused("translate")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "export needs --site or --direction; the run's sites are hospital, court"),
        (["--site", "hospital", "--direction", "de-fr"], "export got --site and --direction; leave one out"),
        (["--site", "hospitl"], "has no site 'hospitl'; did you mean 'hospital'?; it has hospital, court"),
        (["--direction", "defr"], "is not a direction; write source-target"),
        (["--direction", "zh-de"], "no site has source zh or another"),
        (["--site", "hospital", "--form", "onnx"], "--form 'onnx' is not known"),
    ],
)
def test_a_mistake_leaves_nothing_behind(run_of: RunOf, tmp_path: Path, arguments: list[str], told: str) -> None:
    assert told in refused("export", "--run", run_of("lora"), "--to", tmp_path / "out", *arguments)
    assert not list(tmp_path.iterdir())


def test_a_run_that_is_not_done_or_none_is_refused(run_of: RunOf, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(run_of("lora"), run)
    about = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(about | {"status": "interrupted"}))
    for site in ("--site", "hospital"), ("--direction", "de-fr"):
        assert "the run is interrupted, not completed" in refused("export", "--run", run, *site, "--to", tmp_path / "out")
    assert "is not a run folder" in refused("export", "--run", tmp_path, "--site", "hospital", "--to", tmp_path / "out")


def test_an_earlier_export_goes_only_by_force(run_of: RunOf, tmp_path: Path) -> None:
    arguments = ["export", "--run", run_of("lora"), "--site", "hospital", "--to", tmp_path / "out"]
    answered(*arguments)
    assert "already exists" in refused(*arguments)
    assert answered(*arguments, "--form", "transformers", "--force")["form"] == "transformers"


@pytest.fixture
def site(run_of: RunOf, loud_backbone: Path, tmp_path: Path) -> Path:
    """A deployed site's folder, to which a run has delivered LoRA."""
    folder = tmp_path / "site"
    folder.mkdir()
    told = {
        "site": [{"name": "hospital", "direction": "de-fr", "phrasebook": "hospital", "sentences": 40}],
        "server": {"address": "127.0.0.1:1", "insecure": True},
        "node": {"state": "state", "home": "flower"},
        "backbones": {"org/loud": str(loud_backbone)},
    }
    (folder / "site.toml").write_text(tomli_w.dumps(told))
    shutil.copytree(run_of("lora") / "sites" / "hospital", folder / "state" / "runs" / "77" / "hospital")
    return folder


def test_a_deployed_site_exports_what_was_delivered_to_it(site: Path, loud_backbone: Path, tmp_path: Path) -> None:
    told = answered("site", "export", "--site", site, "--to", tmp_path / "out")
    assert told["form"] == "peft"
    assert told["backbone"]["name"] == "org/loud", "as the runs call it, not as the path"
    assert json.loads((tmp_path / "out" / "adapter_config.json").read_text())["base_model_name_or_path"] == "org/loud"
    assert "On the site's own test text, " in (tmp_path / "out" / "README.md").read_text()
    answered("site", "export", "--site", site, "--to", tmp_path / "own", "--form", "adapter", "--run", "77")
    own = Translator(TrainedModel.of_delivery(site / "state" / "runs" / "77" / "hospital")).translate(TEXT.split("\n"))
    assert translated("--adapter", tmp_path / "own", "--backbone", loud_backbone).split("\n") == own


def test_a_site_without_a_delivery_has_nothing_to_export(site: Path, tmp_path: Path) -> None:
    assert "nothing was delivered here" in refused("site", "export", "--site", site, "--to", tmp_path / "out", "--run", "78")
    shutil.rmtree(site / "state")
    assert "nothing was delivered to hospital yet" in refused("site", "export", "--site", site, "--to", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_is_wrong_with_the_command_itself_is_told_without_loading_torch() -> None:
    code = "import sys, fedlingua.desk.cli.export, fedlingua.desk.export.forms; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=300).returncode == 0
