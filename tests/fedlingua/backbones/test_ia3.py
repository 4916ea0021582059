"""(IA)^3 against its equations, in M2M-100 and XLM-R, and what it merges into."""

from typing import Any

import pytest
import torch
from torch import Tensor

from fedlingua.backbones.ia3 import attach_ia3, ia3_modules, is_ia3, second_of
from fedlingua.backbones.load import Backbone
from fedlingua.backbones.lora import merge_peft, peft_bypassed
from fedlingua.common.errors import BackboneError
from fedlingua.exchange.tensor_sets import tensor_set
from tests.mbart import mbart_50


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(4))


def draw(backbone: Backbone) -> None:
    with torch.no_grad():
        for name, parameter in backbone.model.named_parameters():
            if is_ia3(name):
                parameter.uniform_(-1, 3, generator=torch.Generator().manual_seed(5))


@torch.no_grad()
def test_a_layer_is_its_equation_and_the_backbone_at_start(backbone: Backbone, tokens: dict[str, Tensor]) -> None:
    base = backbone.model(**tokens).logits
    attach_ia3(backbone.model)
    assert torch.equal(backbone.model(**tokens).logits, base)
    draw(backbone)
    layer: Any = backbone.model.get_submodule("model.decoder.layers.1")
    for key in (layer.encoder_attn.k_proj, layer.self_attn.v_proj):
        x, plain, scale = numbers(3, 32), key.base_layer, key.ia3_l["default"].flatten()
        torch.testing.assert_close(key(x), scale * (x @ plain.weight.T + plain.bias))
    x, plain, scale = numbers(3, 64), layer.fc2.base_layer, layer.fc2.ia3_l["default"].flatten()
    torch.testing.assert_close(layer.fc2(x), (scale * x) @ plain.weight.T + plain.bias)
    rescaled = backbone.model(**tokens).logits
    assert not torch.allclose(rescaled, base, atol=1e-3)
    with peft_bypassed(backbone.model):
        assert torch.equal(backbone.model(**tokens).logits, base)
    assert torch.equal(backbone.model(**tokens).logits, rescaled)
    assert not any(parameter.requires_grad for parameter in backbone.model.parameters())


@torch.no_grad()
def test_merged_it_is_the_same_function_under_the_backbones_own_names(backbone: Backbone, tokens: dict[str, Tensor]) -> None:
    names = list(backbone.model.state_dict())
    attach_ia3(backbone.model)
    draw(backbone)
    rescaled = backbone.model(**tokens).logits
    merge_peft(backbone.model)
    assert list(backbone.model.state_dict()) == names
    torch.testing.assert_close(backbone.model(**tokens).logits, rescaled, atol=1e-5, rtol=1e-4)


def test_keys_values_and_inner_activations_have_a_vector_each(backbone: Backbone) -> None:
    attach_ia3(backbone.model)
    chosen = tensor_set(backbone.model, "ia3")
    modules = ia3_modules(chosen.names)
    encoder = ["self_attn.k_proj", "self_attn.v_proj", "fc2"]
    decoder = ["encoder_attn.k_proj", "encoder_attn.v_proj", *encoder]
    layers = {f"encoder.layers.{i}": encoder for i in (0, 1)} | {f"decoder.layers.{i}": decoder for i in (0, 1)}
    assert set(modules) == {f"model.{layer}.{module}" for layer, found in layers.items() for module in found}
    assert second_of(modules) == [name for name in modules if name.endswith("fc2")]
    assert chosen.num_parameters == 2 * (2 * 32 + 64) + 2 * (4 * 32 + 64)
    with pytest.raises(BackboneError, match="is already rescaled"):
        attach_ia3(backbone.model)


def test_a_third_has_vectors_in_its_layers_alone(backbone: Backbone) -> None:
    attach_ia3(backbone.model, "output-end")
    assert {spec.layer for spec in tensor_set(backbone.model, "ia3", "output-end").specs} == {1}
    assert not any(is_ia3(name) and ".layers.0." in name for name, _ in backbone.model.named_parameters())


def test_of_mbart_50_they_are_172_thousand_numbers() -> None:
    model = mbart_50()
    attach_ia3(model)
    assert tensor_set(model, "ia3").num_parameters == 12 * (2 * 1024 + 4096) + 12 * (4 * 1024 + 4096) == 172_032


def test_an_encoders_attention_output_is_not_rescaled(encoder: Backbone) -> None:
    attach_ia3(encoder.model)
    assert {name.partition(".layer.")[2] for name in ia3_modules(tensor_set(encoder.model, "ia3").names)} == {
        f"{number}.{module}" for number in (0, 1) for module in ("attention.self.key", "attention.self.value", "output.dense")
    }
