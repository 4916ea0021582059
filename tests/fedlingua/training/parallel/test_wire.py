"""A job and its answer come off the wire as they went on it."""

import io
from typing import cast

import numpy as np
import pytest

from fedlingua.backbones.codec import Codec, TextCodec
from fedlingua.backbones.load import Backbone
from fedlingua.settings.checks import settings_from
from fedlingua.settings.experiment import default_run_config
from fedlingua.training.loop import LocalResult
from fedlingua.training.masked_language import TextExample
from fedlingua.training.parallel.job import Done, Failed, Job
from fedlingua.training.parallel.wire import ReadJob, answer_bytes, read_answer, write_job
from fedlingua.training.translation import PairExample

TENSORS = {"b.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.array([], dtype=np.float32)}
KEPT = {"step of b.weight": np.array(3.0, dtype=np.float32), "exp_avg": np.ones((2, 3), dtype=np.float32).T}
PAIRS = [PairExample([4, 5, 6], [7]), PairExample([], [8, 9])]


def passed(job: Job, codec: Codec) -> Job:
    wire = io.BytesIO()
    write_job(job, wire)
    wire.write(b"what comes after it")
    wire.seek(0)
    return ReadJob(wire).job(codec)


def same(ours: dict[str, np.ndarray] | None, theirs: dict[str, np.ndarray] | None) -> None:
    assert ours is not None
    assert theirs is not None
    assert list(ours) == list(theirs)
    for name, array in ours.items():
        assert theirs[name].dtype == array.dtype
        assert theirs[name].shape == array.shape
        np.testing.assert_array_equal(theirs[name], array)


@pytest.mark.parametrize("kept", [None, KEPT])
def test_a_job_of_pairs(kept: dict[str, np.ndarray] | None) -> None:
    settings = settings_from({**default_run_config(), "seed": 9, "processes": 2})
    job = Job(settings, TENSORS, [PAIRS, []], "9/site/3", kept, (3, 7))
    read = passed(job, cast(Codec, None))
    assert (read.settings, read.seed, read.this_round) == (settings, "9/site/3", (3, 7))
    assert read.texts == [PAIRS, []]
    same(TENSORS, read.tensors)
    if kept is None:
        assert read.kept is None
    else:
        same(kept, read.kept)


def test_a_job_of_masked_text(encoder: Backbone) -> None:
    codec = encoder.codec
    assert isinstance(codec, TextCodec)
    texts = [[TextExample([4, 5, 6], codec, 0.15), TextExample([7], codec, 0.15)]]
    settings = settings_from(default_run_config())
    assert passed(Job(settings, {}, texts, "s", None, (1, 1)), codec).texts == texts


def test_answers() -> None:
    result = LocalResult(1.5, 20, 4, 2, 0.25)
    read = read_answer(answer_bytes(Done(result, TENSORS, KEPT)))
    assert isinstance(read, Done)
    assert read.result == result
    same(TENSORS, read.tensors)
    same(KEPT, read.kept)
    without = read_answer(answer_bytes(Done(result, {}, None)))
    assert isinstance(without, Done)
    assert without.kept is None
    assert read_answer(answer_bytes(Failed(told="why", where="there"))) == Failed(told="why", where="there")


def test_what_a_process_that_died_left_is_no_answer() -> None:
    whole = answer_bytes(Done(LocalResult(1.5, 20, 4, 2, 0.25), TENSORS, None))
    for left in (b"", whole[:5], whole[:-1]):
        assert read_answer(left) is None
