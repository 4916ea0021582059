"""Frozen weights in 8 bits (LLM.int8, Dettmers et al. 2022) or 4 (NF4 with double quantization, Dettmers et al. 2023), by bitsandbytes.

The linear modules of the stacks' layers are quantized; embeddings, output head and norms are not. bitsandbytes' modules take their place
before anything is attached, and keep the weights as stored until `quantize`, so that names and initial tensors are those of a server
that quantizes nothing.
"""

import logging
from importlib import import_module
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from fedlingua.backbones.layouts import layout_of

OUTLIER = 6.0
"""Columns of a layer's input with a larger value are multiplied in fp16: the paper's threshold."""
_LAYERS = ("Linear8bitLt", "Linear4bit")


def replace_linear(model: PreTrainedModel, bits: int) -> None:
    """Replace the linear modules of all layers, except those that transformers keeps in fp32 because half precision overflows in them."""
    bnb: Any = import_module("bitsandbytes.nn")
    # It would warn in every pass of every layer that inputs become fp16.
    logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)
    layout, apart = layout_of(model), tuple(getattr(model, "_keep_in_fp32_modules", None) or ())
    for name, plain in list(model.named_modules()):
        if type(plain) is not nn.Linear or layout.place(name)[1] is None or name.rpartition(".")[2] in apart:
            continue
        size = (plain.in_features, plain.out_features, plain.bias is not None)
        layer: nn.Linear
        if bits == 8:
            layer = bnb.Linear8bitLt(*size, has_fp16_weights=False, threshold=OUTLIER, device="meta")
            layer.weight = bnb.Int8Params(plain.weight.data, requires_grad=False)
        else:
            layer = bnb.Linear4bit(*size, quant_type="nf4", device="meta")
            layer.weight = bnb.Params4bit(plain.weight.data, quant_type="nf4", module=layer)
        layer.bias = plain.bias
        model.set_submodule(name, layer.train(plain.training))


def quantize(model: nn.Module, dtype: torch.dtype, device: str) -> None:
    """Quantize the replaced modules on their device, one after the other, so that it never holds all weights.

    dtype: of the computation.
    """
    for module in model.modules():
        if type(module).__name__ in _LAYERS:
            module.weight.data = module.weight.data.to(dtype)
            module.to(device)
