"""What a site makes of tensors that come or are named: stored by round, found by hash, refused where the two differ."""

import numpy as np
import pytest
from flwr.app import RecordDict

from fedlingua.common.errors import ExchangeError
from fedlingua.exchange import protocol
from fedlingua.exchange.held import NamedState, NotHeldError, digests_of, identity
from fedlingua.exchange.received import ReceivedFiles
from fedlingua.exchange.records import pack
from fedlingua.exchange.tensors import TensorSet, TensorSpec

SET = TensorSet("adapters", (TensorSpec("e", (3,), "encoder", 0), TensorSpec("d", (2,), "decoder", 0)))


def tensors(value):
    return {"e": np.full(3, value, np.float32), "d": np.full(2, -value, np.float32)}


def content(value, number, without=(), keep=0, digests=None):
    arrays = pack(tensors(value), SET)
    for part in without:
        del arrays[part]
    state = NamedState(number, keep, digests or digests_of(tensors(value), SET))
    return RecordDict({protocol.ARRAYS: arrays, protocol.STATE: state.record()})


@pytest.fixture
def files(tmp_path):
    return ReceivedFiles(tmp_path / "received", SET, tensors(0.5), last=4)


def same(received, value):
    return all(np.array_equal(received[name], array) for name, array in tensors(value).items())


def test_what_came_is_found_by_its_hash(files):
    assert same(files.receive(content(1, 1)), 1)
    assert same(files.receive(content(1, 1, without=("encoder", "decoder"))), 1)
    assert same(files.receive(content(1, 2, without=("encoder",))), 1)


def test_what_everybody_starts_from_is_here_without_a_file(files):
    assert same(files.receive(content(0.5, 0, without=("encoder", "decoder"))), 0.5)
    assert not files.directory.exists()


def test_what_is_not_here_is_said(files):
    files.receive(content(1, 1))
    with pytest.raises(NotHeldError, match="'decoder' with the hash"):
        files.receive(content(2, 2, without=("decoder",)))


def test_other_tensors_than_the_hash_says_are_refused_and_not_stored(files):
    wrong = content(1, 1, digests=digests_of(tensors(2), SET))
    with pytest.raises(ExchangeError, match="'encoder' of a request is not what its hash says"):
        files.receive(wrong)
    assert not files.directory.exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda records: records[protocol.STATE].pop("decoder"), "decoder is wrong"),
        (lambda records: records[protocol.STATE].update(extra="00"), "extra is wrong"),
        (lambda records: records[protocol.STATE].update(encoder=7), "wanted two rounds, and a hash for each part"),
        (lambda records: records[protocol.STATE].update(round=-1), "wanted two rounds"),
        (lambda records: records[protocol.STATE].pop("keep"), "wanted two rounds"),
        (
            lambda records: records.update(
                {protocol.ARRAYS: pack({"e": np.full(3, np.nan, np.float32), "d": tensors(1)["d"]}, SET)}
            ),
            "hash",
        ),
    ],
)
def test_a_state_that_is_none_is_refused(files, change, words):
    records = content(1, 1)
    change(records)
    with pytest.raises(ExchangeError, match=words):
        files.receive(records)


def test_nothing_that_is_not_finite_is_taken(files):
    broken = {"e": np.full(3, np.nan, np.float32), "d": tensors(1)["d"]}
    state = NamedState(1, 0, digests_of(broken, SET))
    with pytest.raises(ExchangeError, match="NaN or infinity"):
        files.receive(RecordDict({protocol.ARRAYS: pack(broken, SET), protocol.STATE: state.record()}))


def test_the_last_rounds_and_the_best_stay(files):
    for number in range(1, 9):
        files.receive(content(number, number, keep=2))
    assert sorted(int(file.stem) for file in files.directory.iterdir()) == [2, 5, 6, 7, 8]
    assert [float(received["e"][0]) for received in files.last_rounds(8)] == [5, 6, 7]
    assert len(files.last_rounds(2)) == 4


def test_rounds_of_a_server_that_died_since_go(files):
    for number in (1, 2, 3):
        files.receive(content(number, number))
    files.receive(content(9, 2))
    assert [float(received["e"][0]) for received in files.last_rounds(0)] == [1, 9]


def test_one_request_whether_its_tensors_come_or_are_named():
    whole, named = content(1, 3), content(1, 3, without=("encoder", "decoder"))
    assert identity(whole) == identity(named) != identity(content(2, 3))
    plain = RecordDict({protocol.ARRAYS: pack(tensors(1), SET)})
    assert identity(plain) == plain.object_id


def test_a_state_that_is_an_array_is_refused():
    with pytest.raises(ExchangeError, match="a request's state is a ArrayRecord; wanted a ConfigRecord"):
        identity(RecordDict({protocol.STATE: pack(tensors(1), SET)}))
