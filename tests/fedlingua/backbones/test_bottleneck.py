"""Adapters against their equation, at their places, in M2M-100 and mBART; the paper's count for mBART-50."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from fedlingua.backbones.bottleneck import (
    AdapterConfig,
    BottleneckAdapter,
    adapters_bypassed,
    attach_adapters,
)
from fedlingua.backbones.load import Backbone
from fedlingua.backbones.parts import is_adapter_set
from fedlingua.common.errors import BackboneError
from fedlingua.exchange.tensor_sets import read_tensors, tensor_set
from tests.mbart import tiny_mbart


def attach_large_adapters(model: PreTrainedModel) -> None:
    """Attach adapters so large that one left out, or put elsewhere, cannot hide in rounding."""
    attach_adapters(model, AdapterConfig(4), seed=1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".adapters." in name:
                parameter.mul_(25)


@pytest.fixture(params=["m2m_100", "mbart"])
def model(request: pytest.FixtureRequest, backbone: Backbone) -> PreTrainedModel:
    return backbone.model if request.param == "m2m_100" else tiny_mbart()


def by_hand(adapter: BottleneckAdapter) -> Callable[[Tensor], Tensor]:
    """h + W_up relu(W_down h + b_down) + b_up, in numpy."""
    weights = {name: value.detach().numpy() for name, value in adapter.named_parameters()}

    def apply(hidden: Tensor) -> Tensor:
        h = hidden.detach().numpy()
        inner = np.maximum(h @ weights["down.weight"].T + weights["down.bias"], 0)
        return torch.from_numpy(h + inner @ weights["up.weight"].T + weights["up.bias"])

    return apply


def shake(model: PreTrainedModel) -> None:
    """Biases and layer norms away from the 0 and 1 they start with."""
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))


def test_an_adapter_is_its_equation_with_small_numbers() -> None:
    adapter = BottleneckAdapter(2, 1)
    with torch.no_grad():
        adapter.down.weight.copy_(torch.tensor([[1.0, 2.0]]))
        adapter.down.bias.copy_(torch.tensor([-4.0]))
        adapter.up.weight.copy_(torch.tensor([[3.0], [-1.0]]))
        adapter.up.bias.copy_(torch.tensor([0.5, 0.25]))
    # h = (1, 2): down 1 + 4 - 4 = 1. h = (1, 1): down 1 + 2 - 4 = -1, cut to 0.
    result = adapter(torch.tensor([[[1.0, 2.0], [1.0, 1.0]]]))
    assert result.tolist() == [[[1 + 3 + 0.5, 2 - 1 + 0.25], [1 + 0.5, 1 + 0.25]]]


def test_an_encoder_layer_adapts_self_attention_and_feed_forward_before_each_residual(model: PreTrainedModel) -> None:
    attach_large_adapters(model)
    shake(model)
    layer: Any = model.get_submodule("model.encoder.layers.0")
    hidden = torch.randn(2, 5, model.config.d_model, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        got = layer(hidden, attention_mask=None)
        with adapters_bypassed(model):
            attended = layer.self_attn(hidden_states=layer.self_attn_layer_norm(hidden))[0]
            after = hidden + by_hand(layer.adapters["self_attn"])(attended)
            fed = layer.fc2(layer.activation_fn(layer.fc1(layer.final_layer_norm(after))))
    wanted = after + by_hand(layer.adapters["fc2"])(fed)
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


def test_a_decoder_layer_adapts_cross_attention_as_well(model: PreTrainedModel) -> None:
    attach_large_adapters(model)
    shake(model)
    layer: Any = model.get_submodule("model.decoder.layers.0")
    generator = torch.Generator().manual_seed(2)
    hidden = torch.randn(2, 1, model.config.d_model, generator=generator)
    encoded = torch.randn(2, 5, model.config.d_model, generator=generator)
    with torch.no_grad():
        got = layer(hidden, encoder_hidden_states=encoded, use_cache=False)
        with adapters_bypassed(model):
            attended = layer.self_attn(hidden_states=layer.self_attn_layer_norm(hidden))[0]
            after = hidden + by_hand(layer.adapters["self_attn"])(attended)
            crossed = layer.encoder_attn(hidden_states=layer.encoder_attn_layer_norm(after), key_value_states=encoded)[0]
            after = after + by_hand(layer.adapters["encoder_attn"])(crossed)
            fed = layer.fc2(layer.activation_fn(layer.fc1(layer.final_layer_norm(after))))
    wanted = after + by_hand(layer.adapters["fc2"])(fed)
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


# --- Dropout -------------------------------------------------------------------------------------------------------------------


def with_dropout(model: PreTrainedModel, rate: float) -> PreTrainedModel:
    """The model in training, with adapters, and dropout after every block and none inside of them."""
    for module in model.modules():
        for name in ("dropout", "activation_dropout"):
            held = getattr(module, name, None)
            if isinstance(held, float):
                inside = name == "activation_dropout" or hasattr(module, "q_proj")
                setattr(module, name, 0.0 if inside else rate)
            elif isinstance(held, torch.nn.Dropout):
                held.p = 0.0 if hasattr(module, "query") else rate
    attach_large_adapters(model)
    shake(model)
    return model.train()


def masks(times: int, shape: tuple[int, ...], rate: float) -> list[Tensor]:
    """What so many dropouts of this shape multiply by, after seed 3."""
    torch.manual_seed(3)
    return [torch.nn.functional.dropout(torch.ones(shape), rate, training=True) for _ in range(times)]


@pytest.mark.parametrize("part", ["encoder", "decoder"])
@torch.no_grad()
def test_with_the_mask_held_a_layer_is_residual_plus_adapter_of_what_dropout_left(model: PreTrainedModel, part: str) -> None:
    """As in the code of Liu et al. 2023."""
    layer: Any = with_dropout(model, 0.5).get_submodule(f"model.{part}.layers.0")
    generator = torch.Generator().manual_seed(2)
    shape = (2, 5 if part == "encoder" else 1, model.config.d_model)
    hidden, encoded = torch.randn(shape, generator=generator), torch.randn(2, 5, model.config.d_model, generator=generator)
    blocks: dict[str, Callable[[Tensor], Tensor]] = {
        "self_attn": lambda h: layer.self_attn(hidden_states=layer.self_attn_layer_norm(h))[0],
        "encoder_attn": lambda h: layer.encoder_attn(hidden_states=layer.encoder_attn_layer_norm(h), key_value_states=encoded)[0],
        "fc2": lambda h: layer.fc2(layer.activation_fn(layer.fc1(layer.final_layer_norm(h)))),
    }
    used = [name for name in blocks if part == "decoder" or name != "encoder_attn"]
    drawn = masks(len(used), shape, 0.5)
    torch.manual_seed(3)
    got = layer(
        hidden, **({"attention_mask": None} if part == "encoder" else {"encoder_hidden_states": encoded, "use_cache": False})
    )
    wanted = hidden
    for name, mask in zip(used, drawn, strict=True):
        adapter = by_hand(layer.adapters[name])
        layer.adapters[name].bypassed, layer.adapters[name].dropout = True, 0.0
        block = blocks[name](wanted)
        wanted = wanted + adapter(mask * block)
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_with_the_mask_held_an_encoders_layer_is_the_same_equation(encoder: Backbone) -> None:
    layer: Any = with_dropout(encoder.model, 0.5).get_submodule("roberta.encoder.layer.0")
    hidden = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(2))
    first, second = masks(2, (2, 5, 32), 0.5)
    torch.manual_seed(3)
    got = layer(hidden)
    adapted = {name: by_hand(adapter) for name, adapter in layer.adapters.items()}
    for adapter in layer.adapters.values():
        adapter.bypassed, adapter.dropout = True, 0.0
    attended = layer.attention.output.dense(layer.attention.self(hidden)[0])
    after = layer.attention.output.LayerNorm(hidden + adapted["attention"](first * attended))
    fed = layer.output.dense(layer.intermediate(after))
    wanted = layer.output.LayerNorm(after + adapted["output"](second * fed))
    torch.testing.assert_close(got[0] if isinstance(got, tuple) else got, wanted, rtol=1e-5, atol=1e-5)


def test_the_dropout_of_layers_without_adapters_and_of_activations_stays() -> None:
    model = tiny_mbart(3, dropout=0.25, activation_dropout=0.125)
    attach_adapters(model, AdapterConfig(4, layers="middle"), seed=1)
    layers: Any = model.get_submodule("model.decoder.layers")
    assert [layer.dropout for layer in layers] == [0.25, 0.0, 0.25]
    assert [layer.activation_dropout for layer in layers] == [0.125] * 3
    assert [adapter.dropout for adapter in layers[1].adapters.values()] == [0.25] * 3
    assert model.config.dropout == 0.25


def test_bypassed_adapters_leave_the_base_and_come_back(model: PreTrainedModel, tokens: dict[str, Tensor]) -> None:
    with torch.no_grad():
        base = model(**tokens).logits
        attach_large_adapters(model)
        adapted = model(**tokens).logits
        with adapters_bypassed(model):
            assert torch.equal(model(**tokens).logits, base)
        assert torch.equal(model(**tokens).logits, adapted)
    assert not torch.allclose(adapted, base)


def test_adapters_come_back_after_an_error(backbone: Backbone) -> None:
    attach_large_adapters(backbone.model)
    with pytest.raises(LookupError), adapters_bypassed(backbone.model):
        raise LookupError
    assert not any(m.bypassed for m in backbone.model.modules() if isinstance(m, BottleneckAdapter))


def test_the_paper_start_draws_both_projections_around_zero_and_no_biases(backbone: Backbone) -> None:
    attach_adapters(backbone.model, AdapterConfig(dim=64), seed=1)
    adapters = [module for module in backbone.model.modules() if isinstance(module, BottleneckAdapter)]
    assert len(adapters) == 2 * 2 + 2 * 3
    for projection in ("down", "up"):
        weights = torch.cat([getattr(adapter, projection).weight.detach().flatten() for adapter in adapters])
        # 20480 draws: the standard error of the mean is 0.00014, that of the deviation 0.0001.
        assert weights.numel() == 10 * 64 * 32
        assert abs(float(weights.mean())) < 0.0006
        assert abs(float(weights.std()) - 0.02) < 0.0004
        assert all(not getattr(adapter, projection).bias.any() for adapter in adapters)


def test_the_seed_decides_the_adapters_bytes() -> None:
    def drawn(seed: int) -> bytes:
        model = tiny_mbart()
        torch.manual_seed(seed + 100)  # the global randomness has no say
        attach_adapters(model, AdapterConfig(4), seed)
        return b"".join(array.tobytes() for array in read_tensors(model, tensor_set(model, "adapters")).values())

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_attaching_twice_is_refused(backbone: Backbone) -> None:
    attach_adapters(backbone.model, AdapterConfig(4), seed=1)
    with pytest.raises(BackboneError, match="already has adapters"):
        attach_adapters(backbone.model, AdapterConfig(4), seed=1)


def test_the_adapter_set_is_adapters_and_layer_norms_but_not_the_embeddings_norm() -> None:
    assert is_adapter_set("model.encoder.layers.0.adapters.fc2.up.weight")
    assert is_adapter_set("model.decoder.layers.3.encoder_attn_layer_norm.bias")
    assert is_adapter_set("model.encoder.layer_norm.weight")
    assert not is_adapter_set("model.encoder.layernorm_embedding.weight")
    assert not is_adapter_set("model.encoder.layers.0.fc2.weight")


# --- In an encoder -------------------------------------------------------------------------------------------------------------

TEXT = {
    "input_ids": torch.tensor([[0, 17, 15, 16, 2], [0, 20, 21, 2, 1]]),
    "attention_mask": torch.tensor([[1] * 5, [1, 1, 1, 1, 0]]),
}


def test_a_layer_of_an_encoder_adapts_attention_and_feed_forward_before_each_residual(encoder: Backbone) -> None:
    attach_large_adapters(encoder.model)
    shake(encoder.model)
    layer: Any = encoder.model.get_submodule("roberta.encoder.layer.0")
    hidden = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        got = layer(hidden)
        with adapters_bypassed(encoder.model):
            attended = layer.attention.output.dense(layer.attention.self(hidden)[0])
            after = layer.attention.output.LayerNorm(hidden + by_hand(layer.adapters["attention"])(attended))
            fed = layer.output.dense(layer.intermediate(after))
            wanted = layer.output.LayerNorm(after + by_hand(layer.adapters["output"])(fed))
    torch.testing.assert_close(got[0] if isinstance(got, tuple) else got, wanted, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_an_encoders_adapters_change_what_it_says_unless_they_are_bypassed(encoder: Backbone) -> None:
    base = encoder.model(**TEXT).logits
    attach_large_adapters(encoder.model)
    assert not torch.equal(encoder.model(**TEXT).logits, base)
    with adapters_bypassed(encoder.model):
        assert torch.equal(encoder.model(**TEXT).logits, base)


def test_of_an_encoders_norms_those_of_the_layers_are_in_the_set(encoder: Backbone) -> None:
    attach_adapters(encoder.model, AdapterConfig(4), seed=1)
    chosen = tensor_set(encoder.model, "adapters")
    layers = [f"roberta.encoder.layer.{number}" for number in (0, 1)]
    norms = {
        f"{layer}.{place}.LayerNorm.{kind}" for layer in layers for place in ("attention.output", "output") for kind in KINDS
    }
    adapters = {
        f"{layer}.adapters.{place}.{way}.{kind}"
        for layer in layers
        for place in ("attention", "output")
        for way in ("down", "up")
        for kind in KINDS
    }
    assert set(chosen.names) == norms | adapters
    assert {spec.part for spec in chosen.specs} == {"encoder"}
    assert chosen.num_parameters == 4 * (2 * 32) + 4 * (32 * 4 + 4 + 4 * 32 + 32)


KINDS = ("weight", "bias")
