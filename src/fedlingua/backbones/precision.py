"""What dtype a model is held in, and what it computes in: what trains is fp32, since half precision rounds its steps away (Micikevicius et
al. 2018, §3.1); frozen weights may be half, and casts happen in the forward pass alone.
"""

from collections.abc import Callable, Collection
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from fedlingua.common.devices import computed_in


def autocast(model: PreTrainedModel, precision: str) -> Any:
    """bf16 arithmetic if requested and supported by the device; fp32 otherwise."""
    half = computed_in(precision, model.device.type) == "bf16"
    return torch.autocast(model.device.type, torch.bfloat16) if half else nullcontext()


def allow_tf32(precision: str, device: str) -> None:
    """Let a GPU's fp32 products round what they multiply to TF32's 10 bits, or no longer; a CPU's stay what they are."""
    if device == "cuda":
        torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")


def hold(model: PreTrainedModel, trained: Collection[str], precision: str, device: str) -> None:
    """Put the model on its device: the trained parameters in fp32, frozen ones in bf16 where the run computes in it.

    On a CPU frozen fp32 weights stay, since a cast would give every process a copy of its own. Beside frozen bf16 weights a module with
    fp32 parameters computes in fp32 and returns the dtype that it got, so that every forward pass works, under autocast or not.
    """
    parameters = dict(model.named_parameters())
    masters = {name: parameters[name].detach().float() for name in trained}  # before the cast, which rounds
    in_half = computed_in(precision, device) == "bf16" and (device == "cuda" or model.dtype != torch.float32)
    model.to(dtype=torch.bfloat16 if in_half else torch.float32)  # type: ignore[call-arg]  # hidden by transformers' decorator
    for name, master in masters.items():
        parameters[name].data = master
    model.to(torch.device(device))  # type: ignore[arg-type]  # as above
    if in_half:
        for path, module in model.named_modules():
            if any(f"{path}.{name}" in masters for name, _ in module.named_parameters(recurse=False)):
                module.forward = _in_fp32(module.forward)


def _in_fp32(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda hidden: forward(hidden.float()).to(hidden.dtype)
