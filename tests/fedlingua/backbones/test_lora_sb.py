"""LoRA-SB against its equation: what is frozen, what trains, and that averaging is exact."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedlingua.backbones.load import Backbone
from fedlingua.backbones.lora import LowRank, is_lora, merge_peft, peft_bypassed, peft_layers
from fedlingua.backbones.lora_sb import Core, attach_lora_sb, first_directions, is_core
from fedlingua.common.errors import BackboneError
from fedlingua.exchange.tensor_sets import tensor_set
from tests.mbart import mbart_50

PLACE = "model.encoder.layers.0.fc2"


def numbers(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def with_values(*values: float) -> tuple[Tensor, Tensor, Tensor]:
    """U: (7, n), W: (7, 5) = U diag(values) V, and V: (n, 5)."""
    n = len(values)
    left, right = torch.linalg.qr(numbers(7, n).double()).Q, torch.linalg.qr(numbers(5, n, seed=2).double()).Q.T
    return left, (left * torch.tensor(values).double()) @ right, right


def test_a_and_b_are_the_first_singular_vectors_with_the_sign_of_the_largest_number() -> None:
    left, weight, right = with_values(8.0, 4.0, 2.0, 1.0)
    columns, rows = first_directions(weight.float(), 3)
    assert (columns.shape, rows.shape, columns.dtype) == ((7, 3), (3, 5), torch.float32)
    for k in range(3):
        sign = 1.0 if left[:, k].max() > -left[:, k].min() else -1.0
        torch.testing.assert_close(columns[:, k].double(), sign * left[:, k], atol=2**-8, rtol=0)
        torch.testing.assert_close(rows[k].double(), sign * right[k], atol=2**-8, rtol=0)
        assert columns[:, k].max() == columns[:, k].abs().max()
    # What two machines may differ by before it is rounded to bfloat16.
    columns_there, rows_there = first_directions(weight.float().double() * (1 + 1e-13), 3)
    assert torch.equal(columns, columns_there)
    assert torch.equal(rows, rows_there)
    assert torch.equal(columns, columns.bfloat16().float())


def test_there_are_no_more_directions_than_the_weight_has() -> None:
    _, weight, _ = with_values(3.0, 2.0)
    assert [len(first_directions(weight.float(), rank)[1]) for rank in (1, 2, 3, 9)] == [1, 2, 2, 2]
    assert len(first_directions(torch.zeros(3, 3), 1)[1]) == 0


def test_neither_the_runs_randomness_is_used_nor_changed() -> None:
    weight = numbers(40, 40)
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    here = first_directions(weight, 4)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(2)
    assert all(map(torch.equal, here, first_directions(weight, 4)))


@torch.no_grad()
def test_a_layer_is_its_equation_and_the_backbone_at_start(backbone: Backbone, tokens: dict[str, Tensor]) -> None:
    base = backbone.model(**tokens).logits
    attach_lora_sb(backbone.model, LowRank(rank=2, alpha=6.0, targets="fc2,v_proj"))
    assert torch.equal(backbone.model(**tokens).logits, base)
    layer: Any = backbone.model.get_submodule(PLACE)
    b, r, a = layer.lora_B["default"].columns, layer.lora_B["default"].core, layer.lora_A["default"].weight
    assert (b.shape, r.shape, a.shape) == ((32, 2), (2, 2), (2, 64))
    torch.testing.assert_close((b.T @ b, a @ a.T), (torch.eye(2), torch.eye(2)), atol=0.01, rtol=0)
    r.copy_(numbers(2, 2))
    x = numbers(3, 64, seed=2)
    weight, bias = layer.base_layer.weight, layer.base_layer.bias
    torch.testing.assert_close(layer(x), x @ (weight + 6 / 2 * b @ r @ a).T + bias)
    added = backbone.model(**tokens).logits
    assert not torch.allclose(added, base)
    with peft_bypassed(backbone.model):
        assert torch.equal(backbone.model(**tokens).logits, base)
    assert torch.equal(backbone.model(**tokens).logits, added)
    assert not any(parameter.requires_grad for parameter in backbone.model.parameters())
    names = [name for name, _ in backbone.model.named_parameters()]
    merge_peft(backbone.model)
    torch.testing.assert_close(backbone.model(**tokens).logits, added, atol=1e-5, rtol=1e-4)
    assert not any(is_lora(name) for name, _ in backbone.model.named_parameters())
    assert [name for name in names if is_lora(name)] == [name for name in names if is_core(name)]


def test_r_learns_from_the_first_step_on_although_it_starts_at_zero() -> None:
    """dL/dR = B^T (dL/dW) A^T for a scale of 1, which is not 0 there."""
    columns, rows = first_directions(numbers(6, 4), 2)
    core = Core(columns)
    x, g = numbers(3, 4, seed=2), numbers(3, 6, seed=3)
    (core(x @ rows.T) * g).sum().backward()  # type: ignore[no-untyped-call]
    assert core.core.grad is not None
    torch.testing.assert_close(core.core.grad, columns.T @ (g.T @ x) @ rows.T)
    assert core.core.grad.abs().min() > 0


@torch.no_grad()
def test_the_mean_of_two_sites_r_is_exactly_the_mean_of_their_weights(backbone: Backbone) -> None:
    """In float64, which holds products and sums of three such numbers whole; LoRA's own mean is another one."""
    attach_lora_sb(backbone.model, LowRank(rank=2, targets="fc2"))
    layer: Any = backbone.model.get_submodule(PLACE).double()
    here, there = torch.tensor([[1.5, -0.25], [0.5, 3.0]]), torch.tensor([[-2.0, 0.75], [1.25, 0.5]])

    def change(core: Tensor) -> Tensor:
        layer.lora_B["default"].core.copy_(core)
        delta: Tensor = layer.get_delta_weight("default")
        return delta.clone()

    assert torch.equal(change((here + there) / 2), (change(here) + change(there)) / 2)
    a, b = numbers(2, 4, 6).unbind(), numbers(2, 5, 4, seed=2).unbind()
    of_lora = (b[0] + b[1]) / 2 @ (a[0] + a[1]) / 2
    assert not torch.allclose(of_lora, (b[0] @ a[0] + b[1] @ a[1]) / 2, atol=0.1)


