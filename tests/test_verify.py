"""What `experiments/verify.py` finds in results that are made up here; the committed ones are verified on demand."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments import verify
from experiments.verify import Result
from fedlingua.desk.report.keep import read_kept_runs, write_kept_runs
from fedlingua_lab.suites.read import read_suite
from fedlingua_lab.suites.result import write_result
from fedlingua_lab.suites.runs import plan
from tests.federations import TWO_SITES
from tests.recorded import SUITE, record_completed

BLEU = {"base-1": (5.0, 5.0), "adapter-fed-1": (10.0, 20.0), "adapter-fed-2": (14.0, 20.0)}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of experiments with one suite and its result."""
    folder = tmp_path_factory.mktemp("experiments")
    (folder / "two.toml").write_text(TWO_SITES)
    file = folder / "small" / "pair.toml"
    file.parent.mkdir()
    text, _, _ = SUITE.format(federation=folder / "two.toml").rpartition("[[row]]")
    file.write_text(text)
    suite = read_suite(file, {})
    runs = plan(suite, folder / "runs")
    for run in runs:
        record_completed(replace(run.settings, run_dir=str(run.folder)), BLEU[run.name])
    write_result(folder / "results" / "small" / "pair", suite, runs, 1.0)
    return folder


@pytest.fixture
def result(written: Path, tmp_path: Path) -> Result:
    """A copy to spoil."""
    folder = tmp_path / "results" / "small" / "pair"
    folder.mkdir(parents=True)
    for file in (written / "results" / "small" / "pair").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return Result(folder, tmp_path / "results")


def test_a_result_as_it_was_written_holds(result: Result, written: Path) -> None:
    assert verify.results_under(result.results) == [result]
    assert list(verify.problems_of(result, written)) == []


def spoil(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """Change the line of one run."""

    def spoiled(folder: Path) -> None:
        lines = read_kept_runs(folder)
        change(lines["adapter-fed-1"])
        write_kept_runs(folder, lines.values())

    return spoiled


def alone(scores: dict[str, Any], of_sites: float, mean: float) -> None:
    """Give scores of what sites trained alone."""
    scores["macro_alone_bleu"] = mean
    for site in scores["sites"].values():
        site["alone_bleu"] = of_sites


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (spoil(lambda line: line["run"].update(status="failed")), "adapter-fed-1: it is failed"),
        (spoil(lambda line: line["scores"].update(seed=7)), "adapter-fed-1: run and scores are of different runs"),
        (spoil(lambda line: line["run"]["config"].update({"run-dir": "/here"})), "run-dir = '/here' is a place of one machine"),
        (spoil(lambda line: line["run"]["config"].update(rounds=-1)), "its settings are refused"),
        (spoil(lambda line: line["scores"].update(macro_bleu=40.0)), "macro_bleu is 40.0, and the sites come to 15"),
        (spoil(lambda line: alone(line["scores"], 9.0, 40.0)), "macro_alone_bleu is 40.0, and the sites come to 9.0"),
        (spoil(lambda line: line["scores"].update(macro_bleu=40.0)), "table.csv is not what runs.jsonl adds up to"),
        (lambda folder: (folder / "table.md").write_text("spoilt"), "table.md is not what runs.jsonl adds up to"),
        (lambda folder: (folder / "runs.jsonl").write_text("{"), "cannot be read"),
        (lambda folder: (folder / "table.csv").unlink(), "FileNotFoundError"),
        (
            lambda folder: (folder / "suite.json").write_text((folder / "suite.json").read_text().replace("completed", "failed")),
            "not completed: base-1, adapter-fed-1, adapter-fed-2",
        ),
    ],
)
def test_what_is_wrong_with_a_result_is_found(
    result: Result, written: Path, change: Callable[[Path], object], problem: str
) -> None:
    change(result.folder)
    assert problem in "\n".join(verify.problems_of(Result(result.folder, result.results), written))


def test_means_of_scores_that_are_sums_over_all_sites_are_not_recomputed(result: Result) -> None:
    line = read_kept_runs(result.folder)["adapter-fed-1"]
    line["scores"]["sites"] = {"all sites": next(iter(line["scores"]["sites"].values()))}
    line["scores"].update(macro_bleu=40.0)
    assert list(verify.problems_of_run(line)) == []
    line["run"]["status"] = "failed"
    assert list(verify.problems_of_run(line)) == ["it is failed"]


