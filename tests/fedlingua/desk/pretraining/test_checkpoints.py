"""What a broken-off training leaves to go on from: whole, checked, of the same recipe, and one process's at a time."""

from pathlib import Path

import pytest
import torch

from fedlingua.common.errors import ConfigError, RunError
from fedlingua.desk.pretraining.checkpoints import Checkpoints, State

MADE_OF = {"training.seed": 1, "model.dropout": 0.1, "both-ways": True}


def state(step: int) -> State:
    values = {"seconds": 1.5 * step, "random": (3, (1, 2), None)}
    return {"step": step, "weights": {"a": torch.full((3,), step, dtype=torch.float32)}, **values}


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "model", MADE_OF)


def broken_off(checkpoints: Checkpoints, *steps: int) -> None:
    def train() -> None:
        with checkpoints.locked():
            for step in steps:
                checkpoints.save(state(step))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train()


def test_the_newest_state_comes_back_as_it_was_and_the_one_before_it_stays(checkpoints: Checkpoints) -> None:
    broken_off(checkpoints, 5, 10, 15)
    assert checkpoints.steps() == [10, 15]
    found, passed_over = checkpoints.newest()
    assert found is not None
    assert (found["step"], found["seconds"], found["random"], passed_over) == (15, 22.5, (3, (1, 2), None), [])
    assert found["weights"]["a"].tolist() == [15, 15, 15]


def test_a_damaged_state_is_passed_over_and_told(checkpoints: Checkpoints) -> None:
    broken_off(checkpoints, 5, 10)
    file = checkpoints.folder / "00000010" / "state.pt"
    damaged = bytearray(file.read_bytes())
    damaged[-1] ^= 1
    file.write_bytes(damaged)
    found, passed_over = checkpoints.newest()
    assert found is not None
    assert found["step"] == 5
    assert "checksum differs" in passed_over[0]


def test_what_was_half_written_is_no_state_and_goes(checkpoints: Checkpoints) -> None:
    broken_off(checkpoints, 5)
    (checkpoints.folder / "00000009.writing").mkdir()
    assert checkpoints.steps() == [5]
    broken_off(checkpoints, 10)
    assert not list(checkpoints.folder.glob("*.writing"))


def test_what_is_made_of_something_else_is_refused_with_the_keys(checkpoints: Checkpoints, tmp_path: Path) -> None:
    broken_off(checkpoints, 5)
    other = Checkpoints(tmp_path / "model", {**MADE_OF, "training.seed": 2, "model.heads": 4})
    with pytest.raises(ConfigError) as caught:
        other.newest()
    told = str(caught.value)
    assert "interrupted after step 5" in told
    assert "model.heads was None and is 4; training.seed was 1 and is 2. Undo the changes" in told
    assert "dropout" not in told


def test_of_many_changes_the_first_are_named_and_the_rest_counted(checkpoints: Checkpoints, tmp_path: Path) -> None:
    broken_off(checkpoints, 5)
    other = Checkpoints(tmp_path / "model", {**MADE_OF, **{f"corpus {number}": "de-en x.tsv" for number in range(1, 8)}})
    with pytest.raises(ConfigError, match=r"corpus 4 was None and is 'de-en x\.tsv'; and 3 keys more"):
        other.newest()


def test_two_processes_do_not_train_at_one_place(checkpoints: Checkpoints, tmp_path: Path) -> None:
    with checkpoints.locked():
        with pytest.raises(RunError, match="another process trains this backbone"), Checkpoints(tmp_path / "model", {}).locked():
            raise AssertionError
        assert checkpoints.folder.is_dir()


def test_nothing_is_left_of_a_training_that_finished_or_kept_nothing(checkpoints: Checkpoints, tmp_path: Path) -> None:
    with checkpoints.locked():
        checkpoints.save(state(5))
    assert not list(tmp_path.iterdir())
    broken_off(checkpoints)
    assert not list(tmp_path.iterdir())


def test_one_that_keeps_no_states_finds_none_of_another(checkpoints: Checkpoints, tmp_path: Path) -> None:
    broken_off(checkpoints, 5)
    alone = Checkpoints(tmp_path / "model", {}, enabled=False)
    with alone.locked():
        assert alone.newest() == (None, [])
    assert checkpoints.steps() == [5]
