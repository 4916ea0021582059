"""The Python interface: what a run gives as tables, what is refused in which words, and the blocks of docs/guides/python.md."""

import inspect
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

import fedlingua as fl
from fedlingua.desk import api
from fedlingua.desk.json_values import by_round
from fedlingua.desk.translating.decoding import Decoding
from fedlingua.desk.translating.models import RunModels
from fedlingua.desk.translating.translator import Translator
from fedlingua.runs.folder import RunFolder
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Scalar, Settings
from fedlingua.settings.table import AS_ARGUMENTS, OPTIONS
from fedlingua_lab import api as lab
from fedlingua_lab.comparison.compare import compare
from fedlingua_lab.comparison.runs import read_runs
from tests.federations import TWO_SITES
from tests.notebooks import InProcessEngine
from tests.pages import block
from tests.recorded import SUITE, RecordingEngine, record_round
from tests.translated_runs import make_run, translator_of_site

PAGE, ROOT = "docs/guides/python.md", Path(__file__).parents[3]
Replaced = Mapping[str, object]


def executed(title: str, replaced: Replaced) -> dict[str, object]:
    """Run a block of the page. replaced: what its strings are here."""
    code, names = block(PAGE, f'python title="{title}"'), dict[str, object]()
    for text, value in replaced.items():
        assert f'"{text}"' in code
        code = code.replace(f'"{text}"', repr(str(value)))
    exec(code, names)
    return names


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """What would be handed to Flower; the run's folder is then there."""
    settings: list[Settings] = []

    def carry_out(given: Settings, _: object, folder: RunFolder, *rest: object) -> None:
        settings.append(given)
        folder.directory.mkdir(parents=True, exist_ok=True)
        folder.write("run.json", {"status": "completed"})

    monkeypatch.setattr("fedlingua.desk.cli.run.carry_out", carry_out)
    return settings


