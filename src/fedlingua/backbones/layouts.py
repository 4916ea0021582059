"""Names of a model's stacks of layers and of the modules that adapters follow: one line for each model type.

A translation model has an encoder and a decoder, a masked-language model an encoder; all else of either is shared.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedlingua.backbones.parts import Part
from fedlingua.settings.tasks import TaskName

if TYPE_CHECKING:  # what is planned needs no torch
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Stack:
    """prefix: module that holds the stack. layers: name of the list of layers in it. places: an adapter's name -> the module of a layer
    whose output goes through it. size_key, feed_forward_key: the model configuration's number of layers, and width of their feed-forward.
    """

    prefix: str
    layers: str
    places: Mapping[str, str]
    size_key: str
    feed_forward_key: str

    @property
    def path(self) -> str:
        """Of the list of layers."""
        return f"{self.prefix}.{self.layers}"

    def held(self, model: "PreTrainedModel") -> Any:
        """The layers themselves."""
        return model.get_submodule(self.path)

    def num_at_work(self, model: "PreTrainedModel") -> int:
        """Layers that text passes, also those that were added."""
        kind = type(self.held(model)[0])
        return sum(isinstance(module, kind) for module in model.get_submodule(self.prefix).modules())


@dataclass(frozen=True)
class Layout:
    """task: what such a model is for."""

    task: TaskName
    stacks: Mapping[Part, Stack]

    def place(self, tensor_name: str) -> tuple[Part, int | None]:
        """The part that a tensor belongs to, and its layer; None outside the layers."""
        for part, stack in self.stacks.items():
            if tensor_name.startswith(f"{stack.prefix}."):
                words = tensor_name.removeprefix(f"{stack.prefix}.").split(".")
                return part, int(words[1]) if words[0] == stack.layers else None
        return "shared", None


TRANSLATION = Layout(
    "translation",
    {
        "encoder": Stack(
            "model.encoder",
            "layers",
            {"self_attn": "self_attn", "fc2": "fc2"},
            "encoder_layers",
            "encoder_ffn_dim",
        ),
        "decoder": Stack(
            "model.decoder",
            "layers",
            {"self_attn": "self_attn", "encoder_attn": "encoder_attn", "fc2": "fc2"},
            "decoder_layers",
            "decoder_ffn_dim",
        ),
    },
)
MASKED_LANGUAGE = Layout(
    "masked-language",
    {
        "encoder": Stack(
            "roberta.encoder",
            "layer",
            {"attention": "attention.output.dense", "output": "output.dense"},
            "num_hidden_layers",
            "intermediate_size",
        )
    },
)
LAYOUTS = {
    "m2m_100": TRANSLATION,
    "mbart": TRANSLATION,
    "xlm-roberta": MASKED_LANGUAGE,
    "roberta": MASKED_LANGUAGE,
    "camembert": MASKED_LANGUAGE,
}
"""transformers' model type -> its layout."""


def layout_of(model: "PreTrainedModel") -> Layout:
    """The layout of a loaded backbone."""
    return LAYOUTS[model.config.model_type]


def most_tokens(model: "PreTrainedModel") -> int | None:
    """Tokens of a sequence that a loaded backbone has positions for; None: M2M-100's are computed, for as many as there are."""
    config = model.config
    if config.model_type == "m2m_100":
        return None
    # RoBERTa's positions begin after the padding's.
    unused = config.pad_token_id + 1 if layout_of(model).task == "masked-language" else 0
    return int(config.max_position_embeddings) - unused
