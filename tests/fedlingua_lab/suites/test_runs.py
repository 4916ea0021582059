"""A suite's runs: which configurations are one run, and how a run stands in its folder."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedlingua.common.errors import ConfigError, CorpusError
from fedlingua.runs.folder import RunFolder
from fedlingua_lab.suites.read import read_suite
from fedlingua_lab.suites.runs import Run, make_ready, own_files, plan, standing
from tests.federations import TWO_SITES
from tests.recorded import SUITE, record_completed


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "two.toml").write_text(TWO_SITES)
    suite = tmp_path / "suite.toml"
    suite.write_text(SUITE.format(federation=tmp_path / "two.toml"))
    return suite


def planned(file: Path, data: str = "", **overrides: str | int | float) -> list[Run]:
    return plan(read_suite(file, overrides, data), file.parent / "runs")


def folders(file: Path, data: str = "", **overrides: str | int | float) -> list[str]:
    return [run.folder.name for run in planned(file, data, **overrides)]


def test_every_row_runs_with_every_seed_and_the_base_once(file: Path) -> None:
    runs = planned(file)
    assert [run.name for run in runs] == [
        "base-1",
        "adapter-fed-1",
        "adapter-fed-2",
        "adapter-fed+fedavg-1",
        "adapter-fed+fedavg-2",
    ]
    assert [run.settings.seed for run in runs] == [1, 1, 2, 1, 2]
    assert len({run.folder for run in runs}) == 5
    assert runs[3].folder.name.startswith("adapter-fed-1-")


def test_equal_configurations_share_a_run_whatever_the_row_is_called(file: Path) -> None:
    before = folders(file)
    file.write_text(file.read_text() + '[[row]]\nname = "again"\nmethod = "adapter-fed"\n')
    assert folders(file) == [*before, *before[1:3]]


def test_places_and_patience_with_sites_share_a_run(file: Path) -> None:
    assert folders(file, data="/elsewhere", **{"deadline.phase-s": 5.0}) == folders(file)


def test_what_can_change_a_result_is_another_run(file: Path) -> None:
    before = folders(file)
    for changed in (
        folders(file, rounds=3),
        folders(file, backbone="facebook/m2m100_418M"),
        folders(file, **{"backbone-revision": "abc"}),
    ):
        assert not set(before) & set(changed)
    federation = file.with_name("two.toml")
    federation.write_text(TWO_SITES.replace("sentences = 40", "sentences = 44"))
    assert not set(before) & set(folders(file))


def test_another_corpus_is_another_run(file: Path) -> None:
    corpus = file.with_name("corpus.tsv")
    corpus.write_text("".join(f"eins zwei {n}\tun deux {n}\n" for n in range(30)))
    file.with_name("two.toml").write_text(f'[[site]]\nname = "a"\ndirection = "de-fr"\ntsv = "{corpus}"\n')
    before = folders(file)
    corpus.write_text("".join(f"eins zwei drei {n}\tun deux trois {n}\n" for n in range(30)))
    assert not set(before) & set(folders(file))


def test_a_missing_federation_corpus_or_recipe_is_refused_with_its_row(file: Path) -> None:
    federation = file.with_name("two.toml")
    federation.write_text('base = "none.toml"\n' + TWO_SITES)
    with pytest.raises(ConfigError, match=r"row base: base = .*none.toml: there is no such recipe"):
        planned(file)
    federation.write_text('[[site]]\nname = "a"\ndirection = "de-fr"\ntsv = "none.tsv"\n')
    with pytest.raises(ConfigError, match=r"suite.toml, row base: site a: none.tsv"):
        planned(file)
    federation.unlink()
    with pytest.raises(ConfigError, match=r"suite.toml, row base: .*two.toml: there is no such file"):
        planned(file)


def test_a_backbone_that_saw_more_than_the_federation_withholds_is_refused(file: Path) -> None:
    corpus = '[[corpus]]\ndirection = "de-en"\ntsv = "de-en.tsv"\n'
    file.with_name("de-en.tsv").write_text("".join(f"Satz {n}\tsentence {n}\n" for n in range(40)))
    file.with_name("half.toml").write_text(f"[base]\nshare = 0.5\n{corpus}")
    federation = file.with_name("two.toml")
    federation.write_text('base = "half.toml"\n' + TWO_SITES)
    folder = file.with_name("backbone")
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    made = {"base": {"share": 1.0}, "corpora": ["de-en"], "sources": ["de-en.tsv"]}
    assert planned(file, str(file.parent), backbone=str(folder))
    (folder / "pretraining.json").write_text(json.dumps({"recipe": made}))
    with pytest.raises(ConfigError, match=r"row base: backbone 'backbone' was not trained .* base\.share = 1\.0, not 0\.5"):
        planned(file, str(file.parent), backbone=str(folder))
    (folder / "pretraining.json").write_text(json.dumps({"recipe": {**made, "base": {"share": 0.5}}}))
    assert planned(file, str(file.parent), backbone=str(folder))


@pytest.fixture
def run(file: Path) -> Run:
    return planned(file)[1]


def test_a_run_stands_as_its_folder_says(run: Run) -> None:
    assert standing(run) == "new"
    folder = RunFolder(run.folder)
    settings = replace(run.settings, run_dir=str(run.folder))
    folder.open(settings, 1)
    assert standing(run) == "new"  # not a whole round is there to go on after
    folder.checkpoints.save(0, {"encoder": {"all": {"a": np.zeros(1, np.float32)}}})
    assert standing(run) == "broken off"
    folder.close("interrupted", "stopped by the user")
    assert standing(run) == "broken off"
    folder.update(status="completed")
    assert standing(run) == "new"  # it says so, but there are no scores
    folder.write("scores.json", {})
    assert standing(run) == "completed"


def test_a_broken_off_run_goes_on_in_its_folder(run: Run) -> None:
    folder = RunFolder(run.folder)
    folder.open(replace(run.settings, run_dir=str(run.folder)), 1)
    folder.checkpoints.save(1, {"encoder": {"all": {"a": np.zeros(1, np.float32)}}})
    settings = make_ready(run)
    assert settings == replace(run.settings, run_dir=str(run.folder), resume=True)
    assert folder.checkpoints.rounds() == [1]


def test_what_cannot_be_gone_on_with_begins_anew_in_a_cleared_folder(run: Run) -> None:
    run.folder.mkdir(parents=True)
    (run.folder / "run.json").write_text('{"status": "failed"}')
    (run.folder / "left.txt").write_text("over")
    other = run.folder.parent / "another"
    other.mkdir()
    assert make_ready(run) == replace(run.settings, run_dir=str(run.folder))
    assert not run.folder.exists()
    assert other.is_dir()


def test_the_folder_of_a_row_of_one_site_is_cleared_whatever_the_site_is_called(run: Run) -> None:
    silo = replace(run, folder=run.folder.with_name("silo-Klinik_2.Nord-1-0123456789ab"))
    silo.folder.mkdir(parents=True)
    make_ready(silo)
    assert not silo.folder.exists()


@pytest.mark.parametrize("key", ["client", "strategy"])
def test_own_code_that_was_changed_is_another_run(file: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setattr("fedlingua_lab.suites.runs.APP_DIR", file.parent)
    monkeypatch.setattr("fedlingua.desk.check_settings.check_own_code", lambda settings: None)  # these are no real classes
    without, own = folders(file), {key: "mine:Mine"}
    for name, text in (("mine", "import helper\n"), ("helper", "import mine\n"), ("other", "")):
        file.with_name(f"{name}.py").write_text(text)
    for name, is_of_it in (("mine", True), ("helper", True), ("other", False)):
        names = folders(file, **own)
        file.with_name(f"{name}.py").write_text("import helper, mine  # changed\n")
        assert (folders(file, **own) != names) == is_of_it
    assert folders(file) == without


def test_the_files_of_all_layers_are_own_code(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedlingua_lab.suites.runs.APP_DIR", file.parent)
    for name in ("mine", "other", "third"):
        file.with_name(f"{name}.py").touch()
    settings = replace(planned(file)[1].settings, layers="mine:Mine(q=0.5, r=(1, 2)), other:Other")
    assert [own.stem for own in own_files(settings)] == ["mine", "other"]


def test_own_code_that_is_missing_is_refused_with_the_row(file: Path) -> None:
    file.write_text(file.read_text() + '[[row]]\nname = "mine"\nmethod = "adapter-fed"\nstrategy = "mien:Mine"\n')
    with pytest.raises(ConfigError, match=r"row mine: strategy = 'mien:Mine': there is no mien\.py"):
        planned(file)


def test_a_run_of_other_settings_in_the_folder_is_not_gone_on_with(run: Run) -> None:
    folder = RunFolder(run.folder)
    folder.open(replace(run.settings, run_dir=str(run.folder), rounds=9), 1)
    folder.checkpoints.save(1, {"encoder": {"all": {"a": np.zeros(1, np.float32)}}})
    assert standing(run) == "new"


def test_a_completed_run_is_not_touched_by_looking(run: Run) -> None:
    record_completed(replace(run.settings, run_dir=str(run.folder)))
    before = {file: file.read_bytes() for file in run.folder.iterdir()}
    assert standing(run) == "completed"
    assert {file: file.read_bytes() for file in run.folder.iterdir()} == before


def test_a_corpus_too_small_for_its_sizes_is_refused_before_anything_starts(file: Path) -> None:
    corpus = file.with_name("corpus.tsv")
    corpus.write_text("".join(f"eins zwei {n}\tun deux {n}\n" for n in range(30)))
    file.with_name("two.toml").write_text(f'[[site]]\nname = "a"\ndirection = "de-fr"\ntsv = "{corpus}"\ntrain = 1000\n')
    with pytest.raises(CorpusError, match=r"a.*1000"):
        planned(file)


def test_clusters_that_cannot_be_made_are_refused_with_the_row(file: Path) -> None:
    file.write_text(file.read_text() + '[[row]]\nmethod = "adapter-random"\ncluster.number = 3\n')
    with pytest.raises(ConfigError, match=r"row adapter-random: cluster.number = 3, but there are 2 sites"):
        planned(file)


def test_a_pruning_that_keeps_nothing_is_refused_with_the_row_and_the_numbers(file: Path) -> None:
    file.write_text(
        file.read_text() + '[[row]]\nname = "middle"\nmethod = "adapter-fed"\nadapter.layers = "middle"\nbackbone = "demo"\n'
    )
    with pytest.raises(
        ConfigError, match=r"row middle: .*keeps no layer of the encoder, which has 2 \(input-end 1, middle 0, output-end 1\)"
    ):
        planned(file)
