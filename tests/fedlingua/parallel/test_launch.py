"""Training in two real processes that meet by gloo: the update of one process, and nothing left behind whatever goes wrong."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from fedlingua.config import Scalar, Settings
from fedlingua.config_checks import settings_from
from fedlingua.errors import ConfigError, RunError
from fedlingua.exchange.tensor_sets import Tensors, read_tensors, write_tensors
from fedlingua.exchange.trainable import Trainable, build_trainable
from fedlingua.parallel.job import Job, work
from fedlingua.parallel.launch import check_processes, train_in_processes
from fedlingua.training.batches import TrainingExample
from fedlingua.training.crew import ALONE
from fedlingua.training.loop import LocalResult
from fedlingua.training.masked_language import encode_text
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
    return settings_from({**tiny_run_config, **changes, "clip-norm": 0.5, "schedule": "linear"})


def without_dropout(directory: Path, to: Path) -> Path:
    shutil.copytree(directory, to)
    config = json.loads((to / "config.json").read_text())
    config |= {key: 0.0 for key in config if "dropout" in key or "layerdrop" in key}
    (to / "config.json").write_text(json.dumps(config))
    return to


def job_of(trainable: Trainable, settings: Settings, texts: list[list[Any]], kept: bool = False) -> Job:
    return Job(settings, trainable.initial, texts, SEED, {} if kept else None, (1, 2))


def left_behind() -> list[psutil.Process]:
    return [child for child in psutil.Process().children(recursive=True) if "fedlingua.parallel.worker" in child.cmdline()]


def both(trainable: Trainable, job: Job, log: Path) -> tuple[tuple[LocalResult, Tensors], tuple[LocalResult, Tensors]]:
    """(sums, tensors) of one process alone, and of two."""
    torch.set_num_threads(1)
    alone = work(trainable, dataclasses.replace(job, kept=None if job.kept is None else {}), ALONE)
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
    """The second step is one sentence, of which the second process has no share."""
    settings = dataclasses.replace(settings, optimizer="sgd", learning_rate=0.5)
    trainable = build_trainable(settings)
    alone, together = both(trainable, job_of(trainable, settings, [examples]), tmp_path / "site/processes.log")
    assert alone[0].steps == 4
    assert alone[0].num_examples == 42
    assert_same_update(alone, together, trainable.initial)
    assert not left_behind()


def test_an_optimiser_that_is_kept_comes_back_and_a_whole_encoder_is_trained_alike(
    tiny_encoder: Path, tiny_run_config: dict[str, Scalar], phrases: dict[str, list[str]], tmp_path: Path
) -> None:
    """Sequences carry their tokenizer, and are masked alike in every process."""
    quiet = without_dropout(tiny_encoder, tmp_path / "quiet")
    changes = {"task": "masked-language", "method": "model-fed", "backbone": str(quiet), "processes": 2, "max-tokens": 32}
    settings = settings_from({**tiny_run_config, **changes, "optimizer-epsilon": 1e-3, "micro-tokens": 64})
    trainable = build_trainable(settings)
    texts: list[list[TrainingExample]] = [list(encode_text(phrases["de"][:60], trainable.backbone.codec, 32, 0.15))]  # type: ignore[arg-type]
    job = job_of(trainable, settings, texts, kept=True)
    alone, together = both(trainable, job, tmp_path / "processes.log")
    assert_same_update(alone, together, trainable.initial)
    assert job.kept
    assert {key.rpartition("/")[2] for key in job.kept} == {"step", "exp_avg", "exp_avg_sq"}


def endless(settings: Settings) -> Settings:
    return dataclasses.replace(settings, local_epochs=1_000_000)


def workers(number: int) -> list[psutil.Process]:
    """As soon as there are so many, and they have begun to train: then they have a store of their own to meet in."""
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        found = left_behind()
        if len(found) == number and all(one.net_connections() for one in found):
            return found
        time.sleep(0.1)
    raise AssertionError("the processes did not begin to train")


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


def test_a_process_that_dies_is_told_and_none_is_left(settings: Settings, examples: list[PairExample], tmp_path: Path) -> None:
    settings = endless(settings)
    trainable = build_trainable(settings)
    log = tmp_path / "processes.log"
    thread, raised = in_background(lambda: train_in_processes(trainable, job_of(trainable, settings, [examples]), log))
    second = max(workers(2), key=lambda one: one.environ()["RANK"])
    second.kill()
    thread.join(30)
    assert isinstance(raised[0], RunError)
    told = f"process 2 of 2 that train together failed: was ended by signal 9; {log} has what it printed"
    assert str(raised[0]) == told
    assert not left_behind()


def test_what_a_process_raises_is_told_without_its_words(settings: Settings, examples: list[PairExample], tmp_path: Path) -> None:
    trainable = build_trainable(settings)
    secret = [PairExample([10, 10_000_000], [11, 12]), *examples]
    with pytest.raises(RunError, match=r"process \d of 2 that train together failed: \w+Error at worker.py") as caught:
        train_in_processes(trainable, job_of(trainable, settings, [secret]), tmp_path / "processes.log")
    assert "10000000" not in str(caught.value)
    assert not left_behind()


def test_our_own_words_are_told_as_they_are(settings: Settings, examples: list[PairExample], tmp_path: Path) -> None:
    trainable = build_trainable(settings)
    gone = dataclasses.replace(settings, backbone=str(tmp_path / "gone"))
    with pytest.raises(Exception, match="gone") as caught:
        train_in_processes(trainable, job_of(trainable, gone, [examples]), tmp_path / "processes.log")
    assert "that train together failed" not in str(caught.value)


STARTER = """
import pickle, sys
from pathlib import Path
from fedlingua.exchange.trainable import build_trainable
from fedlingua.parallel.launch import train_in_processes
job = pickle.load(open(sys.argv[1], "rb"))
train_in_processes(build_trainable(job.settings), job, Path(sys.argv[2]))
"""


def test_when_the_one_that_started_them_is_killed_they_end(
    settings: Settings, examples: list[PairExample], tmp_path: Path
) -> None:
    import pickle

    job = job_of(build_trainable(settings), endless(settings), [examples])
    (tmp_path / "job").write_bytes(pickle.dumps(job))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", STARTER, str(tmp_path / "job"), str(tmp_path / "processes.log")]
    starter = subprocess.Popen(command, env=environment)
    try:
        crew = workers(2)
    finally:
        starter.kill()
        starter.wait()
    assert psutil.wait_procs(crew, timeout=20)[1] == []


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
