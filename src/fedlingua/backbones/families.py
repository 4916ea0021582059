"""Families of published models, by transformers' model type: their task, and the keys of their configuration."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fedlingua.backbones.parts import Part
from fedlingua.common.errors import BackboneError
from fedlingua.settings.tasks import TaskName

Shape = Literal["encoder-decoder", "decoder", "encoder"]


@dataclass(frozen=True)
class Family:
    """A family of models. layers, feed_forward: stack -> the configuration's key for its number of layers, for the feed-forward's width."""

    task: TaskName
    shape: Shape
    layers: Mapping[Part, str]
    feed_forward: Mapping[Part, str]


_BART = Family(
    "translation",
    "encoder-decoder",
    {"encoder": "encoder_layers", "decoder": "decoder_layers"},
    {"encoder": "encoder_ffn_dim", "decoder": "decoder_ffn_dim"},
)
_T5 = Family(
    "translation",
    "encoder-decoder",
    {"encoder": "num_layers", "decoder": "num_decoder_layers"},
    {"encoder": "d_ff", "decoder": "d_ff"},
)
_CAUSAL = Family("translation", "decoder", {"decoder": "num_hidden_layers"}, {"decoder": "intermediate_size"})
_MASKED = Family("masked-language", "encoder", {"encoder": "num_hidden_layers"}, {"encoder": "intermediate_size"})
FAMILIES: dict[str, Family] = {
    **dict.fromkeys(("m2m_100", "mbart", "marian", "marian-ssru"), _BART),
    "t5": _T5,
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"), _CAUSAL),
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert", "xlm-roberta-xl", "modernbert", "deberta-v2"), _MASKED),
}
"""Model type -> family. NLLB's is m2m_100, MADLAD's t5, EuroLLM's llama. Mixtures of experts (nllb-moe) are not supported."""


def check_type(model_type: Any, name: str) -> None:
    """Raise BackboneError for an unknown model type."""
    if model_type not in FAMILIES:
        raise BackboneError(f"backbone = {name!r} is of type {model_type!r}; wanted one of {', '.join(FAMILIES)}")
