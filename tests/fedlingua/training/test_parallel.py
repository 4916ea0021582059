"""Training in two real processes that meet by gloo: the update of one process, and nothing left behind whatever goes wrong."""

import dataclasses
import json
import multiprocessing
import pickle
import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from fedlingua.common.errors import ConfigError, RunError, StuckError
from fedlingua.exchange.tensor_sets import read_tensors, write_tensors
from fedlingua.exchange.tensors import Tensors
from fedlingua.exchange.trainable import Trainable, build_trainable
from fedlingua.settings.checks import settings_from
from fedlingua.settings.config import Scalar, Settings
from fedlingua.training import parallel
from fedlingua.training.batches import TrainingExample
from fedlingua.training.loop import LocalResult
from fedlingua.training.masked_language import encode_text
from fedlingua.training.parallel import (
    Failed,
    Job,
    check_processes,
    first_failure,
    train_as_one_of,
    train_in_processes,
)
from fedlingua.training.process_group import ALONE
from fedlingua.training.translation import PairExample

SEED = "2022/site/1"


@pytest.fixture
def settings(tiny_backbone: Path, tiny_run_config: dict[str, Scalar], tmp_path: Path) -> Settings:
    """Two steps an epoch, of two batches and of a sentence alone, on a backbone that drops nothing."""
    quiet = without_dropout(tiny_backbone, tmp_path / "quiet")
    changes = {
        "backbone": str(quiet),
        "batch-size": 10,
        "accumulation": 2,
        "whole-steps": False,
        "local-epochs": 2,
        "processes": 2,
    }
    return settings_from({**tiny_run_config, **changes, "schedule": "linear"})


def without_dropout(directory: Path, to: Path) -> Path:
    shutil.copytree(directory, to)
    config = json.loads((to / "config.json").read_text())
    config |= {key: 0.0 for key in config if "dropout" in key or "layerdrop" in key}
    (to / "config.json").write_text(json.dumps(config))
    return to


def job_of(trainable: Trainable, settings: Settings, texts: list[list[Any]]) -> Job:
    return Job(settings, trainable.initial, texts, SEED, None, (1, 2))


def left_behind() -> list[psutil.Process]:
    children = psutil.Process().children(recursive=True)
    return [child for child in children if any("multiprocessing.spawn" in word for word in child.cmdline())]


def both(trainable: Trainable, job: Job, log: Path) -> tuple[tuple[LocalResult, Tensors], tuple[LocalResult, Tensors]]:
    """(sums, tensors) of one process alone, and of two."""
    torch.set_num_threads(1)
    alone = train_as_one_of(ALONE, trainable, job)
    write_tensors(trainable.model, job.tensors)
    together = train_in_processes(trainable, job, log)
    return (alone.result, alone.tensors), (together, read_tensors(trainable.model, trainable.trained))


def assert_same_update(one: tuple[LocalResult, Tensors], other: tuple[LocalResult, Tensors], start: Tensors) -> None:
    assert (one[0].num_tokens, one[0].num_examples, one[0].steps) == (other[0].num_tokens, other[0].num_examples, other[0].steps)
    assert one[0].nll_sum == pytest.approx(other[0].nll_sum, rel=1e-5)
    moved = max(float(np.abs(tensor - start[name]).max()) for name, tensor in one[1].items())
    assert moved > 1e-3
    for name, tensor in one[1].items():
        np.testing.assert_allclose(other[1][name], tensor, rtol=0, atol=1e-5)


def test_two_processes_make_the_update_of_one(settings: Settings, examples: list[PairExample], tmp_path: Path) -> None:
    """The second step is one sentence, of which the second process has no share. Steps of SGD are as long as their gradients."""
    settings = dataclasses.replace(settings, optimizer="sgd", learning_rate=0.1)
    trainable = build_trainable(settings)
    alone, together = both(trainable, job_of(trainable, settings, [examples]), tmp_path / "site/processes.log")
    assert alone[0].steps == 4
    assert alone[0].num_examples == 42
    assert_same_update(alone, together, trainable.initial)
    assert not left_behind()


