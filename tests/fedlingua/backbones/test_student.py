"""Students: the scan beside a loop over time, and a decoder that keeps one state a layer beside one that reads the whole prefix."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedlingua.backbones.load import load_backbone
from fedlingua.backbones.student import SSRU, StudentModel, _Recurrence, scan


def looped(decay: Tensor, inputs: Tensor) -> Tensor:
    state, states = torch.zeros_like(inputs[:, 0]), []
    for place in range(inputs.shape[1]):
        state = decay[:, place] * state + inputs[:, place]
        states.append(state)
    return torch.stack(states, 1)


@pytest.mark.parametrize("length", [1, 2, 3, 7, 64, 129])
def test_the_scan_is_the_loop_in_value_and_gradient(length: int) -> None:
    torch.manual_seed(length)
    ours = [torch.rand(3, length, 5, requires_grad=True), torch.randn(3, length, 5, requires_grad=True)]
    theirs = [each.detach().clone().requires_grad_() for each in ours]
    weights = torch.randn(3, length, 5)
    states = _Recurrence.apply(*ours), looped(*theirs)
    torch.testing.assert_close(*states, rtol=1e-5, atol=1e-5)
    for state in states:
        (state * weights).sum().backward()
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our.grad, their.grad, rtol=1e-5, atol=1e-5)


def test_the_scan_leaves_what_it_is_given_as_it_was() -> None:
    decay, inputs = torch.rand(1, 4, 2), torch.randn(1, 4, 2)
    before = decay.clone(), inputs.clone()
    scan(decay, inputs)
    assert torch.equal(decay, before[0])
    assert torch.equal(inputs, before[1])


def test_a_unit_is_the_published_formula() -> None:
    torch.manual_seed(1)
    unit, given = SSRU(4, 0), torch.randn(2, 5, 4)
    forget = torch.sigmoid(given @ unit.forget.weight.T + unit.forget.bias)
    by_hand = torch.relu(looped(forget, (1 - forget) * (given @ unit.input.weight.T)))
    torch.testing.assert_close(unit(given)[0], by_hand)


@pytest.mark.parametrize("beam", [1, 3])
def test_translating_with_the_state_kept_is_translating_with_the_whole_prefix(
    family_folder: Callable[[str], Path], beam: int
) -> None:
    model = load_backbone(family_folder("student")).model
    assert isinstance(model, StudentModel)
    ids = torch.randint(2, 150, (4, 9), generator=torch.Generator().manual_seed(3))
    how = {"input_ids": ids, "num_beams": beam, "max_new_tokens": 24, "do_sample": False}
    assert torch.equal(model.generate(**how, use_cache=True), model.generate(**how, use_cache=False))


ALONE = """
import sys
sys.modules["fedlingua"] = None
import torch
from transformers import AutoModelForSeq2SeqLM
model = AutoModelForSeq2SeqLM.from_pretrained(sys.argv[1], trust_remote_code=True)
print(*model.generate(input_ids=torch.tensor([[5, 6, 7, 0]]), max_new_tokens=9)[0].tolist())
"""


def test_what_is_saved_is_loaded_by_transformers_alone(family_folder: Callable[[str], Path], tmp_path: Path) -> None:
    model = load_backbone(family_folder("student")).model
    model.save_pretrained(tmp_path / "saved")
    env = {**os.environ, "HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HUB_OFFLINE": "1"}
    alone = subprocess.run(
        [sys.executable, "-c", ALONE, tmp_path / "saved"], env=env, capture_output=True, text=True, check=False
    )
    assert alone.returncode == 0, alone.stderr
    ours = model.generate(input_ids=torch.tensor([[5, 6, 7, 0]]), max_new_tokens=9)[0].tolist()
    assert list(map(int, alone.stdout.split())) == ours


def test_positions_are_marians_and_no_parameters(family_folder: Callable[[str], Path]) -> None:
    model = load_backbone(family_folder("student")).model
    assert not [name for name, _ in model.named_parameters() if "positions" in name]
    made = model.model.encoder.embed_positions(torch.Size([1, 6]))
    assert made[5, 0].item() == pytest.approx(torch.sin(torch.tensor(5.0)).item())
    assert made[5, 31].item() == pytest.approx(torch.cos(torch.tensor(5.0) / 10000).item())
