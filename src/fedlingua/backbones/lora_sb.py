"""LoRA-SB: W x + (alpha / r) B R A x, in which only R: (r, r) trains (Ponkshe et al. 2024).

The weight is linear in R, so the mean of the sites' R gives the mean of their weights (Singhal et al. 2025). For LoRA, which averages A
and B separately, this does not hold. The paper takes A and B from the first full gradient, which would have to leave the sites.
Here they are W's first singular vectors, as in LoRA-XS (Balazy et al. 2024), which server and sites compute alike. R starts at 0, so the
model starts as the backbone.
"""

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from fedlingua.backbones.lora import LowRank, attach_lora, peft_layers
from fedlingua.common.errors import BackboneError


class Core(nn.Module):
    """x -> B R x with B: (d_out, r) frozen. It replaces LoRA's B in peft, which merges `weight`."""

    columns: Tensor

    def __init__(self, columns: Tensor) -> None:
        super().__init__()
        self.register_buffer("columns", columns)
        self.core = nn.Parameter(columns.new_zeros(columns.shape[1], columns.shape[1]))

    @property
    def weight(self) -> Tensor:
        """B R, (d_out, r)."""
        return self.columns.to(self.core.dtype) @ self.core

    def forward(self, hidden: Tensor) -> Tensor:
        """Return B R x. hidden: (..., r); the result: (..., d_out)."""
        mixed = nn.functional.linear(hidden, self.core)
        return nn.functional.linear(mixed, self.columns.to(mixed.dtype))


def attach_lora_sb(model: PreTrainedModel, config: LowRank) -> None:
    """Attach frozen A and B, and R between them, to the chosen linear layers of all stacks.

    Raises:
        BackboneError: as in `attach_lora`; or the weight of a chosen layer has a lower rank than `lora.rank`.
    """
    attach_lora(model, config, seed=0)  # its random numbers are replaced below
    for name, layer in peft_layers(model).items():
        columns, rows = first_directions(layer.get_base_layer().weight.detach(), config.rank)
        if (rank := len(rows)) < config.rank:
            raise BackboneError(
                f"lora.rank = {config.rank}, and the weight of {name} has rank {rank}; give {rank} or less, or other lora.targets"
            )
        frozen = layer.lora_A["default"]
        del frozen.weight
        frozen.register_buffer("weight", rows)
        layer.lora_B["default"] = Core(columns)
    model.requires_grad_(False)


def first_directions(weight: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Return B: (d_out, r) and A: (r, d_in), the singular vectors of W: (d_out, d_in) with the largest values.

    By the randomised SVD of Halko et al. 2011, always with the same seed; of (u, v) and (-u, -v), the pair in which u's largest number
    is positive. Computed in float64 and rounded to bfloat16, so that machines whose last bits differ get the same numbers in any
    precision; A and B neither travel nor enter a fingerprint. If W's rank is lower than `rank`, there are fewer vectors, since those
    of a singular value of 0 are arbitrary and differ between machines.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        left, values, right = torch.svd_lowrank(weight.double(), min(rank + 10, *weight.shape), niter=2)
    rank = min(rank, int((values > 1e-6 * values[0]).sum()))
    left, right = left[:, :rank], right[:, :rank]
    signs = left.gather(0, left.abs().argmax(0, keepdim=True)).sign()
    columns, rows = ((vectors * signs).bfloat16().float() for vectors in (left, right))
    return columns, rows.T.contiguous()


def as_lora(model: nn.Module) -> dict[str, np.ndarray]:
    """Return the same function as LoRA's tensors, by name: A unchanged, and B R for B."""
    tensors = {}
    for name, layer in peft_layers(model).items():
        tensors[f"{name}.lora_A.default.weight"] = layer.lora_A["default"].weight.numpy()
        tensors[f"{name}.lora_B.default.weight"] = layer.lora_B["default"].weight.detach().numpy()
    return tensors


def is_core(name: str) -> bool:
    """Return whether a tensor of this name is an R."""
    return name.endswith(".lora_B.default.core")
