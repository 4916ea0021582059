"""(IA)^3 by peft: vectors that rescale keys, values and inner activations (Liu et al. 2022, §3.3).

softmax(Q (k * K)^T / sqrt(d)) (v * V) in every attention, cross-attention too, and W_2 (f * relu(W_1 x)) in every feed-forward. k, v
and f start at 1. They can be merged: k and v into the rows of a projection and its bias, f into the columns of W_2.
"""

from collections.abc import Iterable

from torch import nn
from transformers import PreTrainedModel

from fedlingua.backbones.layouts import layout_of
from fedlingua.backbones.pruning import kept_layers
from fedlingua.common.errors import BackboneError

_KEYS_AND_VALUES = ("k_proj", "v_proj", "key", "value", "k", "v", "key_proj", "value_proj")
"""Last components of the names of projections whose output is rescaled."""
_SECOND = ("fc2", "output.dense", "DenseReluDense.wo", "mlp.down_proj", "mlp.Wo")
"""Names within a layer of the feed-forward's second projection, whose input is rescaled."""


def attach_ia3(model: PreTrainedModel, layers: str = "all") -> None:
    """Attach the vectors to all stacks. layers: "all", or the third of each stack that gets them.

    Raises:
        BackboneError: the model already has them, has no separate key and value projections, or the chosen third is empty.
    """
    from peft import IA3Config, inject_adapter_in_model

    if any(is_ia3(name) for name, _ in model.named_parameters()):
        raise BackboneError("this backbone is already rescaled; load it again before attaching other vectors")
    layers_of = kept_layers(model, layers)
    chosen = [
        f"{stack.path}.{number}.{name}"
        for part, stack in layout_of(model).stacks.items()
        for number in layers_of[part]
        for name, module in stack.held(model)[number].named_modules()
        if isinstance(module, nn.Linear)
        and (name.rpartition(".")[2] in _KEYS_AND_VALUES or (name.endswith(_SECOND) and "attention" not in name))
    ]
    if not any(name.rpartition(".")[2] in _KEYS_AND_VALUES for name in chosen):
        raise BackboneError(
            f"tensor-set = 'ia3' rescales keys and values, which a backbone of type {model.config.model_type!r} projects together with "
            "its queries; give another tensor-set"
        )
    inject_adapter_in_model(IA3Config(target_modules=chosen, feedforward_modules=second_of(chosen)), model)
    model.requires_grad_(False)


def second_of(modules: Iterable[str]) -> list[str]:
    """Return those of the rescaled layers' names whose input is rescaled, not the output."""
    return [name for name in modules if name.endswith(_SECOND)]


def ia3_modules(tensors: Iterable[str]) -> list[str]:
    """Return the names of the linear layers that vectors of these names rescale."""
    return [name.removesuffix(".ia3_l.default") for name in tensors]


def is_ia3(name: str) -> bool:
    """Return whether a tensor of this name is an (IA)^3 vector."""
    return ".ia3_l." in name
