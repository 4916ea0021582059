"""Two adapters and a gate: what a layer adds, by hand, and that it begins as a layer with one."""

from typing import Any

import numpy as np
import pytest
import torch

from fedlingua.backbones.bottleneck import AdapterConfig, adapters_bypassed, attach_adapters
from fedlingua.backbones.load import Backbone
from fedlingua.backbones.lora import LowRank, attach_lora, peft_bypassed
from fedlingua.backbones.shared_private import attach_rest, is_gate, is_rest, mixed
from fedlingua.exchange.tensor_sets import standing_beside, tensor_set, travelling
from fedlingua.training.batches import pad

KINDS: dict[str, Any] = {
    "adapters": (lambda model: attach_adapters(model, AdapterConfig(4), seed=1), adapters_bypassed),
    "lora": (lambda model: attach_lora(model, LowRank(2), seed=1), peft_bypassed),
}


def test_the_mixture_is_the_softmax_of_the_scores_over_the_two() -> None:
    rng = np.random.default_rng(1)
    scores, own, rest = (rng.standard_normal((3, 5, width)) for width in (2, 4, 4))
    shares = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    got = mixed(*(torch.tensor(array) for array in (scores, own, rest))).numpy()
    np.testing.assert_allclose(got, shares[..., [0]] * own + shares[..., [1]] * rest, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_it_begins_as_without_and_is_the_backbone_where_it_is_bypassed(backbone: Backbone, examples: Any, kind: str) -> None:
    attach, bypassed = KINDS[kind]
    batch, model = pad(examples, backbone.codec), backbone.model

    def nll() -> float:
        return float(batch.nll(model, 0.0)[0].detach())

    base = nll()
    attach(model)
    randomise(model, lambda name: ".adapters." in name or ".lora_" in name)
    before, set_before = nll(), tensor_set(model, kind)
    attach_rest(model)
    assert nll() == pytest.approx(before, rel=1e-6)
    assert abs(before - base) > 1e-3
    with bypassed(model):
        assert nll() == base
    trained = tensor_set(model, kind)
    assert travelling(trained) == set_before
    gates = trained.without(set_before)
    assert gates.names
    assert all(is_gate(name) for name in gates.names)
    assert all(is_rest(name) for name in standing_beside(model).names)
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_a_layer_of_adapters_adds_what_the_formula_says(backbone: Backbone) -> None:
    attach_adapters(backbone.model, AdapterConfig(4), seed=1)
    attach_rest(backbone.model)
    adapter: Any = backbone.model.get_submodule("model.decoder.layers.1.adapters.fc2")
    randomise(adapter, lambda name: True)
    inputs = torch.randn(2, 3, 32)
    p = {name: parameter.detach().numpy().astype(np.float64) for name, parameter in adapter.named_parameters()}
    h = inputs.numpy().astype(np.float64)

    def f(first: str, last: str) -> np.ndarray[Any, Any]:
        hidden = np.maximum(h @ p[f"{first}.weight"].T + p[f"{first}.bias"], 0)
        return hidden @ p[f"{last}.weight"].T + p[f"{last}.bias"]

    shares = np.exp(h @ p["beside.gate.weight"].T + p["beside.gate.bias"])
    shares /= shares.sum(axis=-1, keepdims=True)
    wanted = h + shares[..., [0]] * f("down", "up") + shares[..., [1]] * f("beside.first", "beside.last")
    np.testing.assert_allclose(adapter(inputs).detach().numpy(), wanted, rtol=0, atol=1e-5)


def test_a_low_rank_layer_adds_what_the_formula_says(backbone: Backbone) -> None:
    attach_lora(backbone.model, LowRank(2, alpha=6.0), seed=1)
    attach_rest(backbone.model)
    layer: Any = backbone.model.get_submodule("model.encoder.layers.0.self_attn.q_proj")
    randomise(layer, lambda name: True)
    inputs = torch.randn(2, 3, 32)
    p = {name: parameter.detach().numpy().astype(np.float64) for name, parameter in layer.named_parameters()}
    x = inputs.numpy().astype(np.float64)
    own = x @ p["lora_A.default.weight"].T @ p["lora_B.default.weight"].T
    rest = x @ p["beside.first.weight"].T @ p["beside.last.weight"].T
    shares = np.exp(x @ p["beside.gate.weight"].T + p["beside.gate.bias"])
    shares /= shares.sum(axis=-1, keepdims=True)
    wanted = x @ p["base_layer.weight"].T + p["base_layer.bias"] + 6 / 2 * (shares[..., [0]] * own + shares[..., [1]] * rest)
    np.testing.assert_allclose(layer(inputs).detach().numpy(), wanted, rtol=0, atol=1e-5)


def randomise(module: torch.nn.Module, wanted: Any) -> None:
    torch.manual_seed(3)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if wanted(name):
                parameter.normal_(0.0, 0.3)
