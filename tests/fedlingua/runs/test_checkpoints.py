"""A checkpoint is what was written, to the bit, or it is refused by file."""

from pathlib import Path

import numpy as np
import pytest

from fedlingua.backbones.parts import Part
from fedlingua.common.errors import RunError
from fedlingua.exchange.tensors import Tensors
from fedlingua.runs.checkpoints import Checkpoint, Checkpoints
from tests.damage import flip, truncate

TENSORS: dict[Part, dict[str, Tensors]] = {
    "encoder": {"Germanic": {"e.w": np.array([[1, 2]], np.float32)}, "Romance": {"e.w": np.array([[3, 4]], np.float32)}},
    "decoder": {"Slavic": {"d.w": np.array([0.1, -0.0], np.float32), "d.b": np.array([5], np.float32)}},
    "shared": {"everybody": {}},
}


@pytest.fixture
def kept(tmp_path: Path) -> Checkpoints:
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    for number in (1, 2, 3):
        checkpoints.save(number, TENSORS, {"velocity": np.array([number], np.float32)}, {"dev_loss": number / 3})
    return checkpoints


def content(tensors: Tensors) -> dict[str, tuple[str, bytes]]:
    return {name: (str(array.dtype), array.tobytes()) for name, array in tensors.items()}


def test_a_checkpoint_loads_bit_for_bit_as_it_was_kept(kept: Checkpoints) -> None:
    loaded = kept.load(3)
    assert set(loaded.tensors["encoder"]) == {"Germanic", "Romance"}
    assert set(loaded.tensors["decoder"]) == {"Slavic"}
    assert loaded.tensors["shared"] == {}  # nothing is kept of a cluster that has nothing
    for part in ("encoder", "decoder"):
        for cluster, tensors in TENSORS[part].items():  # type: ignore[index]
            assert content(loaded.tensors[part][cluster]) == content(tensors)  # type: ignore[index]
    assert content(loaded.own) == content({"velocity": np.array([3], np.float32)})
    assert loaded.values == {"round": 3, "dev_loss": 1.0}


def test_views_are_stored_as_the_numbers_that_they_show(tmp_path: Path) -> None:
    least = np.sort(np.arange(12, dtype=np.float32).reshape(2, 3, 2) % 5, axis=-1)[..., 0]
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"encoder": {"all": {"w": least}}}, {"m": least.T})
    loaded = checkpoints.load(1)
    assert np.array_equal(loaded.tensors["encoder"]["all"]["w"], least)
    assert np.array_equal(loaded.own["m"], least.T)


def test_equal_content_makes_equal_bytes(kept: Checkpoints, tmp_path: Path) -> None:
    again = Checkpoints(tmp_path / "again")
    again.save(2, TENSORS, {"velocity": np.array([2], np.float32)}, {"dev_loss": 2 / 3})
    for file in (tmp_path / "again" / "0002").iterdir():
        assert file.read_bytes() == (tmp_path / "checkpoints" / "0002" / file.name).read_bytes()


def test_a_cluster_may_have_dots_and_spaces_in_its_name(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"encoder": {"Indo-European. West": {"w": np.ones(1, np.float32)}}})
    assert list(checkpoints.load(1).tensors["encoder"]) == ["Indo-European. West"]


def first_line_only(file: Path) -> None:
    file.write_text(file.read_text().splitlines()[0] + "\n")


def remove(file: Path) -> None:
    file.unlink()


FILES = ("encoder.Romance.safetensors", "strategy.safetensors", "state.json", "checksums")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", [flip, truncate, remove])
def test_a_damaged_checkpoint_is_refused_and_passed_over(kept: Checkpoints, name: str, damage) -> None:  # type: ignore[no-untyped-def]
    damage(kept.directory / "0003" / name)
    with pytest.raises(RunError, match="use another round's checkpoint"):
        kept.load(3)
    found, passed_over = kept.newest_good()
    assert found is not None
    assert found.number == 2
    assert len(passed_over) == 1
    assert "0003" in passed_over[0]


def test_a_list_of_checksums_that_lost_lines_is_refused(kept: Checkpoints) -> None:
    first_line_only(kept.directory / "0003" / "checksums")
    with pytest.raises(RunError, match=r"listed and present files differ in .*state\.json"):
        kept.load(3)


def test_a_file_too_many_is_refused(kept: Checkpoints) -> None:
    (kept.directory / "0003" / "decoder.More.safetensors").write_bytes(b"x")
    with pytest.raises(RunError, match=r"differ in decoder\.More\.safetensors"):
        kept.load(3)


def test_without_a_good_checkpoint_there_is_none(kept: Checkpoints) -> None:
    for number in (1, 2, 3):
        remove(kept.directory / f"{number:04d}" / "checksums")
    found, passed_over = kept.newest_good()
    assert found is None
    assert len(passed_over) == 3


def test_what_else_a_checkpoint_needs_may_refuse_it(kept: Checkpoints) -> None:
    def only_the_first(checkpoint: Checkpoint) -> None:
        if checkpoint.number > 1:
            raise RunError("its best round is gone")

    found, passed_over = kept.newest_good(only_the_first)
    assert found is not None
    assert found.number == 1
    assert passed_over == ["its best round is gone"] * 2


def test_a_round_that_was_not_kept_is_refused_with_those_that_were(kept: Checkpoints) -> None:
    with pytest.raises(RunError, match=r"kept rounds: \[1, 2, 3\]"):
        kept.load(4)


def test_keeping_a_round_again_replaces_it_whole(kept: Checkpoints) -> None:
    kept.save(3, {"encoder": {"Romance": {"e.w": np.zeros(1, np.float32)}}})
    loaded = kept.load(3)
    names = {part: list(clusters) for part, clusters in loaded.tensors.items()}
    assert (names, loaded.own) == ({"encoder": ["Romance"], "decoder": [], "shared": []}, {})
    assert sorted(path.name for path in kept.directory.iterdir()) == ["0001", "0002", "0003"]


def test_a_checkpoint_that_was_broken_off_does_not_count_and_is_swept_up(kept: Checkpoints) -> None:
    (kept.directory / "0004.writing").mkdir()
    assert kept.rounds() == [1, 2, 3]
    kept.prune({2, 3, 11})
    assert sorted(path.name for path in kept.directory.iterdir()) == ["0002", "0003"]
