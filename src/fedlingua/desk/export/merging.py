"""What a run adds to its backbone, merged into it or in peft's form."""

import copy
import re
from collections.abc import Collection, Iterable
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from fedlingua.backbones.layouts import layout_of
from fedlingua.backbones.lora import is_lora, peft_layers


def merge_controllers(model: PreTrainedModel) -> PreTrainedModel:
    """Return the same function as a plain, deeper model, in which every controller is a layer with its own number."""
    config = copy.deepcopy(model.config)
    numbers: dict[str, str] = {}
    layout = layout_of(model)
    for part, stack in layout.stacks.items():
        order: list[str] = []
        for number, layer in enumerate(stack.held(model)):
            added = len(getattr(layer, "controllers", ()))
            order += [f"{stack.path}.{number}.", *(f"{stack.path}.{number}.controllers.{i}." for i in range(added))]
        numbers |= {before: f"{stack.path}.{place}." for place, before in enumerate(order)}
        setattr(config, layout.family.layers[part], len(order))
    config.num_hidden_layers = config.encoder_layers
    longest_first = sorted(numbers, key=len, reverse=True)  # a controller's name starts with its layer's name

    def renamed(name: str) -> str:
        before = next((prefix for prefix in longest_first if name.startswith(prefix)), None)
        return name if before is None else numbers[before] + name.removeprefix(before)

    deeper: Any = type(model)(config)
    deeper = deeper.to(dtype=model.dtype)
    deeper.load_state_dict({renamed(name): tensor for name, tensor in model.state_dict().items()})
    deeper.generation_config = model.generation_config
    plain: PreTrainedModel = deeper.eval()
    return plain


def merge_peft(model: nn.Module) -> None:
    """Replace each layer of peft with a plain one, as of W + (alpha / r) B A: the same function, with the backbone's names."""
    for name, layer in peft_layers(model).items():
        layer.merge()
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, layer.get_base_layer())


def lora_modules(tensors: Iterable[str]) -> set[str]:
    """Return the names of the linear layers to which low-rank tensors of these names belong."""
    return {name.partition(".lora_")[0] for name in tensors if is_lora(name)}


def peft_name(name: str) -> str:
    """Return the model's tensor name as in files of peft: without the adapter's name, with the prefix of peft's wrapper."""
    return "base_model.model." + name.replace(".default.", ".")


def peft_targets(model: PreTrainedModel, chosen: Collection[str], ends: Collection[str]) -> list[str] | str:
    """Return peft's `target_modules` for exactly these linear layers of the plain backbone.

    chosen: their names. ends: the configured ends of names, returned if they fit the chosen layers alone. Otherwise (a third of the
    layers, or ends that other modules also have) the result is a pattern for the full name.
    """
    names = {name.replace(".base_layer", "") for name, _ in model.named_modules() if not is_lora(f"{name}.")}
    if {name for name in names if any(f".{name}".endswith(f".{end}") for end in ends)} == set(chosen):
        return sorted(ends)
    patterns = []
    for stack in layout_of(model).stacks.values():
        within = [name.removeprefix(f"{stack.path}.").split(".", 1) for name in chosen if name.startswith(f"{stack.path}.")]
        layers, modules = sorted({int(layer) for layer, _ in within}), sorted({module for _, module in within})
        numbers, ways = "|".join(map(str, layers)), "|".join(map(re.escape, modules))
        patterns += [rf"{re.escape(stack.path)}\.({numbers})\.({ways})"] if within else []
    pattern = "|".join(patterns)
    assert {name for name in names if re.fullmatch(pattern, name)} == set(chosen), "the layers of a stack are alike"
    return pattern
