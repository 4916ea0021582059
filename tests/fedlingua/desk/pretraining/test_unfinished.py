"""What a broken-off training leaves to go on from: whole, checked, of the same recipe, and one process's at a time."""

from pathlib import Path

import numpy as np
import pytest

from fedlingua.common.errors import ConfigError, RunError
from fedlingua.desk.pretraining.unfinished import State, Unfinished

MADE_OF = {"training.seed": 1, "model.dropout": 0.1, "both-ways": True}


def state(step: int) -> State:
    return State(step, {"weights/a": np.full(3, step, np.float32)}, {"seconds": 1.5 * step, "random": (3, (1, 2), None)})


@pytest.fixture
def unfinished(tmp_path: Path) -> Unfinished:
    return Unfinished(tmp_path / "model", MADE_OF)


def broken_off(unfinished: Unfinished, *steps: int) -> None:
    def train() -> None:
        with unfinished.held():
            for step in steps:
                unfinished.keep(state(step))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train()


def test_the_newest_state_comes_back_as_it_was_and_the_one_before_it_stays(unfinished: Unfinished) -> None:
    broken_off(unfinished, 5, 10, 15)
    assert unfinished.steps() == [10, 15]
    found, passed_over = unfinished.newest()
    assert found is not None
    assert (found.step, found.values["seconds"], passed_over) == (15, 22.5, [])
    assert found.tensors["weights/a"].tolist() == [15, 15, 15]


def test_a_damaged_state_is_passed_over_and_told(unfinished: Unfinished) -> None:
    broken_off(unfinished, 5, 10)
    file = unfinished.folder / "00000010" / "state.safetensors"
    damaged = bytearray(file.read_bytes())
    damaged[-1] ^= 1
    file.write_bytes(damaged)
    found, passed_over = unfinished.newest()
    assert found is not None
    assert found.step == 5
    assert "checksum differs" in passed_over[0]


def test_what_was_half_written_is_no_state_and_goes(unfinished: Unfinished) -> None:
    broken_off(unfinished, 5)
    (unfinished.folder / "00000009.writing").mkdir()
    assert unfinished.steps() == [5]
    broken_off(unfinished, 10)
    assert not list(unfinished.folder.glob("*.writing"))


def test_what_is_made_of_something_else_is_refused_with_the_keys(unfinished: Unfinished, tmp_path: Path) -> None:
    broken_off(unfinished, 5)
    other = Unfinished(tmp_path / "model", {**MADE_OF, "training.seed": 2, "model.heads": 4})
    with pytest.raises(ConfigError) as caught:
        other.newest()
    told = str(caught.value)
    assert "broken off after step 5" in told
    assert "model.heads was None and is 4; training.seed was 1 and is 2. Take that back" in told
    assert "dropout" not in told


def test_of_many_changes_the_first_are_named_and_the_rest_counted(unfinished: Unfinished, tmp_path: Path) -> None:
    broken_off(unfinished, 5)
    other = Unfinished(tmp_path / "model", {**MADE_OF, **{f"corpus {number}": "de-en x.tsv" for number in range(1, 8)}})
    with pytest.raises(ConfigError, match=r"corpus 4 was None and is 'de-en x\.tsv'; and 3 keys more"):
        other.newest()


def test_two_processes_do_not_train_at_one_place(unfinished: Unfinished, tmp_path: Path) -> None:
    with unfinished.held():
        with pytest.raises(RunError, match="another process trains this backbone"), Unfinished(tmp_path / "model", {}).held():
            raise AssertionError
        assert unfinished.folder.is_dir()


def test_nothing_is_left_of_a_training_that_finished_or_kept_nothing(unfinished: Unfinished, tmp_path: Path) -> None:
    with unfinished.held():
        unfinished.keep(state(5))
    assert not list(tmp_path.iterdir())
    broken_off(unfinished)
    assert not list(tmp_path.iterdir())


def test_one_that_keeps_no_states_finds_none_of_another(unfinished: Unfinished, tmp_path: Path) -> None:
    broken_off(unfinished, 5)
    alone = Unfinished(tmp_path / "model", {}, keeps_states=False)
    with alone.held():
        assert alone.newest() == (None, [])
    assert unfinished.steps() == [5]
