"""A suite's result on disk: small, without places, and made again from its own files to the same bytes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedlingua.common.errors import RunError
from fedlingua.desk.report.keep import read_kept_runs, write_kept_runs
from fedlingua.runs.folder import RunFolder
from fedlingua_lab.suites.read import Suite, read_suite
from fedlingua_lab.suites.result import rebuild, run_entry, write_result, write_tables
from fedlingua_lab.suites.runs import Run, plan
from tests.federations import TWO_SITES
from tests.recorded import SUITE, record_completed

BLEU = {"base-1": (5.0, 5.0), "adapter-fed-1": (10.0, 20.0), "adapter-fed-2": (14.0, 20.0), "adapter-fed+fedavg-1": (30.0, 40.0)}


@pytest.fixture
def ran(tmp_path: Path) -> tuple[Suite, list[Run]]:
    """A suite of which all but the last run is completed; the last failed."""
    (tmp_path / "two.toml").write_text(TWO_SITES)
    file = tmp_path / "suite.toml"
    file.write_text(SUITE.format(federation=tmp_path / "two.toml"))
    suite = read_suite(file, {})
    runs = plan(suite, tmp_path / "runs")
    for run in runs[:-1]:
        record_completed(replace(run.settings, run_dir=str(run.folder)), BLEU[run.name])
    last = RunFolder(runs[-1].folder)
    last.open(replace(runs[-1].settings, run_dir=str(last.directory)), 1)
    last.close("failed", f"site court: no reply; see {tmp_path}/runs/log.txt, or http://host/a/b")
    return suite, runs


@pytest.fixture
def result(ran: tuple[Suite, list[Run]], tmp_path: Path) -> Path:
    write_result(tmp_path / "result", *ran, seconds=12.34)
    return tmp_path / "result"


def test_the_result_has_the_files_that_others_read(result: Path) -> None:
    assert sorted(str(file.relative_to(result)) for file in result.rglob("*") if file.is_file()) == [
        "runs.jsonl",
        "suite.json",
        "table.csv",
        "table.md",
    ]


def test_the_tables_are_made_again_from_the_results_files_alone(result: Path, ran: tuple[Suite, list[Run]]) -> None:
    for run in ran[1]:
        for file in run.folder.rglob("*"):
            if file.is_file():
                file.unlink()
    before = ((result / "table.csv").read_text(), (result / "table.md").read_text())
    assert rebuild(result) == before
    (result / "table.md").write_text("spoilt")
    write_tables(result)
    assert ((result / "table.csv").read_text(), (result / "table.md").read_text()) == before


def test_the_rows_are_the_means_of_the_runs(result: Path) -> None:
    rows = [line.split(",") for line in (result / "table.csv").read_text().splitlines()]
    assert [[row[0], *row[1:5], row[-1]] for row in rows[1:]] == [
        ["base", "5.0", "5.0", "5.0", "0.0", "1"],
        ["adapter-fed", "12.0", "20.0", "16.0", "1.414214", "2"],
        ["adapter-fed+fedavg", "30.0", "40.0", "35.0", "0.0", "1"],
    ]


def test_each_run_is_accounted_for(result: Path, ran: tuple[Suite, list[Run]]) -> None:
    account = json.loads((result / "suite.json").read_text())
    assert list(account["runs"]) == [run.name for run in ran[1]]
    entry = account["runs"]["adapter-fed-2"]
    assert (entry["status"], entry["reason"], entry["rounds"], entry["num_sites"]) == ("completed", None, 2, 2)
    assert entry["train_seconds"] == 3.0  # the court took 2 and 4, longer than the hospital
    assert entry["seconds_by_part"] == {"train": 4.5, "evaluate": 1.5, "round": 15.0, "aggregate": 0.25}
    assert entry["dev_loss"] == 1.0  # 2.0 after round 1
    failed = account["runs"]["adapter-fed+fedavg-2"]
    assert (failed["status"], failed["reason"]) == ("failed", "site court: no reply; see log.txt, or http://host/a/b")
    assert account["suite_seconds"] == 12.3
    assert not any("earlier state of the code" in note for note in account["notes"])


def test_completed_runs_of_an_earlier_state_of_the_code_are_named(
    result: Path, ran: tuple[Suite, list[Run]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedlingua_lab.suites.result.code_hash", lambda: "changed since")
    write_result(result, *ran, 1.0)
    assert "earlier state of the code" in json.loads((result / "suite.json").read_text())["notes"][-1]


@pytest.mark.parametrize(
    ("method", "text"), [("server-adam", ""), ("centralized", "all text"), ("centralized-public", "public text")]
)
def test_dev_losses_of_masked_text_are_kept_as_sums_by_round(
    ran: tuple[Suite, list[Run]], result: Path, method: str, text: str
) -> None:
    """A pooled run has one pseudo-site, which is measured on the text that it trains on."""
    translating = ran[1][1]
    assert "dev_losses" not in run_entry(translating)
    masked = replace(translating, settings=replace(translating.settings, task="masked-language", method=method))
    assert "dev_losses" not in run_entry(masked)  # of a run that told no number of pieces
    sites = {site: {"dev_loss": 1.5, "dev_tokens": tokens} for site, tokens in (("hospital", 4), ("court", 6))}
    sites = {"pooled": {"dev_loss": 1.5, "dev_tokens": 10}} if text else sites
    RunFolder(masked.folder).add_round({"round": 2, "sites": sites})
    wanted = {text: [15.0, 10]} if text else {"hospital": [6.0, 4], "court": [9.0, 6]}
    assert json.loads(json.dumps(run_entry(masked)))["dev_losses"] == {"2": wanted}


def test_nothing_in_the_result_says_where_files_lay(result: Path, tmp_path: Path) -> None:
    for file in result.rglob("*.*"):
        if file.is_file():
            assert str(tmp_path) not in file.read_text(), file
    assert json.loads((result / "suite.json").read_text())["settings"]["federation"] == "two.toml"


def test_runs_that_a_suite_no_longer_has_leave_its_result(ran: tuple[Suite, list[Run]], result: Path) -> None:
    suite, runs = ran
    write_result(result, replace(suite, seeds=(1,)), [run for run in runs if run.seed == 1], 1.0)
    assert json.loads((result / "suite.json").read_text())["suite_seconds"] == 1.0  # it is another suite now
    write_result(result, replace(suite, seeds=(1,)), [run for run in runs if run.seed == 1], 2.0)
    assert json.loads((result / "suite.json").read_text())["suite_seconds"] == 3.0  # the seconds of both calls
    assert list(read_kept_runs(result)) == ["adapter-fed+fedavg-1", "adapter-fed-1", "base-1"]


def test_a_line_of_a_run_is_its_row_its_seed_and_what_its_files_say(result: Path, ran: tuple[Suite, list[Run]]) -> None:
    lines = [json.loads(line) for line in (result / "runs.jsonl").read_text().splitlines()]
    assert [(line["method"], line["seed"]) for line in lines] == [
        ("adapter-fed+fedavg", 1),
        ("adapter-fed", 1),
        ("adapter-fed", 2),
        ("base", 1),
    ]
    by_name = {run.name: run for run in ran[1]}
    for line in lines:
        folder = RunFolder(by_name[f"{line['method']}-{line['seed']}"].folder)
        assert line.keys() == {"method", "seed", "run", "scores"}
        assert line["scores"] == folder.read("scores.json")
        assert (line["run"]["status"], line["run"]["config"]["run-dir"]) == ("completed", "")


def test_the_table_names_the_resumed_runs_in_which_tensors_travel(result: Path) -> None:
    before = rebuild(result)
    assert "Resumed" not in before[1]
    lines = read_kept_runs(result)
    for name in ("adapter-fed-1", "adapter-fed-2", "base-1"):
        lines[name]["run"].update(attempt=1 if name == "adapter-fed-1" else 2, exchanged_parameters=0 if name == "base-1" else 8)
    write_kept_runs(result, lines.values())
    plain, table = rebuild(result)
    note = "- Resumed: adapter-fed-2. Bytes of such a run may include tensors that were sent again."
    assert (plain, [line for line in table.splitlines() if line not in before[1].splitlines()]) == (before[0], [note])


def test_a_broken_line_is_told(result: Path) -> None:
    (result / "runs.jsonl").write_text('{"method": "base"')
    with pytest.raises(RunError, match=r"runs\.jsonl cannot be read.*wanted a line of JSON"):
        rebuild(result)


def test_a_folder_without_a_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"holds no suite's result: it has no suite\.json"):
        rebuild(tmp_path)
