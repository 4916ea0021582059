"""Runs beside each other: what is refused, what differs, and whether joining helps; worked out by hand on small runs."""

import json
from pathlib import Path
from statistics import stdev

import pytest
from typer.testing import CliRunner

from fedlingua.common.errors import ConfigError, RunError
from fedlingua.desk.cli.app import app
from fedlingua.desk.report.keep import read_kept_runs, run_line, write_kept_runs
from fedlingua.evaluation.bootstrap import draws
from fedlingua.evaluation.text_metrics import TEXT_METRICS
from fedlingua_lab.comparison.compare import compare
from fedlingua_lab.comparison.differences import paired
from fedlingua_lab.comparison.runs import Fairness, read_runs
from fedlingua_lab.pages.comparison_page import render_comparison
from tests.translated_runs import make_run


@pytest.fixture
def runs(tmp_path):
    return [
        make_run(tmp_path / "local", "adapter-local", {"a": 1, "b": 0}),
        make_run(tmp_path / "fed", "adapter-fed", {"a": 0, "b": 2}),
    ]


def test_every_site_differs_as_its_sentences_do(runs):
    found = compare(read_runs(runs), "", 200, 0)
    assert found.metric.key == "bleu"
    (beside,) = found.beside
    for site in ("a", "b"):
        first, second = ((json.loads((run / "scores.json").read_text()))["sites"][site]["bleu"] for run in runs)
        assert found.scores[site] == [first, second]
        assert beside.sites[site].value == pytest.approx(second - first)
    text = read_runs(runs)[0].texts["a"]
    other = read_runs(runs)[1].texts["a"]
    bleu = TEXT_METRICS["bleu"]
    assert beside.sites["a"] == paired(bleu.count(text), bleu.count(other), bleu.score, draws(4, 200))
    assert beside.macro.value == pytest.approx(sum(one.value for one in beside.sites.values()) / 2)
    assert beside.pooled is not None
    assert beside.macro.low < beside.macro.value < beside.macro.high


def test_joining_is_measured_against_training_alone(runs):
    local, fed = compare(read_runs(runs), "", 40, 0).fairness
    assert fed.worst_site == "b"
    assert fed.best == pytest.approx(100.0)
    assert fed.spread == pytest.approx(fed.best - fed.worst)
    assert fed.gains["a"] > 0 > fed.gains["b"]
    assert fed.left_behind == ["b"]
    assert fed.gain == pytest.approx((fed.gains["a"] + fed.gains["b"]) / 2)
    assert local.gains == {}
    assert local.worst_site == "a"


def test_sentences_that_differ_most_come_first(runs):
    found = compare(read_runs(runs), "", 40, 2).sentences
    assert [one.site for one in found] == ["a", "a", "b", "b"]
    assert abs(found[0].gain) >= abs(found[1].gain) > 0
    assert found[0].gain > 0 > found[2].gain
    assert found[0].second == found[0].reference != found[0].first


def test_a_run_is_measured_against_own_models_of_its_seed(tmp_path):
    folders = [
        make_run(tmp_path / f"{method}-{seed}", method, {"a": seed % 3, "b": 1}, seed)
        for method in ("adapter-local", "adapter-fed")
        for seed in (2022, 2023)
    ]
    found = compare(read_runs(folders), "", 40, 0)
    assert [fair.gain for fair in found.fairness] == [None, None, 0.0, 0.0]
    local, fed = found.over_seeds
    assert (local.method, local.seeds, local.gain) == ("adapter-local", (2022, 2023), None)
    means = [sum(found.scores[site][place] for site in ("a", "b")) / 2 for place in (2, 3)]
    assert fed.macro == (pytest.approx(sum(means) / 2), pytest.approx(stdev(means)))
    assert fed.gain == (0.0, 0.0)


def test_without_translations_scores_are_compared_as_they_are(tmp_path):
    folders = [
        make_run(tmp_path / name, "adapter-fed", {"a": words, "b": 1}, texts=False) for name, words in (("x", 0), ("y", 1))
    ]
    found = compare(read_runs(folders), "", 40, 3)
    assert found.beside[0].sites["a"].value < 0
    assert found.beside[0].macro.p is None
    assert found.beside[0].pooled is None
    assert list(found.sentences) == []


def test_runs_of_one_name_are_told_apart(tmp_path):
    folders = [make_run(tmp_path / place / "run", "adapter-fed", {"a": 0}) for place in ("x", "y")]
    assert [run.name for run in read_runs(folders)] == ["run", "run (2)"]


def changed(folder: Path, site: str, **changes: object) -> Path:
    scores = json.loads((folder / "scores.json").read_text())
    scores["sites"][site] |= changes
    (folder / "scores.json").write_text(json.dumps(scores))
    return folder


