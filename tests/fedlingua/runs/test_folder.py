"""A run on disk: its life in run.json, its attempts, and its logs."""

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from fedlingua.common.errors import RunError
from fedlingua.runs.folder import RunFolder, code_hash, library_versions, run_directory
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Scalar, Settings


@pytest.fixture
def settings(tiny_run_config: dict[str, Scalar]) -> Settings:
    return settings_from(tiny_run_config)


@pytest.fixture
def folder(tmp_path: Path, settings: Settings) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    folder.open(settings, 12345678901234567890)
    return folder


def lines(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_a_run_starts_as_running_and_says_what_it_is(folder: RunFolder, settings: Settings) -> None:
    run = folder.read("run.json")
    assert run is not None
    assert (run["name"], run["status"], run["reason"], run["finished"], run["rounds"]) == ("run", "running", None, None, 0)
    assert (run["method"], run["seed"]) == ("adapter-families", 2022)
    # 64 bits do not fit a JSON number that others read.
    assert run["flower_run_id"] == "12345678901234567890"
    assert run["config_hash"] == settings.hash()
    assert settings_from(run["config"]) == settings
    assert run["versions"] == library_versions()
    assert {"flwr", "torch", "transformers", "sacrebleu"} <= set(run["versions"])


def test_a_warning_is_noted_when_it_comes_and_kept_once(folder: RunFolder) -> None:
    folder.warn(["one", "two"])
    folder.warn(["two"])  # as of a resumed run
    assert (folder.read("run.json") or {})["warnings"] == ["one", "two"]
    assert [line["text"] for line in lines(folder.directory / "progress.jsonl")] == [
        f"warning: {w}" for w in ("one", "two", "two")
    ]


def test_an_update_changes_its_fields_and_no_others(folder: RunFolder) -> None:
    before = folder.read("run.json")
    assert before is not None
    folder.update(rounds=2, best_round=1)
    assert folder.read("run.json") == {**before, "rounds": 2, "best_round": 1}


@pytest.mark.parametrize(("status", "reason"), [("completed", None), ("failed", "site de-fr: no reply"), ("interrupted", None)])
def test_a_closed_run_carries_its_status_and_reason(folder: RunFolder, status: str, reason: str | None) -> None:
    folder.close(status, reason)
    run = folder.read("run.json")
    assert run is not None
    assert (run["status"], run["reason"]) == (status, reason)
    assert run["finished"] >= run["started"]
    assert run["seconds"] >= 0
    end = lines(folder.directory / "progress.jsonl")[-1]
    assert (end["event"], end["status"], end["reason"]) == ("end", status, reason)


def test_another_run_in_the_same_folder_is_refused(folder: RunFolder, settings: Settings) -> None:
    with pytest.raises(
        RunError, match=r"already holds run 12345678901234567890; give another run-dir, remove the folder, or resume it"
    ):
        folder.open(settings, 7)
    run = folder.read("run.json")
    assert run is not None
    assert run["flower_run_id"] == "12345678901234567890"


def test_the_same_run_may_open_its_folder_again(folder: RunFolder, settings: Settings) -> None:
    folder.open(settings, 12345678901234567890)


def test_logs_grow_by_a_line_in_the_order_of_events(folder: RunFolder) -> None:
    folder.event("phase", phase="train", round=1)
    folder.event("reply", site="Zürich")
    folder.add_round({"round": 1, "dev_loss": 2.5})
    folder.add_round({"round": 2, "dev_loss": 2.25})
    events = lines(folder.directory / "progress.jsonl")
    assert [event["event"] for event in events] == ["phase", "reply"]
    assert events[1]["site"] == "Zürich"
    assert lines(folder.directory / "rounds.jsonl") == [{"round": 1, "dev_loss": 2.5}, {"round": 2, "dev_loss": 2.25}]


def test_writing_leaves_nothing_beside_the_file(folder: RunFolder) -> None:
    folder.write("scores.json", {"bleu": 12.5})
    assert folder.read("scores.json") == {"bleu": 12.5}
    assert sorted(path.name for path in folder.directory.iterdir()) == ["run.json", "scores.json"]


def test_a_file_that_is_not_there_reads_as_none(tmp_path: Path) -> None:
    assert RunFolder(tmp_path / "nowhere").read("run.json") is None


def test_a_run_dir_is_taken_as_given_and_else_every_run_has_its_own(
    tiny_run_config: dict[str, Scalar], settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = settings_from({**tiny_run_config, "run-dir": str(tmp_path / "a" / ".." / "b")})
    assert run_directory(given, 1) == (tmp_path / "b").resolve()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert run_directory(settings, 1) == tmp_path / "fedlingua" / "runs" / "1"


def test_the_code_hash_changes_with_code_and_with_nothing_else(tmp_path: Path) -> None:
    for top in ("src/fedlingua", "strategies", "clients", "tests", "experiments"):
        (tmp_path / top).mkdir(parents=True)
        (tmp_path / top / "one.py").write_text("x = 1\n")
    first = code_hash.__wrapped__(tmp_path)
    (tmp_path / "README.md").write_text("words")
    (tmp_path / "src/fedlingua/words.toml").write_text("a = 1")
    (tmp_path / "tests/one.py").write_text("x = 2\n")
    (tmp_path / "experiments/one.py").write_text("x = 2\n")
    assert code_hash.__wrapped__(tmp_path) == first
    seen = {first}
    for top in ("src/fedlingua", "strategies", "clients"):
        (tmp_path / top / "one.py").write_text("x = 2\n")
        seen.add(code_hash.__wrapped__(tmp_path))
    (tmp_path / "clients/one.py").rename(tmp_path / "clients/two.py")
    seen.add(code_hash.__wrapped__(tmp_path))
    assert len(seen) == 5


def resumed(settings: Settings, folder: RunFolder, **changes: object) -> Settings:
    return replace(settings, resume=True, run_dir=str(folder.directory), **changes)  # type: ignore[arg-type]


def test_a_resumed_run_is_the_same_run_in_its_next_attempt(folder: RunFolder, settings: Settings) -> None:
    folder.close("failed", "the power went")
    before = folder.read("run.json")
    folder.open(resumed(settings, folder, quorum=0.5), 77)
    run = folder.read("run.json")
    assert before is not None
    assert run is not None
    assert (run["id"], run["started"]) == (before["id"], before["started"])
    assert (before["attempt"], run["attempt"], run["status"], run["flower_run_id"]) == (1, 2, "running", "77")
    assert run["config"]["quorum"] == 0.5


def test_a_resumed_run_keeps_its_settings(folder: RunFolder, settings: Settings) -> None:
    with pytest.raises(RunError, match=r"keeps its settings, but seed = 7 \(was 2022\); only rounds, data-dir"):
        folder.open(resumed(settings, folder, seed=7), 77)


def test_a_completed_run_is_not_resumed(folder: RunFolder, settings: Settings) -> None:
    folder.close("completed")
    with pytest.raises(RunError, match="the run is completed; there is nothing to resume"):
        folder.open(resumed(settings, folder), 77)


def test_what_is_no_run_is_not_resumed(tmp_path: Path, settings: Settings) -> None:
    folder = RunFolder(tmp_path)
    with pytest.raises(RunError, match=r"it has no run\.json"):
        folder.open(resumed(settings, folder), 77)
    folder.write("run.json", {"status": "failed"})
    with pytest.raises(RunError, match="the run ended before it began"):
        folder.open(resumed(settings, folder), 77)


def test_a_folder_is_held_by_one_server_at_a_time(folder: RunFolder) -> None:
    with folder.held(), pytest.raises(RunError, match="its run is still going"), RunFolder(folder.directory).held():
        pass
    with folder.held():
        pass


def test_rounds_after_the_checkpoint_are_cut_and_so_is_a_broken_line(folder: RunFolder) -> None:
    for number in (0, 1, 2):
        folder.add_round({"round": number})
    with (folder.directory / "rounds.jsonl").open("a") as stream:
        stream.write('{"round": 3, "dev_l')
    folder.cut_rounds(1)
    assert lines(folder.directory / "rounds.jsonl") == [{"round": 0}, {"round": 1}]


def test_a_line_that_was_broken_off_inside_a_letter_is_cut(folder: RunFolder) -> None:
    folder.add_round({"round": 0, "site": "Zürich"})
    with (folder.directory / "rounds.jsonl").open("ab") as stream:
        stream.write('{"round": 1, "site": "Zü'.encode()[:-1])
    folder.cut_rounds(1)
    assert lines(folder.directory / "rounds.jsonl") == [{"round": 0, "site": "Zürich"}]


def test_a_line_that_was_broken_off_spoils_no_event_of_the_next_attempt(folder: RunFolder, settings: Settings) -> None:
    with (folder.directory / "progress.jsonl").open("a") as stream:
        stream.write('{"event": "rou')
    folder.open(resumed(settings, folder), 77)
    folder.event("note", text="resumed")
    assert json.loads((folder.directory / "progress.jsonl").read_text().splitlines()[-1])["text"] == "resumed"


def test_a_run_folder_is_its_owners_alone_whatever_the_umask_and_its_parents_are_left(tmp_path: Path, settings: Settings) -> None:
    before = os.umask(0)
    try:
        (tmp_path / "runs").mkdir(mode=0o755)
        folder = RunFolder(tmp_path / "runs" / "one")
        with folder.held():
            folder.open(settings, 1)
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "runs").stat().st_mode) == 0o755


def test_a_folder_of_before_is_shut_when_its_run_goes_on(folder: RunFolder, settings: Settings) -> None:
    folder.close("interrupted")
    folder.directory.chmod(0o755)
    RunFolder(folder.directory).open(replace(settings, resume=True), 1)
    assert stat.S_IMODE(folder.directory.stat().st_mode) == 0o700