@pytest.mark.parametrize(("old", "new"), [("seeds = [1, 2]", "seeds = [1]"), ('"adapter-fed"', '"adapter-local"')])
def test_a_suite_whose_file_was_changed_since_is_found(result: Result, written: Path, tmp_path: Path, old: str, new: str) -> None:
    text = (written / "small" / "pair.toml").read_text()
    assert old in text
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "pair.toml").write_text(text.replace(old, new))
    assert "by now" in "\n".join(verify.problems_of(result, tmp_path))


def test_a_claim_that_no_longer_holds_or_cannot_be_asked_is_told(
    result: Result, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "CLAIMS", {})

    @verify.claim("small/pair")
    def _better(found: Result) -> bool:
        """Adapters beat the base."""
        return found.macro("adapter-fed") > found.macro("base")

    @verify.claim("small/pair")
    def _worse(found: Result) -> bool:
        """The base beats adapters."""
        return found.macro("base") > found.macro("adapter-fed")

    @verify.claim("small/pair")
    def _absent(found: Result) -> bool:
        """A row that is not there."""
        return found.macro("pmfl") > 0

    told = list(verify.problems_of(result, written))
    assert told == [
        "small/pair: no longer so: The base beats adapters.",
        "small/pair: _absent: KeyError('pmfl')",
        "small/pair: no longer so: A row that is not there.",
    ]


def test_what_is_sent_and_the_bleu_of_it_are_of_rows_that_save_enough_and_beat_the_base() -> None:
    def row(saving: float | None, bleu: float, up: int) -> list[dict[str, Any]]:
        return [{"number_saving": saving, "macro_bleu": bleu, "uplink_bytes_per_round": up, "base_macro_bleu": 5.0}]

    rows = {"whole": row(None, 30.0, 9), "half": row(0.5, 20.0, 5), "bad": row(0.5, 4.0, 5), "little": row(0.9, 20.0, 1)}
    assert verify.sent_and_bleu(rows) == {"half": (5.0, 20.0)}


def test_a_papers_tables_that_take_too_long_together_are_told(result: Result) -> None:
    slow, another = (Result(verify.RESULTS / "metasend" / name) for name in ("table1_made_up", "bytes_made_up"))
    for each in (slow, another):
        each.__dict__["suite"] = {"suite_seconds": 4 * 3600}
    assert list(verify.problems_of_folders([slow, another])) == ["metasend: all tables took 4.0 hours; wanted at most 3.5"]
    assert list(verify.problems_of_folders([another])) == []
    assert list(verify.problems_of_folders([result])) == []


def benchmarks() -> dict[str, Any]:
    """Figures of every benchmark that are all as wanted."""
    kept: dict[str, Any] = {}
    for name, key, low, _ in verify.WANTED:
        *places, last = key.split(".")
        inner = kept.setdefault(name, {})
        for place in places:
            inner = inner.setdefault(place, {})
        inner[last] = low
    for name in ("adapter_training", "adapter_training_m2m_100"):
        kept[name]["identical_batches"]["loss"] = {"ours": 2.0, "ours_cut": 2.0, "trainer": 2.0005}
    serving = kept["serving"]
    serving["one_by_one"] = {"sentences_a_core_second": 2.0}
    serving["wanted_ratios"] = {"all_sites": 1.0, "one_site": 1.5}
    for name, phase in (("all_sites", "served"), ("one_site", "served_of_one_site")):
        serving[phase] |= {"statuses": {"200": 9}, "failures": {}, "sentences_a_core_second": 4.0}
        serving["served_over_one_by_one"].setdefault(name, {})["core"] = 2.0
    kinds = {"train": {"up": 2, "down": 3}, "evaluate": {"up": 1, "down": 1}}
    kept["transport"]["runs"] = {"one": {"counted_by_kind": kinds, "up": {"counted_bytes": 3}, "down": {"counted_bytes": 4}}}
    return kept


def test_figures_of_benchmarks_are_held_to_what_is_wanted() -> None:
    kept = benchmarks()
    assert list(verify.problems_of_benchmarks(kept)) == []
    kept["aggregation"]["same_bytes_in_any_order"] = 0
    kept["adapter_training"]["identical_batches"]["loss"]["trainer"] = 2.5
    kept["serving"]["served"]["failures"] = {"timeout": 1}
    kept["serving"]["served_over_one_by_one"]["one_site"]["core"] = 1.2
    kept["transport"]["runs"]["one"]["up"]["counted_bytes"] = 5
    told = list(verify.problems_of_benchmarks(kept))
    assert [problem.partition(":")[0] for problem in told] == [
        "aggregation",
        "adapter_training",
        "serving",
        "serving",
        "transport",
    ]
    assert told[0].endswith("same_bytes_in_any_order is 0; wanted 1 to 1")


