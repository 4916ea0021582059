"""Whole federations whose sites train with options: same seed, same bytes, and what an option is of all rounds is of all rounds."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fedlingua.runs.folder import RunFolder
from tests.in_process import checkpoint_bytes, rounds, run

OPTIONS = {
    "tokens-per-batch": 200,
    "accumulation": 2,
    "schedule": "cosine",
    "warmup-steps": 2,
    "clip-norm": 1.0,
    "label-smoothing": 0.1,
    "memory.micro-tokens": 70,
    "memory.head-chunk": 16,
    "memory.gradient-checkpointing": True,
}


@pytest.fixture(params=["translation", "masked-language"])
def config(request: pytest.FixtureRequest, four_sites: dict[str, Any]) -> dict[str, Any]:
    if request.param == "translation":
        return {**four_sites, "method": "adapter-fed"}
    return {**request.getfixturevalue("four_texts"), "method": "model-fed"}


@pytest.fixture(scope="module")
def made() -> dict[str, RunFolder]:
    return {}


@pytest.fixture
def plain(config: dict[str, Any], tmp_path: Path, made: dict[str, RunFolder]) -> RunFolder:
    """The task's run without an option; tests only read it."""
    if config["task"] not in made:
        made[config["task"]], _ = run(config, tmp_path / "plain")
    return made[config["task"]]


def test_a_run_with_all_options_is_the_same_again_whatever_the_number_of_nodes(config, plain, tmp_path):
    first, _ = run({**config, **OPTIONS}, tmp_path / "first", num_nodes=2)
    again, _ = run({**config, **OPTIONS}, tmp_path / "again", num_nodes=4, shuffle_seed=3)
    assert checkpoint_bytes(first) == checkpoint_bytes(again) != checkpoint_bytes(plain)
    assert first.read("run.json")["config_hash"] == again.read("run.json")["config_hash"]
    assert first.read("run.json")["config_hash"] != plain.read("run.json")["config_hash"]


def test_layers_computed_again_leave_a_run_bit_for_bit(config, plain, tmp_path):
    again, _ = run({**config, "memory.gradient-checkpointing": True}, tmp_path / "again")
    assert checkpoint_bytes(again) == checkpoint_bytes(plain)


def test_a_head_in_chunks_leaves_the_losses(config, plain, tmp_path):
    chunks, _ = run({**config, "memory.head-chunk": 7}, tmp_path / "chunks")
    for one, other in zip(rounds(plain), rounds(chunks), strict=True):
        assert one["dev_loss"] == pytest.approx(other["dev_loss"], rel=1e-4)


def test_a_schedule_goes_on_from_round_to_round(four_sites, tmp_path, monkeypatch):
    """Of one site, whose steps are as many in every round."""
    rates: list[float] = []
    step = torch.optim.Adam.step

    def noted(self: torch.optim.Adam, *rest: Any) -> Any:
        rates.append(self.param_groups[0]["lr"])
        return step(self, *rest)

    monkeypatch.setattr(torch.optim.Adam, "step", noted)
    linear = {**four_sites, "method": "centralized-adapter", "schedule": "linear", "learning-rate": 0.9, "rounds": 3}
    run(linear, tmp_path / "run", num_nodes=1)
    assert len(rates) % 3 == 0
    assert rates == pytest.approx([0.9 * left / len(rates) for left in range(len(rates), 0, -1)])
