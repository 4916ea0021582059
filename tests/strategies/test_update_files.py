"""Large updates wait in files: the same numbers, no memory, and nothing left behind."""

import tracemalloc

import numpy as np
import pytest

from fedlingua.errors import RunError
from fedlingua.exchange.joined import Joined
from fedlingua.exchange.tensor_sets import TensorSet, TensorSpec
from strategies.aggregation import Update, fed_mean
from strategies.update_files import UpdateFiles

CHOSEN = TensorSet("toy", (TensorSpec("e", (2, 2), "encoder", 0), TensorSpec("s", (3,), "shared", None)))


def toy() -> Joined:
    return Joined({"encoder": np.array([1, 2, 3, 4], np.float32), "shared": np.array([5, 6, 7], np.float32)}, CHOSEN)


def test_a_small_update_stays_in_memory(tmp_path):
    update = toy()
    assert UpdateFiles(tmp_path, 3, large=4 * 7 + 1).keep("a", update) is update
    assert list(tmp_path.iterdir()) == []


def test_a_large_one_reads_the_same_from_its_file(tmp_path):
    kept = UpdateFiles(tmp_path, 3, large=4 * 7).keep("a", toy())
    assert [file.name for file in (tmp_path / ".updates").iterdir()] == ["a.f32"]
    assert {name: tensor.tolist() for name, tensor in kept.items()} == {"e": [[1, 2], [3, 4]], "s": [5, 6, 7]}
    assert kept.parts["encoder"][1:3].tolist() == [2, 3]
    assert kept.parts["shared"][2:9].tolist() == [7]
    assert len(kept.parts["shared"]) == 3
    assert kept.of_part("shared")["s"].tolist() == [5, 6, 7]


def test_clearing_removes_what_this_run_and_what_a_killed_one_has_left(tmp_path):
    UpdateFiles(tmp_path, 3, large=0).keep("a", toy())
    UpdateFiles(tmp_path, 3).clear()
    assert list(tmp_path.iterdir()) == []
    UpdateFiles(tmp_path, 3).clear()


def test_a_disk_that_is_full_is_named_with_what_to_do(tmp_path):
    (tmp_path / ".updates").write_text("no folder can be made here")
    with pytest.raises(RunError, match=r"update of site a cannot be kept .* wanted 28 bytes for each site; make room"):
        UpdateFiles(tmp_path, 3, large=0).keep("a", toy())


def test_the_memory_of_a_fold_does_not_grow_with_the_sites(tmp_path):
    length = 1 << 19
    chosen = TensorSet("long", tuple(TensorSpec(f"w{n}", (length // 8,), "encoder", n) for n in range(8)))

    def peak(sites: int) -> int:
        files = UpdateFiles(tmp_path, 3, large=0)
        tracemalloc.start()
        try:
            updates = []
            for number in range(sites):
                arrived = Joined({"encoder": np.full(length, number, np.float32)}, chosen)
                updates.append(Update(str(number), files.keep(str(number), arrived), 1))
                del arrived
            assert fed_mean(updates)["w7"][0] == pytest.approx((sites - 1) / 2)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            files.clear()

    assert peak(12) < 1.1 * peak(3) < 1.1 * 2 * 4 * length
