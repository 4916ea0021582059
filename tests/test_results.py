"""The committed results hold together, and the README quotes them."""

import json
import re
from pathlib import Path

import pytest

from fedlingua.config import default_run_config, settings_from
from fedlingua.evaluation.scores import averages
from fedlingua.suites.result import rebuild

ROOT = Path(__file__).parents[1]


def suite_results(root: Path) -> list[Path]:
    """Folders of suites' results: <root>/<folder>/<suite>."""
    return sorted(file.parent for file in root.glob("*/*/suite.json"))


SUITES = suite_results(ROOT / "experiments" / "results")
RUNS = sorted(folder.parent for folder in (ROOT / "experiments" / "results").rglob("scores.json"))


@pytest.mark.parametrize("folder", RUNS, ids=lambda folder: folder.name)
def test_a_kept_run_adds_up_and_names_no_place(folder):
    run, scores = (json.loads((folder / name).read_text()) for name in ("run.json", "scores.json"))
    assert run["status"] == "completed"
    assert (run["method"], run["seed"]) == (scores["method"], scores["seed"])
    sites = scores["sites"]
    macro, micro = averages({n: e["bleu"] for n, e in sites.items()}, {n: e["sentences"] for n, e in sites.items()})
    assert scores["macro_bleu"] == pytest.approx(macro)
    assert scores["micro_bleu"] == pytest.approx(micro)
    assert not run["config"]["data-dir"]
    assert not run["config"]["run-dir"]
    settings_from({**default_run_config(), **run["config"]})


@pytest.mark.parametrize("folder", SUITES, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_a_suites_tables_are_what_its_runs_add_up_to_byte_for_byte(folder):
    assert rebuild(folder) == ((folder / "table.csv").read_text(), (folder / "table.md").read_text())


def test_results_of_suites_are_found_where_they_are_kept(tmp_path):
    for name in ("fed_mnmt/table2", "fed_mnmt/table1", "fed_mnmt/table1/runs/base-1", "phrasebook/adapter-fed-2022"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("fed_mnmt/table1", "fed_mnmt/table2"):
        (tmp_path / name / "suite.json").touch()
    assert suite_results(tmp_path) == [tmp_path / "fed_mnmt/table1", tmp_path / "fed_mnmt/table2"]


def test_every_score_in_the_readme_is_a_kept_one():
    """Table rows that begin with a method quote macro BLEU scores, to one decimal."""
    readme = (ROOT / "README.md").read_text()
    kept = {f"{score:.1f}" for folder in RUNS for score in _scores(folder)}
    rows = [line for line in readme.splitlines() if re.match(r"\| (`?)(base|adapter-\w+|model-fed)\1 \|.*\d\.\d", line)]
    assert rows
    for row in rows:
        for number in re.findall(r"(?<![\d.])\d+\.\d(?!\d)", row):
            assert number in kept, f"{number} in {row!r} is no macro score of a run under experiments/results"


def _scores(folder: Path) -> list[float]:
    scores = json.loads((folder / "scores.json").read_text())
    return [scores["macro_bleu"], scores["macro_chrf"], scores["base_macro_bleu"], scores["base_macro_chrf"]]
