"""`fedlingua init`: which site and direction every kind of file becomes, and that a run takes what is written."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedlingua.common.errors import BackboneError, CorpusError
from fedlingua.common.files import CHECKOUT, read_toml
from fedlingua.common.languages import Direction
from fedlingua.corpora.registers import read_register
from fedlingua.desk.cli.init import init
from fedlingua.desk.cli.run import check_experiment
from fedlingua.settings.kinds import flat_keys
from tests.pages import ROOT, blocks

SENTENCES = [(f"the cat has {n} mice", f"o gato tem {n} ratos") for n in range(60)]
TSV = "".join(f"{source}\t{target}\n" for source, target in SENTENCES)
EN, PT = ("".join(f"{pair[side]}\n" for pair in SENTENCES) for side in (0, 1))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(**texts: str) -> None:
    for name, text in texts.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)


def sites(*named: str, direction: str = "") -> list[dict[str, Any]]:
    init("demo", [Path(name) for name in named], direction, Path("new"))
    return list(read_toml(Path("new/federation.toml"))["site"])


def test_names_of_files_say_site_and_direction() -> None:
    put(
        **{
            "text/clínica.en-pt.tsv": TSV,
            "text/court-en-pt.tsv": TSV,
            "text/mill.en--pt-BR.tsv": TSV,
            "text/README.md": "words",
            "text/.x.tsv": "words",
        }
    )
    assert sites("text") == [
        {"name": "clinica", "direction": "en-pt", "tsv": "../text/clínica.en-pt.tsv"},
        {"name": "court", "direction": "en-pt", "tsv": "../text/court-en-pt.tsv"},
        {"name": "mill", "direction": "en--pt-BR", "tsv": "../text/mill.en--pt-BR.tsv"},
    ]


def test_two_files_of_one_language_each_are_a_site_and_the_option_says_which_way() -> None:
    put(**{"a/x.en": EN, "a/x.pt": PT, "b/mail.pt.txt": PT, "b/mail.en.txt": EN, "b/notes.txt": EN})
    assert sites("a/x.en", "a/x.pt", "b", direction="pt-en") == [
        {"name": "x", "direction": "pt-en", "nway": "../a/x.{}"},
        {"name": "mail", "direction": "pt-en", "nway": "../b/mail.{}.txt"},
    ]


def test_files_of_one_name_are_named_by_their_folders_too_and_those_without_a_name_by_their_direction() -> None:
    put(**{"a/all.en-pt.tsv": TSV, "b/all.en-pt.tsv": TSV, "c/en-pt.tsv": TSV})
    assert [site["name"] for site in sites("a", "b", "c")] == ["a-all", "b-all", "en-pt"]


def test_without_files_it_is_the_text_of_the_current_folder_and_a_run_takes_what_is_written() -> None:
    put(**{"x.en-pt.tsv": TSV, "y.en-pt.tsv": TSV})
    init("demo")
    settings, federation = check_experiment(Path("experiment.toml"), None, None, None)
    assert (settings.backbone, [site.name for site in federation.sites]) == ("demo", ["x", "y"])
    assert settings.rounds == read_toml(CHECKOUT / "experiments" / "demo.toml")["rounds"]


def test_a_student_has_the_settings_that_students_were_tried_with_and_others_the_papers_rate() -> None:
    put(
        **{
            "x.en-pt.tsv": TSV,
            "student/config.json": '{"model_type": "marian-ssru"}',
            "other/config.json": '{"model_type": "m2m_100"}',
        }
    )
    for name in ("student", "other"):
        init(str(Path(name).resolve()), to=Path(f"of_{name}"))
    own, tried = (flat_keys(read_toml(file)) for file in (Path("of_student/experiment.toml"), CHECKOUT / "experiments/real.toml"))
    assert own == {**tried, "federation": "federation.toml", "backbone": str(Path("student").resolve())}
    assert read_toml(Path("of_other/experiment.toml"))["learning-rate"] == 0


def test_nothing_is_written_where_the_text_is_refused() -> None:
    put(**{"x.en-pt.tsv": "".join(TSV.splitlines(keepends=True)[:20])})
    with pytest.raises(CorpusError, match="site x: 20 pairs; wanted 50 or more"):
        init("demo", to=Path("new"))
    with pytest.raises(BackboneError, match="nope"):
        init("nope")
    assert [path.name for path in Path().iterdir()] == ["x.en-pt.tsv"]


OWN = [
    (page, code)
    for page in ("README.md", "docs/guides/corpora.md")
    for _, code in blocks(ROOT / page)
    if "fedlingua init" in code
]
"""The blocks of these pages that say how one's own text comes to a table."""


@pytest.mark.timeout(900)
def test_the_pages_way_from_ones_own_text_to_a_table(here: Path) -> None:
    """As it is shown, with two small files, and the demo's backbone in the place of the student, which is downloaded."""
    (shown,) = {code for _, code in OWN}
    texts = [
        read_register({"phrasebook": name, "sentences": 80}, Direction("de", "fr"), name).read() for name in ("hospital", "court")
    ]
    for name, text in zip(("clinic", "court"), texts, strict=True):
        put(**{f"text/{name}.de-fr.tsv": "".join(f"{pair.source}\t{pair.target}\n" for pair in text)})
    fetch, *rest = [shlex.split(line, comments=True) for line in shown.splitlines() if line.startswith("fedlingua")]
    assert fetch[:3] == ["fedlingua", "backbone", "fetch"]
    small = ["--set", "rounds=1", "--set", "evaluate-every=1", "--set", "keep.choose=false", "--set", "max-decode-tokens=6"]
    for name, *words in rest:
        given = ["demo" if word == "student-en-pt" else word for word in words] + (small if words[0] == "run" else [])
        done = subprocess.run([Path(sys.executable).with_name(name), *given], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "clinic" in done.stdout
    (scores,) = Path("runs").glob("*/scores.json")
    assert {"clinic", "court"} == set(json.loads(scores.read_text())["sites"])
