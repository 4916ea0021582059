"""A site that trains in several processes: its job holds all that training takes, so a group of one gives the run's own bytes."""

from pathlib import Path
from typing import Any

import pytest

from clients import site_client
from fedlingua.exchange.tensor_sets import write_tensors
from fedlingua.exchange.trainable import Trainable
from fedlingua.training.loop import LocalResult
from fedlingua.training.parallel import Job, train_as_one_of
from fedlingua.training.process_group import ALONE
from tests.in_process import checkpoint_bytes, run


@pytest.mark.parametrize(
    "keys",
    [{"method": "adapter-fed"}, {"method": "adapter-local", "optimizer-state": "kept", "schedule": "cosine"}],
    ids=["federated", "kept"],
)
def test_a_job_holds_all_that_training_takes(
    four_sites: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any]
) -> None:
    logs: set[Path] = set()

    def as_a_group_of_one(trainable: Trainable, job: Job, log: Path) -> LocalResult:
        logs.add(log)
        write_tensors(trainable.model, {name: 0 * tensor for name, tensor in job.tensors.items()})  # none but the job's are used
        return train_as_one_of(ALONE, trainable, job).result

    monkeypatch.setattr(site_client, "train_in_processes", as_a_group_of_one)
    plain, _ = run({**four_sites, **keys}, tmp_path / "plain")
    assert not logs
    several, _ = run({**four_sites, **keys, "processes": 2}, tmp_path / "several")
    assert checkpoint_bytes(several) == checkpoint_bytes(plain)
    assert logs == {tmp_path / f"several/sites/{site}/processes.log" for site in ("hospital", "court", "school", "bank")}