def test_a_job_of_masked_text_with_an_optimizer_survives_the_pipe(
    tiny_encoder: Path, tiny_run_config: dict[str, Scalar], phrases: dict[str, list[str]]
) -> None:
    """Sequences carry their tokenizer, and are masked alike in every process."""
    changes = {"task": "masked-language", "method": "model-fed", "backbone": str(tiny_encoder), "max-tokens": 32}
    settings = settings_from({**tiny_run_config, **changes, "memory.micro-tokens": 64, "clip-norm": 0.5})
    trainable = build_trainable(settings)
    texts: list[list[TrainingExample]] = [list(encode_text(phrases["de"][:30], trainable.backbone.codec, 32, 0.15))]  # type: ignore[arg-type]
    job = Job(settings, trainable.initial, texts, SEED, {}, (1, 2))
    arrived = pickle.loads(pickle.dumps(job))
    first, second = (train_as_one_of(ALONE, trainable, each) for each in (job, arrived))
    assert first.result.nll_sum == second.result.nll_sum
    assert all(np.array_equal(tensor, second.tensors[name]) for name, tensor in first.tensors.items())
    assert first.optimizer is not None
    assert {key.rpartition("/")[2] for key in first.optimizer} == {"step", "exp_avg", "exp_avg_sq"}
    assert list(second.optimizer or {}) == list(first.optimizer)


def second_process() -> multiprocessing.process.BaseProcess:
    ends = time.monotonic() + 300
    while not (training := [each for each in multiprocessing.active_children() if each.name == "training-2"]):
        assert time.monotonic() < ends, "the processes did not begin"
        time.sleep(0.02)
    return training[0]


def in_background(do: Callable[[], Any]) -> tuple[threading.Thread, list[BaseException]]:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            do()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, raised


def test_a_process_that_dies_is_told_and_none_is_left(
    settings: Settings, examples: list[PairExample], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The other one waits for it, and is ended."""
    monkeypatch.setattr(parallel, "GRACE_S", 0.1)
    trainable = build_trainable(settings)
    log = tmp_path / "processes.log"
    thread, raised = in_background(lambda: train_in_processes(trainable, job_of(trainable, settings, [examples]), log))
    second_process().kill()
    thread.join(120)
    assert isinstance(raised[0], RunError)
    told = f"process 2 of 2 that train together failed: was ended by signal 9; {log} has what it printed"
    assert str(raised[0]) == told
    assert not left_behind()


def test_what_a_process_raises_is_told_without_its_words(
    settings: Settings, examples: list[PairExample], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(parallel, "DistributedGroup", lambda *_: ALONE)
    secret = [PairExample([10, 10_000_000], [11, 12]), *examples]
    answer = parallel._trained(0, job_of(build_trainable(settings), settings, [secret]), tmp_path / "meeting")
    assert isinstance(answer, Failed)
    assert re.fullmatch(r"\w+Error at \w+\.py:\d+.*", answer.where), answer.where
    assert "10000000" not in answer.where
    ours = parallel._trained(0, job_of(build_trainable(settings), dataclasses.replace(settings, backbone="x"), []), tmp_path)
    assert isinstance(ours, Failed)
    assert "backbone" in ours.reason


@pytest.mark.parametrize("error", [StuckError("an epoch did not move it"), RunError("no memory")])
def test_a_training_that_is_stuck_is_told_from_one_that_fails(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: RunError
) -> None:
    def fails(*_: Any) -> Any:
        raise error

    trainable = build_trainable(settings)
    monkeypatch.setattr(parallel, "DistributedGroup", fails)
    failed = parallel._trained(0, job_of(trainable, settings, []), tmp_path / "meeting")
    monkeypatch.setattr(parallel, "_answers", lambda *_: {0: failed, 1: Failed(where="E at x")})
    with pytest.raises(RunError, match=str(error)) as raised:
        parallel.train_in_processes(trainable, job_of(trainable, settings, []), tmp_path / "log")
    assert type(raised.value) is type(error)


def test_the_failure_that_others_come_from_is_told() -> None:
    ours, died, hung_up = (
        Failed(reason="a training step runs out of memory"),
        Failed(where="was ended by signal 9"),
        Failed(where="E at x"),
    )
    log = Path("p.log")
    assert first_failure({0: hung_up, 1: died, 2: ours}, 3, log) == "a training step runs out of memory"
    told = "process 2 of 2 that train together failed: was ended by signal 9; p.log has what it printed"
    assert first_failure({0: hung_up, 1: died}, 2, log) == told


def test_more_processes_than_gpus_are_refused(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    for seen, told in ((0, "a site sees 0 GPU"), (1, "a site sees 1 GPU"), (2, "")):
        monkeypatch.setattr(torch.cuda, "device_count", lambda seen=seen: seen)
        asked = dataclasses.replace(settings, device="cuda")
        if told:
            with pytest.raises(ConfigError, match=f"processes = 2, and {told}.*give processes = 1 or less"):
                check_processes(asked)
        else:
            check_processes(asked)
    check_processes(settings)
