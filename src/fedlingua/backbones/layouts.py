"""Find a model's stacks of layers, and the modules of a layer whose output goes through adapters, by the tensors' names.

A translation model has an encoder and a decoder, or only a decoder; a masked-language model has an encoder. All other tensors are shared.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedlingua.backbones.families import FAMILIES, Family
from fedlingua.backbones.parts import Part
from fedlingua.common.errors import BackboneError

if TYPE_CHECKING:  # planning a run needs no torch
    from transformers import PreTrainedModel

PLACES: tuple[Mapping[str, str], ...] = (
    {"self_attn": "self_attn", "encoder_attn": "encoder_attn", "fc2": "fc2"},  # M2M-100, mBART, Marian: decoders
    {"self_attn": "self_attn", "fc2": "fc2"},  # their encoders
    {"self_attn": "layer.0.SelfAttention", "encoder_attn": "layer.1.EncDecAttention", "fc2": "layer.2.DenseReluDense"},  # T5
    {"self_attn": "layer.0.SelfAttention", "fc2": "layer.1.DenseReluDense"},
    {"attention": "attention.output.dense", "output": "output.dense"},  # BERT and its kin
    {"self_attn": "self_attn", "mlp": "mlp"},  # Llama, Mistral, Qwen, Gemma
    {"self_attn": "attn", "mlp": "mlp"},  # ModernBERT
)
"""Adapter's name -> module of a layer whose output, before the residual add, it receives. The first entry that fits is used."""

_OF_LAYER = re.compile(
    r"((?:\d*[^.\d][^.]*\.)*\d*[^.\d][^.]*)\.0\.(.+)"
)  # path of the outermost list of layers, and name within its first layer


@dataclass(frozen=True)
class Stack:
    """A stack of layers. path: full name of the list of layers. places: from PLACES. feed_forward: width of the feed-forward."""

    path: str
    places: Mapping[str, str]
    feed_forward: int

    def held(self, model: "PreTrainedModel") -> Any:
        """Return the list of layers of a model."""
        return model.get_submodule(self.path)


@dataclass(frozen=True)
class Layout:
    """A model's stacks, by part."""

    family: Family
    stacks: Mapping[Part, Stack]

    def sizes(self, config: Any) -> dict[Part, int]:
        """Return the number of layers of each stack from a model's configuration."""
        return {part: int(getattr(config, key)) for part, key in self.family.layers.items()}

    def place(self, tensor_name: str) -> tuple[Part, int | None]:
        """Return the part that a tensor belongs to, and its layer; None outside the layers."""
        for part, stack in self.stacks.items():
            prefix, _, layers = stack.path.rpartition(".")
            if tensor_name.startswith(f"{prefix}."):
                words = tensor_name.removeprefix(f"{prefix}.").split(".")
                if self.family.shape == "decoder" and words[0].startswith("embed"):
                    break  # embeds both languages, and is often tied to the head
                return part, int(words[1]) if words[0] == layers else None
        return "shared", None


def layout_of(model: "PreTrainedModel") -> Layout:
    """Return the layout of a loaded backbone; raise BackboneError where `layout_from` does."""
    return layout_from(model.config, [name for name, _ in model.named_parameters()])


def layout_from(config: Any, names: Iterable[str]) -> Layout:
    """Find the layout of a model by its configuration and the names of its tensors.

    Raises:
        BackboneError: the stacks whose layers have places for adapters are not those of the family.
    """
    family = FAMILIES[config.model_type]
    modules: dict[str, set[str]] = {}  # path of a list of layers -> modules of its first layer
    for name in names:
        if match := _OF_LAYER.fullmatch(name):
            words = match[2].split(".")
            modules.setdefault(match[1], set()).update(".".join(words[:number]) for number in range(1, len(words)))
    stacks: dict[Part, Stack] = {}
    for path, of_layer in modules.items():
        if places := next((places for places in PLACES if of_layer.issuperset(places.values())), None):
            part: Part = "decoder" if family.shape == "decoder" or path.startswith(("decoder.", "model.decoder.")) else "encoder"
            stacks[part] = Stack(path, places, int(getattr(config, family.feed_forward[part])))
    if set(stacks) != set(family.layers):
        raise BackboneError(
            f"a backbone of type {config.model_type!r} has {' and '.join(family.layers)}; found here: {', '.join(modules) or 'no stack'} "
            "with attention and feed-forward where adapters stand; give another backbone"
        )
    return Layout(family, {part: stacks[part] for part in family.layers})


def most_tokens(config: Any) -> int | None:
    """Return how many tokens of a sequence a backbone has positions for; None if positions are computed, without limit."""
    most = getattr(config, "max_position_embeddings", None)
    if config.model_type == "m2m_100" or most is None:
        return None
    # RoBERTa's positions begin after the padding id.
    unused = config.pad_token_id + 1 if "roberta" in config.model_type or config.model_type == "camembert" else 0
    return int(most) - unused
