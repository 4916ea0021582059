"""The parts of a translation model, of which encoder and decoder are averaged apart, and tensors by their names."""

from typing import Literal

Part = Literal["encoder", "decoder", "shared"]
PARTS: tuple[Part, ...] = ("encoder", "decoder", "shared")
_HEADS = ("lm_head.", "cls.", "head.", "lm_predictions.")


def is_adapter_set(name: str) -> bool:
    """Whether the paper trains and exchanges a tensor of this name: adapters and the stacks' layer norms, but not those of embeddings
    (`layernorm_embedding`) or of an output head.
    """
    return is_adapter(name) or (is_norm(name) and "embedding" not in name)


def is_norm(name: str) -> bool:
    """Whether a tensor of this name is a layer norm's, also of embeddings, but not of an output head."""
    return "norm" in name.lower().rpartition(".")[0].rpartition(".")[2] and not name.startswith(_HEADS)


def is_adapter(name: str) -> bool:
    """Whether a tensor of this name is an adapter's own."""
    return ".adapters." in name