@pytest.fixture
def flower(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Stands for Flower: what happens to the next run, "done", "fail" or "Ctrl-C"; after it all is done at once."""
    outcomes: list[str] = []

    class Entered(RecordingEngine):
        def __init__(self, *where: object) -> None:
            super().__init__()

        def __enter__(self) -> "Entered":
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def submit(self, run_config: Mapping[str, Scalar], num_nodes: int) -> str:
            outcome = outcomes.pop() if outcomes else "done"
            if outcome == "Ctrl-C":
                settings = settings_from(run_config)
                folder = RunFolder(Path(settings.run_dir))
                folder.open(settings, 1)
                record_round(folder, 1, 1.0)
                folder.checkpoints.save(1, {"encoder": {"all": {"a": np.zeros(1, np.float32)}}})
                raise KeyboardInterrupt
            self.failing = (str(run_config["aggregation"]),) if outcome == "fail" else ()
            return super().submit(run_config, num_nodes)

    monkeypatch.setattr("fedlingua.desk.cli.run.Engine", Entered)
    monkeypatch.setattr("fedlingua_lab.cli.suite.Engine", Entered)
    return outcomes.append


def test_the_pages_run_trains_translates_and_writes_its_report(
    experiment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the real server and sites, in this process; Flower's own processes: tests/fedlingua/desk/cli/test_run.py."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedlingua.desk.cli.run.Engine", InProcessEngine)
    run = executed("run", {"experiments/demo.toml": experiment, "hospital-de": "hospital"})["run"]
    assert isinstance(run, api.Run)
    assert run.folder == tmp_path / "runs" / "two_sites-adapter-families-2022"
    assert run.about["status"] == "completed"
    assert run.about["config"]["rounds"] == 4
    assert list(run.scores.index) == ["hospital", "court"]
    assert sorted(set(run.rounds["round"])) == [0, 1, 2, 3, 4]
    printed = capsys.readouterr().out
    assert "round 4/4" in printed
    assert str(run.folder / "report.html") in printed.splitlines()[-1]


def test_the_pages_comparison_and_its_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [
        make_run(tmp_path / "alone", "adapter-local", {"a": 1, "b": 0}),
        make_run(tmp_path / "joined", "adapter-fed", {"a": 0, "b": 2}),
    ]
    monkeypatch.chdir(tmp_path)
    names = ("runs/demo-adapter-local-2022", "runs/demo-adapter-families-2022")
    executed("compare", {**dict(zip(names, folders, strict=True)), "chrf": "bleu"})
    assert (tmp_path / "compared.html").is_file()
    table = fl.compare(fl.load(folders[0]), folders[1], samples=200)
    (wanted,) = compare(read_runs(folders), "", 200, 0).beside
    assert list(table.columns) == ["run", "site", "first", "second", "difference", "low", "high", "p"]
    assert list(table["site"]) == ["a", "b", "macro", "pooled"]
    assert set(table["run"]) == {"joined"}
    assert table["difference"][2] == pytest.approx((table["difference"][0] + table["difference"][1]) / 2)
    for name, value in (("first", wanted.macro.first), ("low", wanted.macro.low), ("p", wanted.macro.p)):
        assert table[name][2] == value


def test_the_pages_suite(tmp_path: Path, flower: object, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "two.toml").write_text(TWO_SITES)
    (tmp_path / "pair.toml").write_text(SUITE.format(federation=tmp_path / "two.toml"))
    monkeypatch.chdir(tmp_path)
    table = executed("suite", {"experiments/fed_mnmt/table2_phrasebook.toml": tmp_path / "pair.toml"})["table"]
    assert list(table["method"]) == ["base", "adapter-fed", "adapter-fed+fedavg"]  # type: ignore[index]
    assert list(table["macro_bleu"]) == [25.0, 25.0, 25.0]  # type: ignore[index]
    about = fl.suite(tmp_path / "pair.toml", to=tmp_path / "again").attrs  # all runs are there
    assert about == {"result": tmp_path / "again", "report": tmp_path / "runs" / "suites" / "pair" / "report.html"}
    assert about["report"].is_file()
    with pytest.raises(fl.FedlinguaError, match="jobs = 0; wanted 1 or more"):
        fl.suite(tmp_path / "pair.toml", jobs=0)


def test_the_pages_failed_run_is_resumed(
    experiment: Path, tmp_path: Path, flower: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    flower("fail")
    run = executed("resume", {"experiments/demo.toml": experiment, "runs/mine": tmp_path / "mine"})["run"]
    assert isinstance(run, api.Run)
    assert "the run failed: site court: no reply" in capsys.readouterr().out
    assert (run.about["status"], run.about["attempt"]) == ("completed", 2)
    assert (run.about["config"]["learning-rate"], run.about["config"]["send.code"]) == (0.003, "4bit")


def test_ctrl_c_leaves_a_run_that_can_be_resumed(experiment: Path, tmp_path: Path, flower: Callable[[str], None]) -> None:
    flower("Ctrl-C")
    with pytest.raises(KeyboardInterrupt):
        fl.run(experiment, to=tmp_path / "run")
    broken = fl.load(tmp_path / "run")
    assert broken.about["status"] == "interrupted"
    assert list(broken.rounds["seconds"]) == pytest.approx([1.1, 2.1])  # training and evaluating, of hospital and court
    assert list(broken.bytes.columns) == ["site", "kind", "uplink_bytes", "downlink_bytes"]
    with pytest.raises(fl.FedlinguaError, match=r"the run is interrupted, not completed(.|\n)*--resume"):
        _ = broken.scores
    again = fl.run(resume=tmp_path / "run")
    assert (again.about["status"], again.about["attempt"]) == ("completed", 2)
    assert list(again.scores["kept"]) == [20.0, 30.0]


def test_keyword_arguments_are_the_runs_options(experiment: Path, tmp_path: Path, handed: list[Settings]) -> None:
    fl.run(
        experiment,
        to=tmp_path / "run",
        seed=7,
        learning_rate=1e-05,
        data_dir=tmp_path,
        keep_choose=True,
        send_code="lossless",
        options={"deadline.phase-s": 5, "track": ""},
    )
    (settings,) = handed
    assert (settings.seed, settings.learning_rate, settings.data_dir) == (7, 1e-05, str(tmp_path))
    assert (settings.flat()["send.code"], settings.flat()["keep.choose"], settings.deadline_s) == ("lossless", True, 5.0)
    assert set(AS_ARGUMENTS.values()) == set(OPTIONS)
    assert all(name.isidentifier() for name in AS_ARGUMENTS)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"round": 4}, "round = 4: there is no such key; did you mean 'rounds'"),
        ({"rounds": "many"}, "rounds = 'many'"),
        ({"method": "adapter-famlies"}, "did you mean 'adapter-families'"),
        ({"options": {"send.cod": "4bit"}}, "did you mean 'send.code'"),
        ({"profile": "nowhere"}, "profile 'nowhere'"),
        ({"learning_rat": 3}, "learning_rat = 3: there is no such key; did you mean 'learning_rate'?"),
        ({"learning_rate": -1.0}, "learning_rate = -1.0 is too small"),
        ({"backbone_weights": "random"}, "backbone_weights = 'random' needs a tensor set"),
        ({"options": {"learning-rate": -1.0}}, "learning-rate = -1.0 is too small"),
        ({"rounds": None}, "rounds = None is no value; leave it out"),
        ({"resume": "runs/x"}, "got an experiment file and resume, which keeps the run's own settings; leave one out"),
    ],
)
def test_a_mistake_is_told_in_the_functions_words(
    experiment: Path, tmp_path: Path, handed: list[Settings], given: dict[str, object], words: str
) -> None:
    with pytest.raises(fl.FedlinguaError) as refused:
        fl.run(experiment, to=tmp_path / "run", **given)  # type: ignore[arg-type]
    assert words in str(refused.value)
    assert not handed
    assert not (tmp_path / "run").exists()


def test_numbers_of_numpy_are_numbers(experiment: Path, tmp_path: Path, handed: list[Settings]) -> None:
    seed, rate, chooses = np.arange(3)[2], np.float32(0.25), np.bool_(True)
    fl.run(experiment, to=tmp_path / "run", seed=seed, learning_rate=rate, keep_choose=chooses)  # type: ignore[arg-type]
    assert (handed[0].seed, handed[0].learning_rate, handed[0].flat()["keep.choose"]) == (2, 0.25, True)


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "demo-2022", "adapter-fed", {"a": 1})
    with pytest.raises(fl.FedlinguaError, match=r"is not a run folder(.|\n)*did you mean 'demo-2022'"):
        fl.load(tmp_path / "demo-2021")
    with pytest.raises(fl.FedlinguaError, match="1 run cannot be compared"):
        fl.compare(folder)
    with pytest.raises(fl.FedlinguaError, match="samples = 0; wanted 40 or more"):
        fl.compare(folder, folder, samples=0)


def test_scores_hold_what_sites_chose(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", "adapter-families", {"a": 1, "b": 2})
    scores = json.loads((folder / "scores.json").read_text())
    chose = {"base_bleu": 1.5, "alone_bleu": 20.0, "federated_bleu": 22.5, "bleu": 25.0, "kept": "own+federation"}
    of_one = {"alone_ensemble_bleu": 21.0, "single_bleu": 23.0, "reference": {"name": "alone ensemble", "bleu": 21.0}}
    scores["sites"]["a"] |= {**chose, **of_one, "gain": {"bleu": 4.0, "low": 2.0, "high": 8.0}}
    scores["total_bytes"] = {"up": 10, "down": 20}
    (folder / "scores.json").write_text(json.dumps(scores))
    run = fl.load(folder)
    assert list(run.scores.loc["a"]) == ["de-fr", 4, 1.5, 20.0, 21.0, 22.5, 25.0, 4.0, 2.0, 8.0, 3.0, "own+federation"]
    assert run.scores.loc["b", ["alone", "federation", "joined", "joined_low"]].isna().all()
    assert run.scores.loc["b", "keeps"] == ""
    assert run.scores["kept"].mean() == pytest.approx((25.0 + scores["sites"]["b"]["bleu"]) / 2)
    assert run.scores.attrs["metric"] == "BLEU"
    assert run.total_bytes == {"up": 10, "down": 20}
    assert repr(run) == f"<Run {folder}: completed>"


def test_rounds_and_bytes_are_the_folders(finished_run: Path) -> None:
    run = fl.load(finished_run)
    lines = by_round(map(json.loads, (finished_run / "rounds.jsonl").read_text().splitlines()))
    assert len(run.rounds) == 4 * len(lines)
    row = run.rounds.set_index(["round", "site"]).loc[1, "school"]
    wanted = lines[1]["sites"]["school"]
    names = ("dev_loss", "train_loss", "uplink_bytes", "downlink_bytes")
    assert {name: row[name] for name in names} == {name: wanted[name] for name in names}
    assert row["seconds"] == pytest.approx(wanted["seconds"]["train"] + wanted["seconds"]["evaluate"])
    traffic = json.loads((finished_run / "traffic.json").read_text())
    for way in ("uplink_bytes", "downlink_bytes"):
        assert run.bytes[way].sum() == sum(moved[way] for kinds in traffic.values() for moved in kinds.values())
    assert run.bytes.groupby("site")["uplink_bytes"].sum().mean() == pytest.approx(run.total_bytes["up"], abs=1)
    assert {"train", "evaluate"} <= set(run.bytes["kind"])


def test_a_run_translates_as_its_sites_do_and_loads_its_backbone_once(
    finished_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedlingua.desk.serving import models

    made: list[object] = []

    class Counted(Translator):
        def __init__(self, *given: object) -> None:
            made.append(given)
            super().__init__(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(models, "Translator", Counted)
    run, sentences = fl.load(finished_run), ["Guten Morgen.", "", "Der Arzt liest."]
    for site in ("hospital", "bank"):
        assert run.translate(sentences, site=site) == translator_of_site(finished_run, site).translate(sentences)
    assert run.translate("Der Arzt liest.", direction="cs-de") == run.translate(sentences[2:], site="bank")
    assert len(made) == 1
    assert len(run.translate(sentences, "bank", beam=1)) == 3
    assert len(made) == 2


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "translate needs site or direction"),
        ({"site": "bank", "direction": "cs-de"}, "translate got site and direction; leave one out"),
        ({"site": "bnak"}, "no site 'bnak'; did you mean 'bank'"),
        ({"direction": "csde"}, "csde"),
        ({"site": "bank", "beam": 0}, "--beam 0; wanted 1 to 64"),
        (
            {"site": "bank", "beams": 2},
            "translate takes no 'beams'; did you mean 'beam'.*; wanted site, direction or one of beam",
        ),
        ({"site": "bank", "terms": "none.tsv"}, "--terms none.tsv: there is no such file"),
    ],
)
def test_what_cannot_be_translated_is_refused(finished_run: Path, given: dict[str, object], words: str) -> None:
    with pytest.raises(fl.FedlinguaError, match=words):
        fl.load(finished_run).translate(["Der Arzt liest."], **given)  # type: ignore[arg-type]


def test_a_glossary_serves_the_site_that_is_asked_whatever_its_name_and_type(finished_run: Path, tmp_path: Path) -> None:
    glossary, run = tmp_path / "terms.tsv", fl.load(finished_run)
    glossary.write_text("Arzt\tmédecin\n")
    wanted = translator_of_site(finished_run, "hospital", Decoding(terms=glossary)).translate(["Der Arzt liest."])
    assert run.translate("Der Arzt liest.", site="hospital", terms=glossary) == wanted
    assert run.translate("Der Arzt liest.", site="hospital", terms=str(glossary)) == wanted
    assert "médecin" in wanted[0]
    assert "médecin" not in run.translate("Der Arzt liest.", site="hospital")[0]


def test_a_glossary_goes_with_each_site_without_loading_the_backbone_again(
    finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (glossary := tmp_path / "terms.tsv").write_text("Arzt\tmédecin\n")
    loaded, run = list[object](), fl.load(finished_run)
    monkeypatch.setattr(api, "RunModels", lambda folder: loaded.append(folder) or RunModels(folder))
    for site in ("hospital", "court", "hospital"):
        run.translate("Der Arzt liest.", site=site, terms=glossary)
    assert len(loaded) == 1


def test_the_report_is_written_anew(tmp_path: Path) -> None:
    run = fl.load(make_run(tmp_path / "run", "adapter-fed", {"a": 1, "b": 0}))
    assert run.report() == run.folder / "report.html"
    assert "adapter-fed" in run.report().read_text()


def test_importing_the_package_loads_nothing_of_the_desk_before_it_is_used() -> None:
    heavy = "sorted({'fedlingua.desk', 'pandas', 'torch', 'typer'} & set(sys.modules))"
    script = f"import sys, fedlingua as fl; fl.__version__; print({heavy}, hasattr(fl, 'nothing')); fl.load; print({heavy})"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[] False", "['fedlingua.desk', 'pandas', 'typer']"]


def test_a_node_has_no_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fl, "find_spec", lambda name: None)  # as in a bundle
    assert not hasattr(fl, "run")
    assert not hasattr(fl, "__version__")


def test_every_name_is_offered_and_has_an_example() -> None:
    assert sorted([*api.__all__, *lab.__all__, "__version__"]) == sorted(fl.__all__)
    assert set(fl.__all__) <= set(dir(fl))
    offered = [getattr(fl, name) for name in ("run", "load", "compare", "suite")]
    of_run = [part for name, part in vars(api.Run).items() if not name.startswith("_")]
    assert len(of_run) == 6
    assert all("Example: `" in (inspect.getdoc(each) or "") for each in [*offered, *of_run])
