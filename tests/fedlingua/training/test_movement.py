"""An epoch that leaves a tensor as it is: an error where the tensor should have moved, and nowhere else."""

import dataclasses
from collections.abc import Callable

import pytest
import torch
from torch import nn

from fedlingua.backbones.bottleneck import AdapterConfig, attach_adapters
from fedlingua.backbones.load import Backbone
from fedlingua.backbones.lora import LowRank, attach_lora
from fedlingua.common.errors import RunError
from fedlingua.exchange.tensor_sets import tensor_set
from fedlingua.settings.config import Settings
from fedlingua.training import loop
from fedlingua.training.loop import Movement, train_locally
from fedlingua.training.optimizers import OPTIMIZERS
from fedlingua.training.translation import PairExample

HOW = Settings(batch_size=8, accumulation=1, local_epochs=2, learning_rate=1e-3, whole_steps=True)
HALF = [torch.bfloat16, torch.float16]


def parameter(value: float, gradient: float | None, dtype: torch.dtype = torch.float32) -> nn.Parameter:
    made = nn.Parameter(torch.full((3, 4), value, dtype=dtype))
    made.grad = None if gradient is None else torch.full_like(made, gradient)
    return made


def epoch(parameters: dict[str, nn.Parameter], step: Callable[[], object], rate: float = 0.1) -> None:
    movement = Movement(parameters, rate)
    step()
    movement.check()


@pytest.mark.parametrize("dtype", [torch.float32, *HALF])
@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_every_optimizer_moves_every_dtype_on_a_cpu(name: str, dtype: torch.dtype) -> None:
    """torch 2.13's fused SGD leaves half-precision tensors as they are."""
    moved = parameter(1.0, 0.5, dtype)
    epoch({"moved": moved}, OPTIMIZERS[name]([moved], 0.1, 0.0, 1e-8).step)
    assert torch.allclose(moved.detach().float(), torch.tensor(0.95 if name == "sgd" else 0.9), rtol=1e-2)


@pytest.mark.parametrize("dtype", HALF)
def test_a_tensor_that_a_step_passes_over_is_told_by_name(dtype: torch.dtype) -> None:
    fine, left = parameter(1.0, 0.5), parameter(1.0, 0.5, dtype)
    with pytest.raises(RunError, match="tensor 'left': its gradient is not 0, and an epoch did not move it"):
        epoch({"fine": fine, "left": left}, torch.optim.SGD([fine], lr=0.1).step)


def test_a_tensor_may_stay_where_it_has_no_gradient_or_one_below_rounding() -> None:
    parameters = {
        "moves": parameter(1.0, 0.5),
        "unused": parameter(1.0, None),
        "zero": parameter(1.0, 0.0),
        "rounded": parameter(1.0, 1e-9),
    }
    before = {name: each.detach().clone() for name, each in parameters.items()}
    epoch(parameters, OPTIMIZERS["sgd"]([*parameters.values()], 0.1, 0.0, 1e-8).step)
    assert [name for name, each in parameters.items() if torch.equal(each.detach(), before[name])] == [
        "unused",
        "zero",
        "rounded",
    ]


def test_steps_of_a_gradient_that_is_only_rounding_may_cancel() -> None:
    """A key's bias near 0: each of its steps is one that fp32 has, but the next may take it back."""
    parameters = {"moves": parameter(1.0, 0.5), "noise": parameter(1e-6, 1e-8)}

    def two_steps() -> None:
        optimizer = OPTIMIZERS["sgd"]([*parameters.values()], 0.1, 0.0, 1e-8)
        start = parameters["noise"].detach().clone()
        optimizer.step()
        assert not torch.equal(parameters["noise"].detach(), start)
        parameters["noise"].data.copy_(start)

    epoch(parameters, two_steps)
    parameters["noise"].grad = torch.full_like(parameters["noise"], 1e-6)
    with pytest.raises(RunError, match="tensor 'noise'"):
        epoch(parameters, two_steps)


def test_adams_step_is_rounded_away_however_large_the_gradient() -> None:
    parameters = {"moves": parameter(0.0, 0.5), "rounded": parameter(1.0, 1e6)}
    epoch(parameters, OPTIMIZERS["adam"]([*parameters.values()], 1e-9, 0.0, 1e-8).step, rate=1e-9)
    assert parameters["rounded"].detach().eq(1.0).all()


def test_where_nothing_moves_at_all_that_is_an_error_however_small_the_step() -> None:
    parameters = {"a": parameter(1.0, 1e-3), "b": parameter(2.0, 1e-3)}
    with pytest.raises(RunError, match=r"tensor 'a' and 1 more.*a larger learning-rate than 1e-12"):
        epoch(parameters, OPTIMIZERS["sgd"]([*parameters.values()], 1e-12, 0.0, 1e-8).step, rate=1e-12)


def test_local_training_names_a_tensor_that_its_optimizer_forgets(
    backbone: Backbone, examples: list[PairExample], monkeypatch: pytest.MonkeyPatch
) -> None:
    attach_adapters(backbone.model, AdapterConfig(4), seed=1)
    names = tensor_set(backbone.model, "adapters").names
    forgotten = "model.decoder.layers.1.adapters.fc2.down.weight"
    number = [name for name, _ in backbone.model.named_parameters() if name in set(names)].index(forgotten)

    def forgetful(parameters: list[nn.Parameter], *how: float) -> torch.optim.Optimizer:
        return OPTIMIZERS["adam"]([each for each in parameters if each is not parameters[number]], *how)

    monkeypatch.setattr(loop, "OPTIMIZERS", {"adam": forgetful})
    with pytest.raises(RunError, match=f"tensor '{forgotten}': its gradient is not 0"):
        train_locally(backbone.model, names, [examples], backbone.codec, HOW, "x")


@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
@pytest.mark.parametrize("changes", [{}, {"learning_rate": 1e-6}, {"warmup_steps": 1000}, {"clip_norm": 1e-3}])
@pytest.mark.parametrize("kind", ["adapters", "lora", "full"])
def test_honest_training_is_never_stopped(
    backbone: Backbone, examples: list[PairExample], kind: str, optimizer: str, changes: dict[str, float]
) -> None:
    """In one step an epoch low-rank A has the gradient 0, and a key's bias one that is rounding."""
    if kind == "adapters":
        attach_adapters(backbone.model, AdapterConfig(4), seed=1)
    elif kind == "lora":
        attach_lora(backbone.model, LowRank(), seed=1)
    names = tensor_set(backbone.model, kind).names
    how = dataclasses.replace(HOW, optimizer=optimizer, **changes)  # type: ignore[arg-type]
    train_locally(backbone.model, names, [examples[:8]], backbone.codec, how, "x")
