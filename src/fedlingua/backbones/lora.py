"""LoRA by peft: W x + (alpha / r) B A x in chosen linear layers of a frozen backbone (Hu et al. 2021, §4.1).

A: (r, d_in) is drawn, B: (d_out, r) starts at 0, so the model starts as the backbone. peft wraps each chosen layer: the frozen
weight of a chosen `q_proj` is then called `q_proj.base_layer.weight`.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from fedlingua.backbones.layouts import layout_of
from fedlingua.backbones.pruning import kept_layers
from fedlingua.common.errors import BackboneError

_ALIKE = (("q_proj", "query", "query_proj", "q"), ("k_proj", "key", "key_proj", "k"), ("v_proj", "value", "value_proj", "v"))
"""Names of the same projection in different families. ModernBERT has all three in one, Wqkv, which must be given."""


@dataclass(frozen=True)
class LowRank:
    """Options of LoRA. rank: r. targets: ends of the chosen layers' names, separated by commas. layers: "all" or a third."""

    rank: int = 8
    alpha: float = 16.0
    targets: str = "q_proj,v_proj"
    layers: str = "all"


def attach_lora(model: PreTrainedModel, config: LowRank, seed: int) -> None:
    """Attach low-rank matrices, drawn with `seed`, to the chosen linear layers of all stacks.

    Raises:
        BackboneError: the model already has them, a target fits no layer, or the chosen third of the layers is empty.
    """
    from peft import LoraConfig, inject_adapter_in_model

    if any(is_lora(name) for name, _ in model.named_parameters()):
        raise BackboneError("this backbone already has low-rank matrices; load it again before attaching others")
    chosen = _chosen(model, config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        # peft's type of alpha is int, but it accepts a float.
        inject_adapter_in_model(LoraConfig(r=config.rank, lora_alpha=config.alpha, target_modules=chosen), model)  # type: ignore[arg-type]
    model.requires_grad_(False)


def _chosen(model: PreTrainedModel, config: LowRank) -> list[str]:
    """Return the full names of the linear layers that the targets choose, in the model's order."""
    layers_of = kept_layers(model, config.layers)
    layout = layout_of(model)
    places = {name: layout.place(name) for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    linear = {name: (part, layer) for name, (part, layer) in places.items() if part != "shared" and layer is not None}
    ends = [_as_called_here(end.strip(), linear) for end in config.targets.split(",")]
    for end in ends:
        if not end or not any(f".{name}".endswith(f".{end}") for name in linear):
            known = ", ".join(sorted({name.rpartition(".")[2] for name in linear}))
            raise BackboneError(
                f"lora.targets = {config.targets!r}: no linear layer's name ends in {end!r}; the layers have {known}, "
                "also with what stands before them (encoder_attn.q_proj)"
            )
    endings = tuple(f".{end}" for end in ends)
    return [name for name, (part, layer) in linear.items() if f".{name}".endswith(endings) and layer in layers_of[part]]


def _as_called_here(end: str, linear: Collection[str]) -> str:
    """Return the name in these layers of the query, key or value projection that other families call `end`."""
    known = {name.rpartition(".")[2] for name in linear}
    alike = next((names for names in _ALIKE if end in names), ()) if end not in known else ()
    return next((name for name in alike if name in known), end)


def peft_layers(model: nn.Module) -> dict[str, Any]:
    """Return name -> the layers with which peft has replaced the backbone's."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    return {name: module for name, module in model.named_modules() if isinstance(module, BaseTunerLayer)}


@contextmanager
def peft_bypassed(model: nn.Module) -> Iterator[None]:
    """Make the model compute as if peft had changed no layer."""
    attached = peft_layers(model).values()
    for layer in attached:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in attached:
            layer.enable_adapters(True)
            layer.requires_grad_(False)  # enabling makes peft's tensors trainable


def is_lora(name: str) -> bool:
    """Return whether a tensor of this name is a low-rank matrix."""
    return ".lora_" in name
