"""The parts of a model (encoder and decoder are averaged separately), and kinds of tensors, identified by their names."""

from typing import Literal

Part = Literal["encoder", "decoder", "shared"]
PARTS: tuple[Part, ...] = ("encoder", "decoder", "shared")
_HEADS = ("lm_head.", "cls.", "head.", "lm_predictions.")


def is_adapter_set(name: str) -> bool:
    """Return whether a tensor of this name trains and travels in the paper: adapters and layer norms, except those of
    embeddings (`layernorm_embedding`) and of an output head."""
    module = name.lower().rpartition(".")[0].rpartition(".")[2]
    return is_adapter(name) or ("norm" in module and "embedding" not in name and not name.startswith(_HEADS))


def is_adapter(name: str) -> bool:
    """Return whether a tensor of this name is an adapter's."""
    return ".adapters." in name
