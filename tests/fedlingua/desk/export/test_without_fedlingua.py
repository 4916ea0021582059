"""What a demo run with LoRA has trained, used by its card's and the guide's code in a process that cannot import this project."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedlingua.common.files import APP_DIR
from fedlingua.desk.export.model import export_model
from fedlingua.desk.translating.models import RunModels
from fedlingua.desk.translating.translator import Translator
from fedlingua.settings.experiment import default_run_config
from tests.federations import TWO_SITES
from tests.in_process import run
from tests.translated_runs import translator_of_site

BLOCKED = """
import importlib.util, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"fedlingua", "clients", "strategies", "flwr", "ray"}:
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Blocked())
for name in ("fedlingua", "clients", "strategies"):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        continue
    sys.exit(f"{name} can be imported")

import torch

torch.set_num_threads(1)
"""


@pytest.fixture(scope="module")
def demo_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sites, a round, LoRA on the demo backbone."""
    place = tmp_path_factory.mktemp("demo")
    (place / "two.toml").write_text(TWO_SITES)
    changes = {"tensor-set": "lora", "rounds": 1, "federation": str(place / "two.toml"), "score-split": "dev"}
    run({**default_run_config(), "keep.choose": False, "send.code": "none", **changes}, place / "run")
    return place / "run"


@pytest.fixture(scope="module")
def own(demo_run: Path) -> Translator:
    return translator_of_site(demo_run, "hospital")


@pytest.fixture(scope="module")
def sentences(demo_run: Path) -> list[str]:
    rows = (demo_run / "sites" / "hospital" / "translations.tsv").read_text().rstrip("\n").split("\n")[1:]
    return [row.split("\t")[0] for row in rows]


def printed(code: str, folder: Path) -> list[str]:
    """What a program prints that runs by itself, in the folder above the model's."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", BLOCKED + code], cwd=folder.parent, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.rstrip("\n").split("\n")


def python_of(markdown: str) -> str:
    (code,) = re.findall(r'^```python(?: title="without fedlingua")?\n(.*?)^```', markdown, re.MULTILINE | re.DOTALL)
    return str(code)


@pytest.mark.parametrize("form", ["peft", "transformers"])
def test_the_cards_code_translates_as_the_site_to_the_character(
    demo_run: Path, own: Translator, sentences: list[str], tmp_path: Path, form: str
) -> None:
    done = export_model(RunModels(demo_run).of_site("hospital"), tmp_path / "model", form, demo_run)
    code = python_of((done.directory / "README.md").read_text())
    for placeholder, put in (
        ('"this/folder"', '"model"'),
        ('"path/to/demo"', repr(str(done.backbone))),
        ('["..."]', repr(sentences)),
    ):
        code = code.replace(placeholder, put)
    assert "..." not in code
    wanted = own.translate(sentences)
    assert len(set(wanted)) > len(wanted) / 2, "a model that says something"
    assert printed(code, done.directory) == wanted


def test_the_guides_code_translates_with_what_was_taken_away(demo_run: Path, own: Translator, tmp_path: Path) -> None:
    section = (APP_DIR / "docs" / "guides" / "translating.md").read_text().split("## Export\n")[1].split("\n## ")[0]
    code = python_of(section)
    folder, said = re.search(r'folder = "(.*?)"', code), re.search(r'tokenizer\(\["(.*?)"\]', code)
    assert folder
    assert said
    assert f"--site hospital --to {folder[1]} --form transformers" in section, "the command that made the folder"
    done = export_model(RunModels(demo_run).of_site("hospital"), tmp_path / folder[1], "transformers", demo_run)
    assert printed(code, done.directory) == own.translate([said[1]])
