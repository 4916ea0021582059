"""Controllers: added layers, the only ones that travel, while the whole model trains (Roosta et al. 2021; Liu et al. 2023, app. D).

Neither paper gives their places or initial values. Our choice: placed evenly, each a copy of the layer before it whose output
projections (attention's and the feed-forward's second) are 0. In the pre-norm layers of M2M-100 and mBART these outputs are added
to the residual, so a controller is an identity at the start, and learns from the first step on.
"""

import copy
from collections import Counter
from contextlib import AbstractContextManager
from itertools import count
from typing import Any

import torch
from torch import nn
from transformers import DynamicCache, EncoderDecoderCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from fedlingua.backbones.bottleneck import bypassed
from fedlingua.backbones.layouts import layout_of
from fedlingua.backbones.pruning import controller_places
from fedlingua.common.errors import BackboneError

OUTPUTS = ("self_attn.out_proj", "encoder_attn.out_proj", "fc2")
"""Modules of a layer (an encoder layer has no encoder_attn) whose output is added to the residual."""


class Controllers(nn.ModuleList):
    """Layers added after one layer of the backbone, in order; skipped while `bypassed`."""

    bypassed = False


def attach_controllers(model: PreTrainedModel, num_controllers: int) -> None:
    """Add controllers to each stack, as `layer.controllers` of the layer that they follow; no name of the backbone changes.

    Raises:
        BackboneError: the model already has controllers, or is no M2M-100 or mBART.
    """
    layout = layout_of(model)
    if model.config.model_type not in ("m2m_100", "mbart"):
        raise BackboneError(
            f"controllers are layers of an M2M-100 or mBART, and this backbone is a {model.config.model_type}; give another tensor-set"
        )
    for stack in layout.stacks.values():
        layers = stack.held(model)
        # A cache stores keys and values by layer number, so the added layers are numbered after the stack's own.
        numbers = count(len(layers))
        for place, following in sorted(Counter(controller_places(len(layers), num_controllers)).items()):
            layer = layers[place - 1]
            if hasattr(layer, "controllers"):
                raise BackboneError("this backbone already has controllers; load it again before attaching others")
            layer.controllers = Controllers([_identity_like(layer, next(numbers)) for _ in range(following)])
            layer.register_forward_hook(_through(layer.controllers), with_kwargs=True)


def _identity_like(layer: Any, number: int) -> nn.Module:
    config = layer.self_attn.config
    added: nn.Module = copy.deepcopy(layer, {id(config): config})  # all layers share one configuration, as before
    for name, module in added.named_modules():
        if getattr(module, "layer_idx", None) is not None:
            module.layer_idx = number
        if name in OUTPUTS and isinstance(module, nn.Linear):
            with torch.no_grad():
                module.weight.zero_()
                module.bias.zero_()
    return added


def _through(controllers: Controllers) -> Any:
    def hook(layer: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> Any:
        if controllers.bypassed:
            return output
        for controller in controllers:
            _make_room(keywords.get("past_key_values"), controller)
            output = controller(output, *inputs[1:], **keywords)
        return output

    return hook


def _make_room(cache: EncoderDecoderCache | None, controller: Any) -> None:
    """Extend the cache to the added layers, so that beam search reorders their entries as well."""
    if cache is None:
        return
    for of_kind in (cache.self_attention_cache, cache.cross_attention_cache):
        assert isinstance(of_kind, DynamicCache)
        while len(of_kind.layers) <= controller.self_attn.layer_idx:
            of_kind.layers.append(DynamicLayer())


def controllers_bypassed(model: nn.Module) -> AbstractContextManager[None]:
    """Make the model compute without its controllers."""
    return bypassed(model, Controllers)


def is_controller(name: str) -> bool:
    """Return whether a tensor of this name belongs to a controller."""
    return ".controllers." in name
