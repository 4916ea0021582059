"""Which tensors a set is of and which modules it changes, by their names: what is planned needs no model."""

from collections import Counter
from collections.abc import Iterable, Mapping

from fedlingua.backbones.layouts import Layout
from fedlingua.backbones.parts import Part
from fedlingua.backbones.pruning import thirds
from fedlingua.common.errors import BackboneError

_KEYS_AND_VALUES = ("k_proj", "v_proj", "key", "value")
"""Last names of the projections whose output (IA)^3 rescales."""
_SECOND = ("fc2", "output.dense")
"""Where in a layer the feed-forward's second projection stands, whose input it rescales."""


def is_adapter_set(name: str) -> bool:
    """Whether the paper trains and exchanges a tensor of this name: adapters and the stacks' layer norms, but not those of embeddings
    (`layernorm_embedding`) or of an output head.
    """
    norm = "layer_norm" in name or (".LayerNorm." in name and ".embeddings." not in name)
    return is_adapter(name) or (norm and not name.startswith("lm_head."))


def is_norm(name: str) -> bool:
    """Whether a tensor of this name is a layer norm's, also of embeddings, but not of an output head."""
    return "layernorm" in name.lower().replace("_", "") and not name.startswith("lm_head.")


def is_adapter(name: str) -> bool:
    """Whether a tensor of this name is an adapter's own."""
    return ".adapters." in name


def chosen_linear(linear: Iterable[str], layout: Layout, sizes: Mapping[Part, int], targets: str, layers: str) -> list[str]:
    """Of the names of linear layers those that `lora.targets` names in the layers that are kept, in their order.

    Raises:
        BackboneError: a target that no layer has.
    """
    inside, ends = _inside(linear, layout), [end.strip() for end in targets.split(",")]
    for end in ends:
        if not end or not any(f".{name}".endswith(f".{end}") for name in inside):
            known = ", ".join(sorted({name.rpartition(".")[2] for name in inside}))
            raise BackboneError(
                f"lora.targets = {targets!r}: no linear layer's name ends in {end!r}; the layers have {known}, "
                "also with what stands before them (encoder_attn.q_proj)"
            )
    kept = thirds(sizes, layers)
    named = [name for name in inside if any(f".{name}".endswith(f".{end}") for end in ends)]
    return [name for name in named if inside[name][1] in kept[inside[name][0]]]


def rescaled(linear: Iterable[str], layout: Layout, sizes: Mapping[Part, int], layers: str) -> list[str]:
    """Of the names of linear layers those that (IA)^3 rescales in the layers that are kept."""
    kept, inside = thirds(sizes, layers), _inside(linear, layout)
    at = {name: name.removeprefix(f"{layout.stacks[part].path}.{layer}.") for name, (part, layer) in inside.items()}
    named = [name for name in inside if at[name] in _SECOND or name.rpartition(".")[2] in _KEYS_AND_VALUES]
    return [name for name in named if inside[name][1] in kept[inside[name][0]]]


def second_of(modules: Iterable[str]) -> list[str]:
    """Of the rescaled layers, by name, those whose input is rescaled."""
    return [name for name in modules if name.endswith(_SECOND)]


def controlled(num_layers: int, num_controllers: int) -> dict[int, int]:
    """Layer of a stack -> how many controllers follow it: the i-th stands after round((i + 1) L / N) layers, halves up, at least 1.

    4 in a stack of 12 stand after the 3rd, 6th, 9th and 12th; 4 in a stack of 2 after the 1st, 1st, 2nd and 2nd.
    """
    evenly = ((2 * (i + 1) * num_layers + num_controllers) // (2 * num_controllers) for i in range(num_controllers))
    return dict(sorted(Counter(max(1, place) - 1 for place in evenly).items()))


def _inside(linear: Iterable[str], layout: Layout) -> dict[str, tuple[Part, int]]:
    """Names of linear layers that stand in a stack's layers -> the stack, and the layer."""
    places = {name: layout.place(name) for name in linear}
    return {name: (part, layer) for name, (part, layer) in places.items() if part != "shared" and layer is not None}