def test_a_rank_that_a_weight_has_not_and_attaching_twice_are_refused(backbone: Backbone) -> None:
    with pytest.raises(BackboneError, match=r"lora.rank = 33, and the weight of model\..* has rank 32; give 32 or less"):
        attach_lora_sb(backbone.model, LowRank(rank=33, targets="fc1"))
    with pytest.raises(BackboneError, match="already has low-rank matrices"):
        attach_lora_sb(backbone.model, LowRank(rank=2))


def test_rank_16_in_every_linear_layer_of_mbart_50_is_200_kilobytes() -> None:
    from fedlingua.backbones.lora import attach_lora

    model = mbart_50()
    attach_lora(model, LowRank(rank=16, targets="q_proj,k_proj,v_proj,out_proj,fc1,fc2"), seed=1)
    # Four projections of an attention and two of the feed-forward, with cross-attention in the decoder.
    assert len(peft_layers(model)) == 12 * 6 + 12 * 10 == 192
    assert 192 * 16**2 * 4 == 196_608


@torch.no_grad()
def test_an_encoder_takes_them_too(encoder: Backbone) -> None:
    tokens = {"input_ids": torch.tensor([[0, 17, 15, 16, 2]])}
    base = encoder.model(**tokens).logits
    attach_lora_sb(encoder.model, LowRank(rank=4, targets="query,value"))
    chosen = tensor_set(encoder.model, "lora-sb")
    assert [spec.shape for spec in chosen.specs] == [(4, 4)] * 4
    assert torch.equal(encoder.model(**tokens).logits, base)
    for layer in peft_layers(encoder.model).values():
        layer.lora_B["default"].core.fill_(1)
    assert np.abs((encoder.model(**tokens).logits - base).numpy()).max() > 1e-3
