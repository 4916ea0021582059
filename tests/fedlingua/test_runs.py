"""A run on disk: its life in run.json, its logs, and checkpoints that are what was written or are refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from fedlingua.config import Scalar, Settings, settings_from
from fedlingua.errors import RunError
from fedlingua.exchange.tensor_sets import Part, Tensors
from fedlingua.runs import RunFolder, code_hash, library_versions, run_directory

ClusterTensors = dict[Part, dict[str, Tensors]]


@pytest.fixture
def settings(tiny_run_config: dict[str, Scalar]) -> Settings:
    return settings_from(tiny_run_config)


@pytest.fixture
def folder(tmp_path: Path, settings: Settings) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    folder.open(settings, 12345678901234567890)
    return folder


@pytest.fixture
def tensors() -> ClusterTensors:
    return {
        "encoder": {"Germanic": {"e.w": np.array([[1, 2]], np.float32)}, "Romance": {"e.w": np.array([[3, 4]], np.float32)}},
        "decoder": {"Slavic": {"d.w": np.array([0.1, -0.0], np.float32), "d.b": np.array([5], np.float32)}},
        "shared": {"everybody": {}},
    }


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
    with pytest.raises(RunError, match=r"holds run 12345678901234567890 already; give another run-dir"):
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


def test_a_checkpoint_loads_bit_for_bit_as_it_was_kept(folder: RunFolder, tensors: ClusterTensors) -> None:
    folder.save_checkpoint(3, tensors, {"dev_loss": 2.5})
    loaded = folder.load_checkpoint(3)
    assert set(loaded["encoder"]) == {"Germanic", "Romance"}
    assert set(loaded["decoder"]) == {"Slavic"}
    assert loaded["shared"] == {}  # nothing is kept of a cluster that has nothing
    for part in ("encoder", "decoder"):
        for cluster, content in tensors[part].items():  # type: ignore[index]
            kept = loaded[part][cluster]  # type: ignore[index]
            assert {n: (a.dtype, a.tobytes()) for n, a in kept.items()} == {n: (a.dtype, a.tobytes()) for n, a in content.items()}


def test_a_checkpoint_says_its_round_and_state(folder: RunFolder, tensors: ClusterTensors) -> None:
    folder.save_checkpoint(3, tensors, {"dev_loss": 2.5})
    state = json.loads((folder.directory / "checkpoints" / "0003" / "state.json").read_text())
    assert (state["round"], state["dev_loss"]) == (3, 2.5)
    assert set(state["files"]) == {"encoder.Germanic.safetensors", "encoder.Romance.safetensors", "decoder.Slavic.safetensors"}


def test_a_cluster_may_have_dots_and_spaces_in_its_name(folder: RunFolder) -> None:
    folder.save_checkpoint(1, {"encoder": {"Indo-European. West": {"w": np.ones(1, np.float32)}}}, {})
    assert list(folder.load_checkpoint(1)["encoder"]) == ["Indo-European. West"]


def test_a_flipped_bit_in_a_checkpoint_is_refused_by_file(folder: RunFolder, tensors: ClusterTensors) -> None:
    folder.save_checkpoint(3, tensors, {})
    file = folder.directory / "checkpoints" / "0003" / "encoder.Romance.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(RunError, match=r"encoder\.Romance\.safetensors is not what was written"):
        folder.load_checkpoint(3)


def test_a_missing_file_of_a_checkpoint_is_refused_by_file(folder: RunFolder, tensors: ClusterTensors) -> None:
    folder.save_checkpoint(3, tensors, {})
    (folder.directory / "checkpoints" / "0003" / "decoder.Slavic.safetensors").unlink()
    with pytest.raises(RunError, match=r"decoder\.Slavic\.safetensors is not what was written"):
        folder.load_checkpoint(3)


def test_a_round_that_was_not_kept_is_refused_with_those_that_were(folder: RunFolder, tensors: ClusterTensors) -> None:
    with pytest.raises(RunError, match="kept rounds: none"):
        folder.load_checkpoint(1)
    folder.save_checkpoint(2, tensors, {})
    with pytest.raises(RunError, match=r"kept rounds: \[2\]"):
        folder.load_checkpoint(1)


def test_keeping_a_round_again_replaces_it_whole(folder: RunFolder, tensors: ClusterTensors) -> None:
    folder.save_checkpoint(3, tensors, {})
    folder.save_checkpoint(3, {"encoder": {"Romance": {"e.w": np.zeros(1, np.float32)}}}, {})
    loaded = folder.load_checkpoint(3)
    assert {part: list(clusters) for part, clusters in loaded.items()} == {"encoder": ["Romance"], "decoder": [], "shared": []}
    assert [path.name for path in (folder.directory / "checkpoints").iterdir()] == ["0003"]


def test_a_checkpoint_that_was_broken_off_does_not_count(folder: RunFolder, tensors: ClusterTensors) -> None:
    folder.save_checkpoint(1, tensors, {})
    (folder.directory / "checkpoints" / "0002.writing").mkdir()
    assert folder.checkpoints() == [1]


def test_pruning_keeps_only_the_given_rounds(folder: RunFolder, tensors: ClusterTensors) -> None:
    for number in (10, 1, 2, 3):
        folder.save_checkpoint(number, tensors, {})
    assert folder.checkpoints() == [1, 2, 3, 10]
    folder.prune_checkpoints({2, 10, 11})
    assert folder.checkpoints() == [2, 10]


def test_a_run_dir_is_taken_as_given_and_else_every_run_has_its_own(
    tiny_run_config: dict[str, Scalar], settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = settings_from({**tiny_run_config, "run-dir": str(tmp_path / "a" / ".." / "b")})
    assert run_directory(given, 1) == (tmp_path / "b").resolve()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert run_directory(settings, 1) == tmp_path / "fedlingua" / "runs" / "1"


def test_the_code_hash_changes_with_code_and_with_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedlingua.runs.APP_DIR", tmp_path)
    for top in ("src/fedlingua", "strategies", "clients", "tests", "experiments"):
        (tmp_path / top).mkdir(parents=True)
        (tmp_path / top / "one.py").write_text("x = 1\n")
    first = code_hash()
    (tmp_path / "README.md").write_text("words")
    (tmp_path / "src/fedlingua/words.toml").write_text("a = 1")
    (tmp_path / "tests/one.py").write_text("x = 2\n")
    (tmp_path / "experiments/one.py").write_text("x = 2\n")
    assert code_hash() == first
    seen = {first}
    for top in ("src/fedlingua", "strategies", "clients"):
        (tmp_path / top / "one.py").write_text("x = 2\n")
        seen.add(code_hash())
    (tmp_path / "clients/one.py").rename(tmp_path / "clients/two.py")
    seen.add(code_hash())
    assert len(seen) == 5
