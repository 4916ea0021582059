"""The dtypes of a model: trained tensors are fp32, since half precision rounds small steps away (Micikevicius et al. 2018,
§3.1); frozen weights may be bf16, and casts happen in the forward pass alone.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from fedlingua.backbones.quantized import quantize
from fedlingua.common.devices import computed_in


def autocast(model: PreTrainedModel, precision: str) -> Any:
    """Return a context of bf16 arithmetic if that is requested and supported by the device; otherwise of fp32.

    A model that `hold` left in bf16 needs no context: its activations are bf16, so nothing is cast between its layers.
    """
    half = computed_in(precision, model.device.type) == "bf16" and model.dtype != torch.bfloat16
    return torch.autocast(model.device.type, torch.bfloat16) if half else nullcontext()


@contextmanager
def whole_products() -> Iterator[None]:
    """Multiply matrices of fp32 numbers without TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def allow_tf32(precision: str, device: str) -> None:
    """Let a GPU round factors of fp32 products to TF32's 10 bits if the precision is tf32, else not; no effect on a CPU."""
    if device == "cuda":
        torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")


def hold(model: PreTrainedModel, trained: Collection[str], precision: str, device: str) -> None:
    """Move the model to its device: trained parameters in fp32, frozen ones in bf16 if the run computes in bf16, or quantized.

    On a CPU frozen fp32 weights stay, since a cast would give every process its own copy. Beside frozen bf16 weights every module that
    trains returns its input's dtype. A linear layer rounds its weights for the product, as autocast does; other modules compute in fp32,
    such as norms, whose weights are near 1, where bf16 would round a step away.
    """
    parameters = dict(model.named_parameters())
    masters = {name: parameters[name].detach().float() for name in trained}  # copied before the cast, which rounds
    in_half = computed_in(precision, device) == "bf16" and (device == "cuda" or model.dtype != torch.float32)
    quantize(model, dtype := torch.bfloat16 if in_half else torch.float32, device)
    cast(model, dtype)
    for name, master in masters.items():
        parameters[name].data = master
    model.to(torch.device(device))  # type: ignore[arg-type]  # as above
    if in_half:
        for path, module in model.named_modules():
            if hasattr(module, "lora_A"):
                module.cast_input_dtype_enabled = False  # peft would cast the layer's input to fp32
            if any(f"{path}.{name}" in masters for name, _ in module.named_parameters(recurse=False)):
                module.forward = _rounded(module) if type(module) is nn.Linear else _in_fp32(module.forward)


def cast(model: PreTrainedModel, dtype: torch.dtype) -> None:
    """Cast a model, but for the frequencies of rotary positions: rounded to bf16, position 500 would be off by a tenth of a turn."""
    frequencies = {name: buffer for name, buffer in model.named_buffers() if "inv_freq" in name}
    model.to(dtype=dtype)  # type: ignore[call-arg]  # hidden by transformers' decorator
    for name, buffer in model.named_buffers():
        if name in frequencies:
            buffer.data = frequencies[name].data


def _rounded(layer: nn.Linear) -> Callable[[Tensor], Tensor]:
    def forward(hidden: Tensor) -> Tensor:
        bias = None if layer.bias is None else layer.bias.to(hidden.dtype)
        return nn.functional.linear(hidden, layer.weight.to(hidden.dtype), bias)

    return forward


def _in_fp32(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda hidden: forward(hidden.float()).to(hidden.dtype)