def test_runs_of_other_test_text_are_refused_with_site_and_reason(tmp_path, runs):
    with pytest.raises(RunError, match=r"local and fed were scored on different text at site b: sentences 4 and 5"):
        read_runs([runs[0], changed(runs[1], "b", sentences=5)])
    changed(runs[1], "b", sentences=4)
    file = runs[1] / "sites" / "a" / "translations.tsv"
    file.write_text(file.read_text().replace("le chat est sur le tapis\tbase", "un chien\tbase"))
    with pytest.raises(RunError, match=r"at site a: 1 of 4 sentences differ; compare runs of one federation file"):
        read_runs(runs)
    with pytest.raises(RunError, match="different text at site a: direction"):
        read_runs([runs[0], changed(runs[1], "a", direction="de-es")])
    alone = [make_run(tmp_path / f"one-{site}", "adapter-fed", {site: 0}) for site in ("a", "b")]
    with pytest.raises(RunError, match=r"have no site in common: a; b$"):
        read_runs(alone)
    scores = json.loads((alone[0] / "scores.json").read_text())
    (alone[0] / "scores.json").write_text(json.dumps({**scores, "sites": {"all sites": scores["sites"]["a"]}}))
    with pytest.raises(RunError, match=r"in common: all sites; b; privacy.scores = 'sites' shows those of a secure sum"):
        read_runs(alone)


def test_what_is_no_finished_run_is_refused(tmp_path, runs):
    with pytest.raises(RunError, match="is not a run folder"):
        read_runs([runs[0], tmp_path / "nowhere"])
    half = make_run(tmp_path / "half", "adapter-fed", {"a": 0}, status="running")
    with pytest.raises(RunError, match=r"the run is running, not completed; it is scored at its end: .* fedlingua run --resume"):
        read_runs([runs[0], half])
    with pytest.raises(ConfigError, match=r"there is no metric 'blue'; did you mean 'bleu'"):
        compare(read_runs(runs), "blue", 40, 0)
    with pytest.raises(RunError, match=r"local has no TER of a, b; measure it: fedlingua score --run FOLDER --metric ter"):
        compare(read_runs(runs), "ter", 40, 0)


def test_what_runs_lack_is_measured_by_a_command_that_measures_it(runs: list[Path]) -> None:
    with pytest.raises(RunError, match=r"no length ratio of a, b; measure it: .* --metric length-ratio$"):
        compare(read_runs(runs), "length-ratio", 40, 0)
    with pytest.raises(RunError, match=r"no perplexity of a, b; its task is scored by bleu, chrf, .*, comet$"):
        compare(read_runs(runs), "perplexity", 40, 0)


def test_a_kept_run_is_compared_as_its_folder_is(runs: list[Path], tmp_path: Path) -> None:
    """RESULT/METHOD-SEED names a line of the result's runs.jsonl; only the sentences stay with the folder."""
    (tmp_path / "result").mkdir()
    write_kept_runs(tmp_path / "result", map(run_line, runs))
    names = list(read_kept_runs(tmp_path / "result"))
    kept = read_runs([tmp_path / "result" / name for name in names])
    assert [run.scores for run in kept] == [json.loads((runs[1 - at] / "scores.json").read_text()) for at in (0, 1)]
    assert [run.texts for run in kept] == [{}, {}]
    with pytest.raises(RunError, match="adapter-nobody-1"):
        read_runs([tmp_path / "result" / "adapter-nobody-1"])


def test_of_summed_scores_the_mean_is_the_one_that_sites_made(tmp_path: Path) -> None:
    """The only line has the score of the pooled text, which is another number."""
    folders = [make_run(tmp_path / name, name, {"a": wrong}) for name, wrong in (("adapter-fed", 0), ("adapter-families", 2))]
    for folder, macro in zip(folders, (30.0, 25.0), strict=True):
        scores = json.loads((folder / "scores.json").read_text())
        (folder / "scores.json").write_text(
            json.dumps({**scores, "sites": {"all sites": scores["sites"]["a"]}, "macro_bleu": macro})
        )
    found = compare(read_runs(folders), "", 40, 0)
    assert found.beside[0].macro.value == pytest.approx(-5.0)
    assert [run.macro("bleu", found.scores) for run in found.runs] == [30.0, 25.0]
    assert found.fairness == [Fairness("", None, None, None, {})] * 2, "what all sites have together is no worst site"
    page = " ".join(render_comparison(found).split())
    assert "adapter-families: 5.0 BLEU below adapter-fed" in page
    assert '<td class="name">–</td>' in page
    shown = CliRunner().invoke(app, ["compare", *map(str, folders)])
    assert (shown.exit_code, "worst site" in shown.stdout) == (0, False), shown.output
