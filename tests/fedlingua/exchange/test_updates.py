"""Large updates wait in files: the same numbers, no memory, and nothing left behind."""

import tracemalloc
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fedlingua.common.errors import RunError
from fedlingua.exchange.joined import EndToEnd, Joined
from fedlingua.exchange.selected import Selection
from fedlingua.exchange.tensors import TensorSet, TensorSpec
from fedlingua.exchange.updates import BUDGET, LARGE, Scaled, Update, UpdateFiles, scaled
from strategies.aggregation.mean import equally, inner_cluster_aggregation
from strategies.methods.server_optimizer import pseudo_gradient
from tests.means import fed_mean, weighted_mean

CHOSEN = TensorSet("toy", (TensorSpec("e", (2, 2), "encoder", 0), TensorSpec("s", (3,), "shared", None)))


def toy() -> Joined:
    return Joined({"encoder": np.array([1, 2, 3, 4], np.float32), "shared": np.array([5, 6, 7], np.float32)}, CHOSEN)


def test_a_small_update_stays_in_memory(tmp_path):
    update = toy()
    assert UpdateFiles(tmp_path, 3, large=4 * 7 + 1).store("a", update) is update
    assert list(tmp_path.iterdir()) == []


def test_a_large_one_reads_the_same_from_its_file(tmp_path):
    kept = UpdateFiles(tmp_path, 3, large=4 * 7).store("a", toy())
    assert [file.name for file in (tmp_path / ".updates").iterdir()] == ["a.f32"]
    assert {name: tensor.tolist() for name, tensor in kept.items()} == {"e": [[1, 2], [3, 4]], "s": [5, 6, 7]}
    assert kept.parts["encoder"][1:3].tolist() == [2, 3]
    assert kept.parts["shared"][2:9].tolist() == [7]
    assert len(kept.parts["shared"]) == 3
    assert kept.of_part("shared")["s"].tolist() == [5, 6, 7]


def test_the_more_sites_the_smaller_the_updates_that_wait_in_files(tmp_path: Path) -> None:
    assert UpdateFiles(tmp_path, 1).large == LARGE
    assert UpdateFiles(tmp_path, 100).large == BUDGET // 100 < LARGE


def test_clearing_removes_what_this_run_and_what_a_killed_one_has_left(tmp_path):
    UpdateFiles(tmp_path, 3, large=0).store("a", toy())
    UpdateFiles(tmp_path, 3).clear()
    assert list(tmp_path.iterdir()) == []
    UpdateFiles(tmp_path, 3).clear()


def test_a_disk_that_is_full_is_named_with_what_to_do(tmp_path):
    (tmp_path / ".updates").write_text("no folder can be made here")
    with pytest.raises(RunError, match=r"update of site a cannot be kept .* wanted 28 bytes for each site; make room"):
        UpdateFiles(tmp_path, 3, large=0).store("a", toy())


LENGTH = 1 << 21
LONG = TensorSet("long", tuple(TensorSpec(f"w{n}", (LENGTH // 8,), "encoder", n) for n in range(8)))
ALL = {"encoder": {"all": tuple(map(str, range(12)))}, "decoder": {"all": ()}, "shared": {"all": ()}}


@pytest.mark.parametrize("steps", [False, True])
def test_neither_does_that_of_a_fold_of_what_sites_selected(tmp_path, steps):
    start = {"encoder": {"all": {name: np.zeros(LENGTH // 8, np.float32) for name in LONG.names}}, "decoder": {}, "shared": {}}

    def peak(sites: int) -> int:
        files = UpdateFiles(tmp_path, 3, large=0)
        tracemalloc.start()
        try:
            updates = {}
            for number in range(sites):
                arrived = Joined({"encoder": np.full(LENGTH, number, np.float32)}, LONG)
                half = Selection(LONG, np.isin(LONG.names, LONG.names[:4] if number % 2 else LONG.names[4:]))
                updates[str(number)] = Update(str(number), files.store(str(number), arrived), 1, half)
                del arrived
            combine = partial(weighted_mean, by=equally)
            combine = partial(pseudo_gradient, combine=combine) if steps else combine
            new = inner_cluster_aggregation(start, updates, LONG, ALL, combine)["encoder"]["all"]
            senders = [number for number in range(sites) if number % 2 == 0]
            mean = sum(senders) / sites
            assert new["w7"][0] == pytest.approx(-mean if steps else mean)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            files.clear()

    assert peak(12) < 1.15 * peak(3)


def test_the_memory_of_a_fold_does_not_grow_with_the_sites(tmp_path):
    before = {name: np.zeros(LENGTH // 8, np.float32) for name in LONG.names}

    def peak(sites: int) -> int:
        files = UpdateFiles(tmp_path, 3, large=0)
        tracemalloc.start()
        try:
            updates = []
            for number in range(sites):
                arrived = Joined({"encoder": np.full(LENGTH, number, np.float32)}, LONG)
                updates.append(Update(str(number), files.store(str(number), arrived), 1))
                del arrived
            assert fed_mean(before, updates)["w7"][0] == pytest.approx((sites - 1) / 2)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            files.clear()

    few, many = peak(3), peak(12)
    assert few < 2 * 4 * LENGTH
    assert many < 1.5 * few  # four times as many sites; which blocks are read at the same time differs from run to run


@pytest.mark.parametrize("large", [0, 10**6])
def test_what_is_kept_comes_back_as_a_copy_of_its_type(large: int, tmp_path: Path) -> None:
    files, numbers = UpdateFiles(tmp_path, 3, large=large), np.arange(5, dtype=np.uint8)
    given = files.keep("north", "encoder", numbers)
    assert (tmp_path / ".updates" / "north.encoder.npy").is_file() == (large == 0)
    numbers += 1 if large == 0 else 0
    again = given()
    again += 7
    assert given().tolist() == [0, 1, 2, 3, 4]
    assert given().dtype == np.uint8


def test_each_parts_tensors_are_scaled_by_their_own_factors() -> None:
    chosen = TensorSet("two", (TensorSpec("e", (2,), "encoder", 0), TensorSpec("d", (2,), "decoder", 0)))
    start = {part: np.zeros(2, np.float32) for part in ("encoder", "decoder")}
    update = Update("a", Joined({part: np.ones(2, np.float32) for part in start}, chosen), 1)
    halved = scaled(update, start, np.array([1.0, 0.5])).tensors
    assert {name: tensor.tolist() for name, tensor in halved.items()} == {"e": [1, 1], "d": [0.5, 0.5]}


def test_a_tensor_that_is_taken_whole_keeps_its_bytes() -> None:
    start = EndToEnd([np.array([0.1, 0.2], np.float32), np.array([0.3, 0.4, 0.5], np.float32)])
    own = np.array([1.1, 1.2, 1.3, 1.4, 1.5], np.float32)
    halved = Scaled(own, start, start, np.array([0, 3, 5]), np.array([1.0, 0.5], np.float32))
    assert halved[0:3].tolist() == own[:3].tolist()
    assert halved[2:5].tolist() == pytest.approx([1.3, 0.9, 1.0])
    assert (len(halved), len(halved[4:2])) == (5, 0)