def test_the_command_tells_what_is_wrong_by_its_exit_code(
    result: Result, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verify, "RESULTS", result.results)
    monkeypatch.setattr(verify, "problems_of", lambda each: [f"{each.name}: spoilt"] * (each.folder / "spoilt").is_file())
    assert verify.main(["small/pair"]) == 0
    assert "1 results hold" in capsys.readouterr().out
    (result.folder / "spoilt").touch()
    assert verify.main(["small/pair"]) == 1
    assert capsys.readouterr().out == "small/pair: spoilt\n"
    assert verify.main(["small/other"]) == 2
    assert "there are: small/pair" in capsys.readouterr().out


def test_what_a_result_is_called_is_its_place() -> None:
    assert Result(verify.RESULTS / "a" / "b").name == "a/b"


README = (
    "| [text](experiments/results/a/one/table.md) | 2 | 50 | 2 | 1.0 | 3.0 | 4.5 | **5.0 ± 1** | +2.0 | 3 of 4 | 1.0 MB, 2.0 MB |"
)


@pytest.fixture
def shown(tmp_path: Path) -> Path:
    """Results of which README shows one."""
    lines = []
    for seed, kept in ((1, (2.5, 5.5)), (2, (2.9, 9.1))):
        pairs = zip(kept, (2.7, 3.3), strict=True)
        sites = {f"site {bleu}": {"bleu": bleu, "base_bleu": 1.0, "alone_bleu": alone} for bleu, alone in pairs}
        means = {
            "base_macro_bleu": 1.0,
            "macro_alone_bleu": 3.0,
            "macro_federated_bleu": 4.0 + seed / 3,
            "macro_bleu": sum(kept) / 2,
        }
        counted = {"total_bytes": {"up": 1e6, "down": 2e6}} if seed == 1 else {}
        costs = {"uplink_bytes_per_round": 1e5, "downlink_bytes_per_round": 2e5, **counted}
        lines.append({"method": "fed", "seed": seed, "run": {"rounds": 10}, "scores": {"sites": sites, **means, **costs}})
    (tmp_path / "a" / "one").mkdir(parents=True)
    write_kept_runs(tmp_path / "a" / "one", [*lines, {"method": "base", "seed": 1, "run": {}, "scores": {}}])
    return tmp_path


def readme(row: str) -> str:
    return f"<!-- results -->\n| text | sites |\n|---|---|\n{row}\n<!-- /results -->\n"


def test_a_row_of_the_readme_that_says_what_the_runs_come_to_holds(shown: Path) -> None:
    assert list(verify.problems_of_page("README", readme(README), shown)) == []


def test_a_run_with_a_reference_is_told_by_it_and_beyond_chance(shown: Path) -> None:
    folder = shown / "a" / "one"
    lines = list(read_kept_runs(folder).values())
    for line in lines:
        if line["method"] == "base":
            continue
        line["scores"]["macro_reference_bleu"] = 3.5
        for site in line["scores"]["sites"].values():
            site["gain"] = {"bleu": 1.0, "low": site["bleu"] - 6, "high": 4.0}
    write_kept_runs(folder, lines)
    told = README.replace("+2.0", "+1.5").replace("3 of 4", "1 of 4")
    assert list(verify.problems_of_page("README", readme(told), shown)) == []


@pytest.mark.parametrize(
    "cell", ["| 2 | 50", "| 2 | 1.0", "1.0 | 3.0", "3.0 |", "4.5", "5.0", "± 1", "+2.0", "3 of 4", "1.0 MB", "2.0 MB"]
)
def test_a_wrong_cell_of_the_readme_is_found(shown: Path, cell: str) -> None:
    wrong = README.replace(cell, cell.replace(cell.strip("|±+ ")[0], "7", 1), 1)
    (problem,) = verify.problems_of_page("README", readme(wrong), shown)
    assert problem.startswith("README, a/one: it says ")


@pytest.mark.parametrize(
    ("row", "problem"),
    [("", "0 of 0 rows"), ("| [text](docs/results.md) | 2 |", "0 of 1 rows"), (README.replace("a/one", "a/two"), "a/two: ")],
)
def test_a_row_of_the_readme_without_runs_is_found(shown: Path, row: str, problem: str) -> None:
    assert problem in "\n".join(verify.problems_of_page("README", readme(row), shown))
